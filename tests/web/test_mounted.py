"""The dashboard inside an application of the user's."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import click
import httpx
import psycopg
import pytest
import uvicorn
from fastapi import FastAPI
from litestar import Litestar, asgi
from litestar.types import Receive, Scope, Send
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from leasework import App
from leasework.cli.root import root
from leasework.web import dashboard
from tests.support.procs import Processes


def fastapi(path: str, site: Any) -> FastAPI:
    web = FastAPI()
    web.mount(path, site)
    return web


def litestar(path: str, site: Any) -> Litestar:
    """As the page about Litestar shows."""

    @asgi(path, is_mount=True, copy_scope=True)
    async def pages(scope: Scope, receive: Receive, send: Send) -> None:
        root = scope.get("root_path", "") + path
        inside = root + (scope["path"].rstrip("/") or "/")
        await site({**scope, "root_path": root, "path": inside}, receive, send)

    return Litestar([pages])


FRAMEWORKS: dict[str, Callable[[str, Any], Any]] = {
    "fastapi": fastapi,
    "starlette": lambda path, site: Starlette(routes=[Mount(path, site)]),
    "litestar": litestar,
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_it_is_mounted_and_knows_the_users_own_login(dsn: str, migrated: str, framework: str):
    app = App(dsn=dsn)

    def admin(request: Request) -> str | None:
        return request.headers.get("x-admin")

    web = FRAMEWORKS[framework]("/ops/jobs", dashboard(app, who=admin))
    headers = {"accept": "text/html", "x-admin": "Ada"}
    transport = httpx.ASGITransport(web)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        assert (await http.get("/ops/jobs/now")).status_code == 401, "nobody"
        home = await http.get("/ops/jobs/", headers=headers)
        assert home.headers["location"] == "/ops/jobs/now"
        page = await http.get("/ops/jobs/now", headers=headers)
        assert page.status_code == 200
        links = set(re.findall(r'(?:href|src|action|data-live|hx-get)="([^"]+)"', page.text))
        assert links and all(link.startswith(("/ops/jobs/", "#")) for link in links), links
        for link in links:
            if "/static/" in link:
                assert (await http.get(link)).status_code == 200, link
        assert "Path=/ops/jobs" in page.headers["set-cookie"]
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            cursor = await connection.execute('select id from leasework.enqueue(\'{"task": "t"}\')')
            [(job,)] = await cursor.fetchall()
            shown = await http.get(f"/ops/jobs/jobs/{job}", headers=headers)
            token = re.search(r'name="form_token" value="([0-9a-f]{64})"', shown.text)
            assert token
            form = {"form_token": token[1], "act": "cancel"}
            address = f"/ops/jobs/jobs/{job}/act"
            other = {**headers, "x-admin": "Eve"}
            assert (await http.post(address, data=form, headers=other)).status_code == 403
            done = await http.post(address, data=form, headers=headers)
            assert done.headers["location"] == f"/ops/jobs/jobs/{job}"
            query = "select fields ->> 'who', fields ->> 'act' from leasework.events"
            cursor = await connection.execute(query)
            assert await cursor.fetchall() == [("Ada", "cancel")]
    await app.close()


def test_the_address_is_told_when_a_browser_may_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def connect(line: str) -> None:
        told.append(line)
        port = int(line.rstrip("/").rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), timeout=60).close()

    monkeypatch.setattr(click, "echo", connect)
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: None)
    root.main(["web", "--port", "0", "--dsn", "postgresql:///none"], standalone_mode=False)
    assert told


@pytest.mark.parametrize("package", ["jinja2", "uvicorn"])
def test_the_command_names_a_missing_package(procs: Processes, package: str) -> None:
    code = f"""if True:
        import sys
        sys.modules["{package}"] = None  # as if it were not installed
        sys.argv = ["leasework", "web", "--dsn", "postgresql:///none"]
        from leasework.cli import main
        main()
    """
    process = procs.start(code=code)
    assert process.wait(60) == 1
    assert f"leasework: the dashboard needs the package {package}." in process.output


def test_a_missing_package_of_the_dashboard_is_named_with_its_extra(procs: Processes) -> None:
    code = """if True:
        import sys
        sys.modules["jinja2"] = None  # as if it were not installed
        try:
            import leasework.web
        except ImportError as error:
            print(type(error).__name__, error)
    """
    process = procs.start(code=code)
    assert process.wait(60) == 0
    assert "MissingExtra the dashboard needs the package jinja2" in process.output
    assert "leasework's extra 'web'" in process.output
