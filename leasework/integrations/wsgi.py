"""The dashboard and the probes under WSGI: for Flask, Django and others without asyncio.

    wsgi_app = as_wsgi(dashboard(app, login=Login(token=...)), app)

Mount it as any WSGI application, for example with werkzeug's ``DispatcherMiddleware``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from http.client import responses
from typing import Any, TypeAlias

from leasework.app import App

Environ: TypeAlias = dict[str, Any]
Wsgi: TypeAlias = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
Asgi: TypeAlias = Callable[..., Any]

MOST_BODY_BYTES = 1024 * 1024
"""The rest of a longer body is left unread. The dashboard refuses far shorter ones."""


def as_wsgi(asgi_app: Asgi, app: App) -> Wsgi:
    """Turn an ASGI application of leasework's into a WSGI application.

    ``asgi_app``: what ``dashboard(...)`` or ``probes(...)`` returned. ``app``: the App whose
    background thread, that of ``app.sync``, runs it. Nothing starts before the first request, so
    the web server may fork later. Each request and each response is held in memory as a whole.

    ``environ["REMOTE_USER"]`` becomes ``request.user``. An application with logins of its own can
    therefore authenticate first, set it, and use ``dashboard(app, who=lambda request:
    request.user)``. Always set it, to None for nobody: a web server may set it too.
    """

    def wsgi_app(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        given = str(environ.get("CONTENT_LENGTH", ""))
        length = int(given) if given.isascii() and given.isdigit() else 0
        body = environ["wsgi.input"].read(min(length, MOST_BODY_BYTES)) if length else b""
        status, headers, content = app.sync.call(_exchange(asgi_app, _scope(environ), body))
        start_response(f"{status} {responses.get(status, 'Unknown')}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [content]

    return wsgi_app


def _scope(environ: Environ) -> dict[str, Any]:
    """The request as ASGI describes it. WSGI gives each byte of a path as one character."""
    root = environ.get("SCRIPT_NAME", "").encode("latin-1").decode("utf-8", "replace")
    path = environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace")
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower().encode(): value.encode("latin-1")
        for name, value in environ.items()
        if name.startswith("HTTP_") or (name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value)
    }
    client = environ.get("REMOTE_ADDR")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": environ.get("SERVER_PROTOCOL", "HTTP/1.1").removeprefix("HTTP/"),
        "method": environ["REQUEST_METHOD"],
        "scheme": environ["wsgi.url_scheme"],
        "path": root + path,
        "root_path": root,
        "query_string": environ.get("QUERY_STRING", "").encode("latin-1"),
        "headers": list(headers.items()),
        "client": (client, int(environ.get("REMOTE_PORT") or 0)) if client else None,
        "server": (environ["SERVER_NAME"], int(environ["SERVER_PORT"] or 0)),
        "user": environ.get("REMOTE_USER"),
    }


async def _exchange(
    asgi_app: Asgi, scope: dict[str, Any], body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    """One request and its whole response: status, headers, content."""
    request = [{"type": "http.request", "body": body, "more_body": False}]
    status, headers, parts = 500, [], []

    async def receive() -> dict[str, Any]:
        if request:
            return request.pop()
        await asyncio.Event().wait()  # the client is there until the response is complete
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in message["headers"]]
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await asgi_app(scope, receive, send)
    return status, headers, b"".join(parts)
