"""Jobs that a generator gives: all of them or none, each once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from leasework import App, Context
from leasework.config import Settings
from leasework.errors import Unavailable
from leasework.model.job import JobRequest
from leasework.pg.connection.session import Session
from leasework.tuning import Tuning
from tests.pg.bench import copy_line

COUNT = "select count(*), count(distinct payload) from leasework.job"


@pytest.fixture
def task(app: App) -> Any:
    @app.task
    async def noted(ctx: Context, n: int) -> None:
        """Never run here."""

    return noted


class FalseError(Exception):
    def __bool__(self) -> bool:
        return False


ERRORS = [LookupError("no more"), psycopg.OperationalError("not yours"), Unavailable("not yours"),
          FalseError()]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=repr)
async def test_what_it_raises_is_raised_and_nothing_is_enqueued(
    app: App, task: Any, sql: Any, error: Exception
):
    taken = []

    def broken() -> Iterator[JobRequest]:
        for n in range(1700):
            taken.append(n)
            yield task.job(n=n)
        raise error

    await app.jobs(limit=1)  # connected
    store = await app.store()
    before = store.pool.statements
    with pytest.raises(type(error)) as raised:
        await app.enqueue_many(broken())
    assert raised.value is error
    assert len(taken) == 1700
    assert store.pool.statements == before
    assert await sql(COUNT) == [(0, 0)]
    await app.enqueue_many(task.job(n=n) for n in range(30))  # no turn was lost
    assert await sql(COUNT) == [(30, 30)]


async def test_one_that_cannot_be_copied_changes_the_way_for_all(app: App, task: Any, sql: Any):
    def mixed() -> Iterator[JobRequest]:
        for n in range(1200):
            yield task.using(unique="one").job(n=n) if n in (900, 1100) else task.job(n=n)

    made = await app.enqueue_many(mixed())
    assert await sql(COUNT) == [(1199, 1199)]
    assert [n for n, job in enumerate(made) if not job.created] == [1100]
    assert made[1100].id == made[900].id


def test_without_a_loop_it_runs_in_the_thread_of_its_caller(app: App, task: Any):
    threads = set()

    def jobs() -> Iterator[JobRequest]:
        for n in range(600):
            threads.add(threading.get_ident())
            yield task.job(n=n)

    assert len(app.sync.enqueue_many(jobs())) == 600
    assert threads == {threading.get_ident()}


async def test_many_rows_have_longer_than_one_statement_has(
    direct_dsn: str, migrated: str, sql: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Tuning, "line_seconds", 0.005)  # enough on a busy machine

    def lines() -> Iterator[str]:
        for n in range(20_000):
            if n % 2000 == 0:
                time.sleep(0.15)
            yield copy_line()

    session = await Session.open(Settings(dsn=direct_dsn), "work")
    began = time.monotonic()
    await session.copy("job/copy", lines(), 1.0, 20_000)
    assert time.monotonic() - began > 1.2
    assert await sql("select count(*) from leasework.job") == [(20_000,)]
    await session.close()
