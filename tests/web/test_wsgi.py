"""The dashboard under WSGI, on a real server."""

from __future__ import annotations

import multiprocessing
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.util import setup_testing_defaults

import httpx
import psycopg
import pytest

from leasework import App
from leasework.integrations.wsgi import as_wsgi
from leasework.web import dashboard

ADA = {"accept": "text/html", "x-admin": "Ada"}


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """The test's output is for failures."""


@contextmanager
def served(wsgi_app: Any) -> Iterator[httpx.Client]:
    """A client of a server that runs in a thread of its own."""
    with make_server("127.0.0.1", 0, wsgi_app, handler_class=_Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}") as client:
                yield client
        finally:
            server.shutdown()
            thread.join()


def under_ops(wsgi_app: Any, path: str = "/ops") -> Any:
    """Mount it, and take the name of the person from a header, as if a login had checked it."""

    def mounted(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        environ["SCRIPT_NAME"] = path
        environ["PATH_INFO"] = environ["PATH_INFO"].removeprefix(path)
        environ["REMOTE_USER"] = environ.get("HTTP_X_ADMIN")
        return wsgi_app(environ, start_response)

    return mounted


@pytest.fixture
def app(dsn: str, migrated: str) -> Iterator[App]:
    app = App(dsn=dsn)
    yield app
    app.sync.close()


@pytest.fixture
def ops(app: App) -> Iterator[httpx.Client]:
    site = dashboard(app, who=lambda request: request.user)
    with served(under_ops(as_wsgi(site, app))) as client:
        yield client


def test_the_dashboard_is_served_under_its_path(ops: httpx.Client) -> None:
    home = ops.get("/ops/", headers=ADA)
    assert (home.status_code, home.headers["location"]) == (303, "/ops/now")
    page = ops.get("/ops/now", headers=ADA)
    assert page.status_code == 200 and "Path=/ops" in page.headers["set-cookie"]
    links = set(re.findall(r'(?:href|src|action|data-live|hx-get)="([^"]+)"', page.text))
    assert links and all(link.startswith(("/ops/", "#")) for link in links), links
    for link in links:
        if "/static/" in link:
            assert ops.get(link).content, link
    assert ops.get("/ops/nowhere", headers=ADA).status_code == 404
    head = ops.head("/ops/now", headers=ADA)
    assert (head.status_code, head.content) == (200, b"")


def test_the_address_of_the_mount_itself_leads_to_the_dashboard(ops: httpx.Client) -> None:
    page = ops.get("/ops", headers=ADA, follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, "/ops/now")


def test_nobody_gets_in_without_the_applications_login(ops: httpx.Client) -> None:
    assert ops.get("/ops/now").status_code == 401
    assert ops.get("/ops/now", headers={"remote-user": "Eve"}).status_code == 401


def test_a_form_acts_in_the_name_of_the_person(ops: httpx.Client, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        made = connection.execute('select id from leasework.enqueue(\'{"task": "t é"}\')')
        [(job,)] = made.fetchall()
        assert str(job) in ops.get("/ops/jobs?q=task:%22t%20%C3%A9%22", headers=ADA).text
        page = ops.get(f"/ops/jobs/{job}", headers=ADA)
        token = re.search(r'name="form_token" value="([0-9a-f]{64})"', page.text)
        assert token
        form = {"form_token": token[1], "act": "cancel"}
        address = f"/ops/jobs/{job}/act"
        assert ops.post(address, data=form, headers=ADA | {"x-admin": "Eve"}).status_code == 403
        assert ops.post(address, data=form, headers=ADA).headers["location"] == f"/ops/jobs/{job}"
        query = "select fields ->> 'who', fields ->> 'act' from leasework.events"
        assert connection.execute(query).fetchall() == [("Ada", "cancel")]


def test_the_page_of_a_job_changes_its_priority(ops: httpx.Client, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        made = connection.execute('select id from leasework.enqueue(\'{"task": "t"}\')')
        [(job,)] = made.fetchall()
        page = ops.get(f"/ops/jobs/{job}", headers=ADA)
        token = re.search(r'name="form_token" value="([0-9a-f]{64})"', page.text)
        assert token and 'value="reprioritize"' in page.text
        form = {"form_token": token[1], "act": "reprioritize"}
        for given in ("-5", "99999", "x", "", "9" * 5000, "²"):
            answer = ops.post(f"/ops/jobs/{job}/act", data=form | {"priority": given}, headers=ADA)
            assert answer.status_code == (303 if given == "-5" else 400), given
        assert connection.execute("select priority from leasework.jobs").fetchall() == [(-5,)]
        query = "select fields ->> 'who', fields ->> 'act', fields ->> 'on' from leasework.events"
        assert connection.execute(query).fetchall() == [("Ada", "reprioritize", f"job {job} to -5")]


def test_no_body_is_read_further_than_its_limit(app: App) -> None:
    class Huge:
        def read(self, size: int) -> bytes:
            sizes.append(size)
            return b"x" * size

    sizes: list[int] = []
    statuses: list[str] = []
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/now",
        "CONTENT_TYPE": "application/x-www-form-urlencoded",
        "CONTENT_LENGTH": str(10**12),
        "wsgi.input": Huge(),
    }
    setup_testing_defaults(environ)
    site = as_wsgi(dashboard(app, unprotected=True), app)
    list(site(environ, lambda status, *_: statuses.append(status)))
    assert sum(sizes) < 1024 * 1024 and statuses[0][:3] == "413"


def test_an_open_page_asks_for_changes(ops: httpx.Client) -> None:
    said = ops.get("/ops/live", headers=ADA).json()
    assert said.keys() == {"problems", "away"} and not said["away"]


def test_a_bridge_that_was_made_before_a_fork_works_after_it(app: App) -> None:
    """gunicorn --preload: the thread of the parent is not there in its workers."""
    site = as_wsgi(dashboard(app, unprotected=True), app)
    with served(under_ops(site)) as client:
        assert client.get("/ops/readyz").text == "ok\n"
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_answers, args=[site])
    child.start()
    child.join(20)
    assert child.exitcode == 0


def _answers(site: Any) -> None:
    with served(under_ops(site)) as client:
        assert client.get("/ops/readyz").text == "ok\n"
