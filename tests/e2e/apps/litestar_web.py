"""The Litestar application of the tests. Its tasks and its schedule are those of ``web.py``."""

from __future__ import annotations

import os

from litestar import Litestar, get

from tests.e2e.apps.web import app, work


@get("/")
async def index() -> dict[str, int]:
    return {"pid": os.getpid()}


@get("/enqueue")
async def enqueue() -> dict[str, str]:
    return {"job": str((await work.enqueue(seconds=0)).id)}


asgi = Litestar(route_handlers=[index, enqueue], lifespan=[app.lifespan])
