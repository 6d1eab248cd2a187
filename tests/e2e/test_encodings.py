"""Databases and clients of every encoding: texts arrive as they were, through real workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

from leasework import App
from leasework.cli.root import root
from leasework.errors import UnsafeServer
from leasework.model.job import JobRequest
from leasework.web import dashboard
from tests.support import postgres as servers
from tests.support.requests import job_request
from tests.support.wait import until_async

EVERYTHING = "Straße 서울 🐘"


@dataclass
class Place:
    """A database, and what a client that says nothing would speak there."""

    encoding: str
    dsn: str
    text: str
    environ: dict[str, str]


@contextmanager
def place(postgres: Any, encoding: str, client: str, by: str, text: str) -> Iterator[Place]:
    with servers.database(postgres.dsn, encoding) as dsn:
        environ = {"PGCLIENTENCODING": client} if by == "environment" else {}
        if by != "role":
            yield Place(encoding, dsn, text, environ)
            return
        role = f"speaks_{client.lower()}"
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(f"create role {role} superuser login".encode())
            connection.execute(f"alter role {role} set client_encoding = '{client}'".encode())
        try:
            yield Place(encoding, make_conninfo(dsn, user=role), text, environ)
        finally:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(f"reassign owned by {role} to current_user".encode())
                connection.execute(f"drop role {role}".encode())


PLACES = [
    ("UTF8", "LATIN1", "environment", EVERYTHING),
    ("UTF8", "EUC_KR", "role", EVERYTHING),
    ("UTF8", "SQL_ASCII", "environment", EVERYTHING),
]


@pytest.fixture(params=PLACES, ids=lambda given: "-".join(given[:3]).rstrip("-"))
def somewhere(postgres: Any, request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with place(postgres, *request.param) as made:
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
async def app(somewhere: Place) -> AsyncIterator[App]:
    app = App(somewhere.dsn)
    await app.apply_schema()
    yield app
    await app.close()


async def test_texts_arrive_as_they_were_in_every_encoding(
    app: App, somewhere: Place, procs: Any
) -> None:
    text = somewhere.text
    worker(procs, somewhere)
    jobs = [await app.enqueue(job("echo", text=text))]
    jobs += await app.enqueue_many([job("echo", text=text) for _ in range(50)])
    # it speaks what the role or the environment says
    async with await psycopg.AsyncConnection.connect(somewhere.dsn) as user:
        jobs.append(await app.enqueue(job("echo", text=text), on=user))
        jobs.append(await app.enqueue(job("echo", text=text, unique=text), on=user))
    for one in jobs:
        assert await one.wait(60) == {text: text}
    assert await (await app.enqueue(job("locked", name=text))).wait(30) == text

    failed = await app.enqueue(job("fail", codes=[ord(c) for c in text], max_attempts=1))
    record = await ended(app, failed.id, "discarded")
    assert f"ValueError: {text}" in record.last_error
    [ticked] = await until_async(
        lambda: app.jobs(task="tick", state="completed", limit=1), 30, "a tick"
    )
    assert ticked.result == text

    shown = await cli(somewhere, "jobs", "show", str(jobs[0].id), "--json")
    assert text in json.dumps(shown, ensure_ascii=False)
    assert f"each {text}" in [row["name"] for row in await cli(somewhere, "schedules", "--json")]
    transport = httpx.ASGITransport(dashboard(app, unprotected=True), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://leasework.test") as http:
        page = await http.get(f"/jobs/{failed.id}", headers={"accept": "text/html"})
    assert page.status_code == 200 and f"ValueError: {text}" in page.text


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_a_database_with_another_encoding_is_refused(postgres: Any, encoding: str) -> None:
    with servers.database(postgres.dsn, encoding) as dsn:
        arguments, env = ["schema", "apply"], {"LEASEWORK_DSN": dsn}
        done = await asyncio.to_thread(CliRunner().invoke, root, arguments, env=env)
        assert done.exit_code == 1 and encoding in done.stderr
        assert "Traceback" not in done.output
        with pytest.raises(UnsafeServer):
            async with App(dsn).node():
                pass


# -- helpers ---------------------------------------------------------------------------------------
def worker(procs: Any, there: Place) -> None:
    env = {"LEASEWORK_DSN": there.dsn, "TEXT": there.text, **there.environ}
    procs.start("-m", "leasework", "worker", "tests.e2e.apps.texts:app", name="worker", env=env)


def job(
    task: str, unique: str | None = None, max_attempts: int = 5, **arguments: Any
) -> JobRequest:
    payload = json.dumps(arguments, ensure_ascii=False)
    return job_request(task, payload, unique=unique, max_attempts=max_attempts)


async def ended(app: App, job: UUID, state: str) -> Any:
    async def reached() -> Any:
        record = await app.get(job)
        return record if record.state == state else None

    return await until_async(reached, 30, f"{job} to be {state}")


async def cli(there: Place, *arguments: str) -> Any:
    environ = {"LEASEWORK_DSN": there.dsn, "NO_COLOR": "1", **there.environ}
    done = await asyncio.to_thread(CliRunner().invoke, root, arguments, env=environ)
    assert done.exit_code == 0, f"{arguments}: {done.output}\n{done.exception!r}"
    return json.loads(done.stdout)
