"""The dashboard and the probes under WSGI: for Flask, Django and others without asyncio.

    wsgi_app = as_wsgi(dashboard(app, login=Login(token=...)), app)

Mount it as any WSGI application, for example with werkzeug's ``DispatcherMiddleware``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from leasework.app import App

Environ: TypeAlias = dict[str, Any]
Wsgi: TypeAlias = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
Asgi: TypeAlias = Callable[..., Any]


def as_wsgi(asgi_app: Asgi, app: App) -> Wsgi:
    """Turn an ASGI application of leasework's into a WSGI application.

    ``asgi_app``: what ``dashboard(...)`` or ``probes(...)`` returned. ``app``: the App whose
    background thread, that of ``app.sync``, runs it. Nothing starts before the first request, so
    the web server may fork later. Each response is held in memory as a whole. Needs the extra
    ``web``.

    ``environ["REMOTE_USER"]`` becomes ``request.user``. An application with logins of its own can
    therefore authenticate first, set it, and use ``dashboard(app, who=lambda request:
    request.user)``. Always set it, to None for nobody: a web server may set it too.
    """
    from a2wsgi import ASGIMiddleware  # not above: Flask without a dashboard does without it

    async def with_user(scope: Any, receive: Any, send: Any) -> None:
        user = scope["wsgi_environ"].get("REMOTE_USER")
        await asgi_app({**scope, "user": user}, receive, send)

    def wsgi_app(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        # for each request, because the background thread of a parent is not there after a fork
        bridge: Any = ASGIMiddleware(with_user, loop=app.sync.background())
        environ = {**environ, "SERVER_PORT": environ["SERVER_PORT"] or "0"}  # of a Unix socket
        content = b"".join(bridge(environ, start_response))
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [content]

    return wsgi_app
