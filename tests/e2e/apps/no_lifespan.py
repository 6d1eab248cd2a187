"""An ASGI application without a lifespan, as Django's is. gunicorn's hooks start the node."""

from __future__ import annotations

from typing import Any

from tests.e2e.apps.web import app as app

GUNICORN = """
from leasework.integrations.gunicorn import node

worker_class = "uvicorn_worker.UvicornWorker"
post_worker_init, worker_exit = node("tests.e2e.apps.no_lifespan:app")
"""


async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})
