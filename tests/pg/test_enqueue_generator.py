"""Jobs that a generator gives while they are copied: all of them or none, each once."""

from __future__ import annotations

import asyncio
import decimal
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
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
BLOCKS_SECONDS = 0.4
MARK: ContextVar[str] = ContextVar("MARK")
COPYING = """
    select pid from pg_stat_activity
    where application_name = 'leasework user' and query ilike 'copy%' and state = 'active'
"""


@pytest.fixture
def task(app: App) -> Any:
    @app.task
    async def noted(ctx: Context, n: int) -> None:
        """Never run here."""

    return noted


@pytest.fixture
def look(direct_dsn: str) -> Iterator[Callable[[str], list[Any]]]:
    """Another session, which a generator can use."""
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        yield lambda text: connection.execute(text.encode()).fetchall()


async def test_they_are_made_while_those_before_are_copied(
    app: App, task: Any, look: Any, sql: Any
):
    copying = []

    def jobs() -> Iterator[JobRequest]:
        for n in range(3000):
            if n in (0, 1500):
                copying.append(len(look(COPYING)))
            yield task.job(n=n)

    made = await app.enqueue_many(jobs())
    assert copying == [0, 1]
    assert await sql(COUNT) == [(3000, 3000)]
    assert [job.created for job in made] == [True] * 3000
    assert len(set(made)) == len({job.id for job in made}) == 3000
    for n in (0, 1700):
        record = await made[n].get()
        assert (record.id, record.payload) == (made[n].id, {"n": n})
    assert repr(made[0]) == f"Job(id={made[0].id!r}, created=True)"


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
    before = store.statements
    with pytest.raises(type(error)) as raised:
        await app.enqueue_many(broken())
    assert raised.value is error
    assert len(taken) == 1700
    assert store.statements == before + 1  # it was not tried again
    assert await sql(COUNT) == [(0, 0)]
    await app.enqueue_many(task.job(n=n) for n in range(30))  # no turn was lost
    assert await sql(COUNT) == [(30, 30)]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
async def test_nor_when_it_had_been_too_slow_for_a_transaction(
    app: App, task: Any, sql: Any, error: Exception
):
    def broken() -> Iterator[JobRequest]:
        for n in range(1700):
            if n == 700:
                time.sleep(BLOCKS_SECONDS * 2)
            yield task.job(n=n)
        raise error

    with pytest.raises(type(error)) as raised:
        await app.enqueue_many(broken())
    assert raised.value is error
    assert error.__context__ is None
    assert await sql(COUNT) == [(0, 0)]


@pytest.mark.parametrize("close", [True, False])
async def test_a_caller_who_is_cancelled_leaves_nothing_half_done(
    app: App, task: Any, sql: Any, close: bool
):
    taken = []

    def jobs() -> Iterator[JobRequest]:
        for n in range(20_000):
            taken.append(n)
            if n == 1600:
                caller.cancel()
            yield task.job(n=n)

    given = jobs()
    caller = asyncio.ensure_future(app.enqueue_many(given))
    with pytest.raises(asyncio.CancelledError):
        await caller
    there = len(taken)
    if close:
        given.close()
    await app.enqueue_many(task.job(n=n) for n in range(30))
    await app.close()  # whatever was under way has ended
    assert 1600 < len(taken) == there < 20_000
    assert await sql(COUNT) == [(30, 30)]


async def test_it_runs_in_one_context_which_is_not_the_callers(app: App, task: Any):
    def jobs() -> Iterator[JobRequest]:
        token = MARK.set("inside")
        with decimal.localcontext(prec=3):
            for n in range(1700):
                assert (MARK.get(), decimal.getcontext().prec) == ("inside", 3)
                yield task.job(n=n)
        MARK.reset(token)

    assert len(await app.enqueue_many(jobs())) == 1700
    assert (MARK.get("outside"), decimal.getcontext().prec) == ("outside", 28)


async def test_one_that_cannot_be_copied_changes_the_way_for_all(app: App, task: Any, sql: Any):
    def mixed() -> Iterator[JobRequest]:
        for n in range(1200):
            yield task.using(unique="one").job(n=n) if n in (900, 1100) else task.job(n=n)

    made = await app.enqueue_many(mixed())
    assert await sql(COUNT) == [(1199, 1199)]
    assert [n for n, job in enumerate(made) if not job.created] == [1100]
    assert made[1100].id == made[900].id


async def test_no_transaction_is_open_while_a_slow_one_is_waited_for(
    app: App, task: Any, look: Any, sql: Any
):
    open_at = []

    def slow() -> Iterator[JobRequest]:
        for n in range(2500):
            if n % 500 == 250:
                time.sleep(BLOCKS_SECONDS)  # as a file or another service may
                open_at.append(len(look(COPYING)))
            yield task.job(n=n)

    await app.enqueue_many(slow())
    assert open_at == [0, 1, 0, 0, 0]
    assert await sql(COUNT) == [(2500, 2500)]


async def test_a_connection_that_is_lost_half_way_loses_and_doubles_nothing(
    app: App, task: Any, look: Any, sql: Any
):
    killed = []

    def jobs() -> Iterator[JobRequest]:
        for n in range(3000):
            if n == 1500:
                killed.extend(look(f"select pg_terminate_backend(pid) from ({COPYING}) c"))
            yield task.job(n=n)

    made = await app.enqueue_many(jobs())
    assert killed == [(True,)]
    assert await sql(COUNT) == [(3000, 3000)]
    assert len({job.id for job in made}) == 3000


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
