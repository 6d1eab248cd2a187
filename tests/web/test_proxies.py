"""The dashboard behind a proxy that takes a prefix away, and behind one that keeps it."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import psycopg
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from leasework import App
from leasework.errors import ConfigError
from leasework.web import Login, dashboard
from tests.support.procs import Processes
from tests.web.conftest import TOKEN

STRIPS = (True, False)
_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@contextmanager
def proxy(to: str, prefix: str, strips: bool) -> Iterator[httpx.Client]:
    """A client of a proxy that serves ``to`` under a prefix alone."""

    class Forward(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not (self.path == prefix or self.path.startswith((f"{prefix}/", f"{prefix}?"))):
                return self.send_error(404, "not under the prefix")
            path = self.path.removeprefix(prefix) if strips else self.path
            if not path.startswith("/"):
                path = f"/{path}"
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = [(k, v) for k, v in self.headers.items() if k.lower() not in _HOP]
            answer = httpx.request(self.command, to + path, headers=headers, content=body)
            self.send_response(answer.status_code)
            for name, value in answer.headers.multi_items():
                if name.lower() not in {*_HOP, "content-encoding"}:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            """The test's output is for failures."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Forward)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        headers = {"accept": "text/html"}
        with httpx.Client(base_url=url, headers=headers, follow_redirects=True) as client:
            yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def walk(client: httpx.Client, root: str, dsn: str, bare: bool = True) -> None:
    """Go round as a person does: every link and form stays below the root."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute('select id from leasework.enqueue(\'{"task": "t"}\')')
        [(job,)] = rows.fetchall()
        for path in (root, f"{root}/") if bare else (f"{root}/",):
            page = client.get(path)
            assert page.status_code == 200 and page.url.path == f"{root}/login", path
        form = {"form_token": token(page), "name": "ann", "secret": TOKEN}
        page = client.post(f"{root}/login", data=form)
        assert page.url.path == f"{root}/now"
        for path in ("now", "jobs", "jobs?q=state:available", f"jobs/{job}", "events", "nowhere"):
            page = client.get(f"{root}/{path}")
            assert page.status_code == (404 if path == "nowhere" else 200), path
            found = set(re.findall(r'(?:href|src|action|data-\w+|hx-get)="([^"]+)"', page.text))
            links = {link for link in found if link.startswith(("/", "http"))}
            assert links and all(link.startswith(f"{root}/") for link in links), links
            for link in links:
                if "/static/" in link or "/live" in link:
                    assert client.get(link).status_code == 200, link
        assert {cookie.path for cookie in client.cookies.jar} == {root}
        page = client.get(f"{root}/jobs/{job}")
        form = {"form_token": token(page), "act": "cancel"}
        page = client.post(f"{root}/jobs/{job}/act", data=form)
        assert page.url.path == f"{root}/jobs/{job}" and "Job cancelled." in page.text
        page = client.post(f"{root}/logout", data={"form_token": token(page)})
        assert page.url.path == f"{root}/login"
        assert client.get(f"{root}/now").url.path == f"{root}/login"
        assert client.get(f"{root}/livez").text


def token(page: httpx.Response) -> str:
    found = re.search(r'name="form_token" value="([0-9a-f]{64})"', page.text)
    assert found, page.text
    return found[1]


@pytest.mark.parametrize("prefix", ["/ops", "/a/b"])
def test_the_command_serves_it_under_a_prefix(
    procs: Processes, dsn: str, migrated: str, prefix: str
) -> None:
    env = {"LEASEWORK_DSN": dsn, "LEASEWORK_WEB_TOKEN": TOKEN}
    process = procs.start(
        *("-m", "leasework", "web", "--port", "0", "--prefix", f"{prefix}/"), env=env
    )
    url = process.wait_for(rf"dashboard is at (http://\S+){prefix}/", 60)[1]
    for strips in STRIPS:
        with proxy(url, prefix, strips) as client:
            walk(client, prefix, dsn)
    assert re.search(r"^\d{4}-\d\d-\d\d \S+ INFO +person_acted worker=web", process.output, re.M)


@contextmanager
def served(asgi: Any, root_path: str = "") -> Iterator[str]:
    config = uvicorn.Config(asgi, root_path=root_path, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.mark.parametrize("strips", STRIPS)
@pytest.mark.parametrize("framework", ["server", "fastapi", "starlette"])
def test_a_mounted_dashboard_knows_the_prefix_of_its_application(
    dsn: str, migrated: str, strips: bool, framework: str
) -> None:
    app = App(dsn=dsn)
    site = dashboard(app, login=Login(token=TOKEN))
    if framework == "server":  # uvicorn --root-path, which expects a proxy that strips
        with (
            served(Starlette(routes=[Mount("/ops", site)]), "/api") as url,
            proxy(url, "/api", True) as client,
        ):
            walk(client, "/api/ops", dsn)
        return
    inside = FastAPI() if framework == "fastapi" else Starlette()
    inside.mount("/ops", site)

    async def web(scope: Any, receive: Any, send: Any) -> None:
        await inside({**scope, "root_path": "/api"}, receive, send)

    with served(web) as url, proxy(url, "/api", strips) as client:
        # the application itself redirects from its mount's bare path, to where it believes to be
        walk(client, "/api/ops", dsn, bare=not strips)


@pytest.mark.parametrize(
    "prefix", ["ops", "/jobs", "/static", "/livez", "/events/x", "//evil.org", "/a b", "/%2e", "/"]
)
def test_a_prefix_that_cannot_be_told_from_a_page_is_refused(prefix: str) -> None:
    app = App(dsn="postgresql:///none")
    if prefix == "/":
        dashboard(app, unprotected=True, prefix=prefix)
        return
    with pytest.raises(ConfigError, match="prefix"):
        dashboard(app, unprotected=True, prefix=prefix)
