"""A dashboard over a running application, with the worker and the web server as processes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

from leasework import App
from leasework.web import dashboard
from tests.support import postgres as servers
from tests.support.procs import Process, Processes
from tests.support.wait import until

# ten million rows take too long for every run
collect_ignore = [] if os.environ.get("LEASEWORK_LONG") else ["test_speed.py"]
CHROMIUM = "/usr/bin/chromium"
PATIENCE = 30_000
"""In milliseconds."""
TOKEN = "correct-horse-battery"


@dataclass
class Scene:
    """A dashboard with actions and without a login: its ``url``, and the ``dsn`` of its
    database."""

    url: str
    dsn: str
    procs: Processes
    worker: Process

    def web(self, *options: str, **environ: str) -> str:
        """Start another dashboard on the same database, and return its address."""
        env = {"LEASEWORK_DSN": self.dsn, **environ}
        name = f"web-{len(self.procs.all)}"
        process = self.procs.start(
            "-m", "leasework", "web", "--port", "0", *options, name=name, env=env
        )
        return process.wait_for(r"dashboard is at (http://\S+/)", 60)[1]

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query, params or None)
            return cursor.fetchall() if cursor.description else []

    def enqueue(self, task: str, queue: str, **options: Any) -> UUID:
        request = {"task": task, "queue": queue, **options}
        return self.sql("select id from leasework.enqueue(%s)", json.dumps(request))[0][0]

    def state(self, job: UUID) -> str:
        rows = self.sql("select state from leasework.jobs where id = %s", job)
        return rows[0][0] if rows else "gone"

    def wait_state(self, job: UUID, state: str) -> None:
        until(lambda: self.state(job) == state, 60, f"job {job} {state}")


@pytest.fixture(scope="module")
def scene(
    postgres: Any, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("dashboard")
    with servers.database(postgres.dsn, template=template) as dsn, Processes(folder) as procs:
        env = {"LEASEWORK_DSN": dsn, "LEASEWORK_RELEASE": "2026-11-21.3"}
        worker = procs.start(
            "-m", "leasework", "worker", "tests.web.scene:app", name="worker", env=env
        )
        made = Scene("", dsn, procs, worker)
        made.url = made.web()
        until(lambda: made.sql("select 1 from leasework.leaders where holder is not null"), 60)
        yield made


@dataclass
class Inside:
    """A dashboard in this process, called without a network."""

    app: App
    http: httpx.AsyncClient

    async def form_token(self, path: str = "/jobs") -> str:
        """Open a page as a browser does. The client keeps the cookie."""
        page = await self.http.get(path)
        found = re.search(r'name="form_token" value="([0-9a-f]{64})"', page.text)
        assert found, page.text
        return found[1]

    async def post(self, path: str, page: str = "/login", **form: str) -> httpx.Response:
        token = form.pop("form_token", None) or await self.form_token(page)
        return await self.http.post(path, data={"form_token": token, **form})


Make = Callable[..., Any]


@pytest.fixture
async def make(dsn: str, migrated: str) -> AsyncIterator[Make]:
    """``async with make(login=…) as inside`` makes a dashboard over a new schema without a node."""
    app = App(dsn=dsn)

    @asynccontextmanager
    async def inside(**options: Any) -> AsyncIterator[Inside]:
        given = options or {"unprotected": True}
        transport = httpx.ASGITransport(dashboard(app, **given), raise_app_exceptions=False)
        headers = {"accept": "text/html"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://leasework.test", headers=headers
        ) as http:
            yield Inside(app, http)

    yield inside
    await app.close()


# -- a browser -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    if not os.path.exists(CHROMIUM):
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


Open = Callable[..., Any]


@pytest.fixture
def page_at(browser: Any) -> Iterator[Open]:
    """A page in a new browser profile. An error in the browser's console fails the test."""
    complaints: list[str] = []
    contexts = []

    def complain(kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            complaints.append(text)

    def open_page(url: str, width: int = 1280, theme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 860}, color_scheme=theme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda said: (
                complaints.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints
