"""Litestar: a way to mount the dashboard and the probes.

    web = Litestar(
        route_handlers=[mounted("/leasework", dashboard(app, login=Login(token=...)))],
        lifespan=[app.lifespan],
    )

The node needs nothing of its own.
"""

from __future__ import annotations

from typing import Any

from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send


def mounted(path: str, asgi_app: Any) -> ASGIRouteHandler:
    """A route handler that serves an ASGI application of leasework's, which ``dashboard(...)`` or
    ``probes(...)`` returned, under ``path``.

    Litestar's own mounts do not tell an application where it is mounted, and end each path with a
    slash.
    """

    @asgi(path, is_mount=True, copy_scope=True)
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        root = scope.get("root_path", "") + path.rstrip("/")
        inside = scope["path"].rstrip("/") or "/"
        await asgi_app({**scope, "root_path": root, "path": root + inside}, receive, send)

    return serve
