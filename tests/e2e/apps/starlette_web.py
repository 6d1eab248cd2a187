"""The Starlette application of the tests. Its tasks and its schedule are those of ``web.py``."""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.e2e.apps.web import app, work


async def index(request: Request) -> JSONResponse:
    return JSONResponse({"pid": os.getpid()})


async def enqueue(request: Request) -> JSONResponse:
    return JSONResponse({"job": str((await work.enqueue(seconds=0)).id)})


asgi = Starlette(lifespan=app.lifespan, routes=[Route("/", index), Route("/enqueue", enqueue)])
