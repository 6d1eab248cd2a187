"""A wake-up never fails what it follows: the queue of notifications is full, or the transaction is
prepared for a commit in two phases."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from leasework import App
from leasework.config import Polling
from leasework.errors import BadPayload, Unavailable
from leasework.model.job import JobRequest
from leasework.pg.connection.faults import translate
from tests.pg.drivers import url
from tests.support import postgres as servers
from tests.support.procs import Processes
from tests.support.requests import job_request
from tests.support.wait import until_async


@contextmanager
def stuck_listener(dsn: str) -> Iterator[Callable[[], float]]:
    """Another application's session that listens and stays in a transaction; what it does not
    read fills the queue. The answer: how full it is."""
    elsewhere = make_conninfo(dsn, dbname="postgres")
    with psycopg.connect(elsewhere) as idle, psycopg.connect(elsewhere, autocommit=True) as other:
        idle.execute("listen elsewhere")
        idle.commit()
        idle.execute("select 1")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            for number in range(1000):
                other.execute("select pg_notify('elsewhere', %s)", [f"{number}".ljust(7900, "x")])

        def full() -> float:
            row = other.execute("select pg_notification_queue_usage()").fetchone()
            assert row is not None
            return float(row[0])

        assert full() > 0.9
        yield full


@pytest.fixture
def small_queue(own_postgres: Any) -> Iterator[str]:
    """A database of a server whose queue of notifications is small: 17 has that, and newer."""
    with servers.database(own_postgres("18", {"max_notify_queue_pages": "64"}).dsn) as dsn:
        yield dsn


@pytest.fixture
async def app(small_queue: str) -> AsyncIterator[App]:
    app = App(small_queue)
    await app.apply_schema()
    yield app
    await app.close()


async def test_all_goes_on_while_the_queue_of_notifications_is_full(
    app: App, small_queue: str, procs: Processes
) -> None:
    env = {"LEASEWORK_DSN": small_queue, "TEXT": "tick"}
    arguments = ["-m", "leasework", "worker", "tests.e2e.apps.texts:app"]
    workers = [procs.start(*arguments, name=f"worker-{n}", env=env) for n in range(2)]
    for worker in workers:
        worker.wait_for("listen_works", 30)

    def echo(**options: Any) -> JobRequest:
        return job_request("echo", '{"text": "a"}', **options)

    with stuck_listener(small_queue):
        jobs = [await app.enqueue(echo()), await app.enqueue(echo(unique="one"))]
        jobs += await app.enqueue_many([echo() for _ in range(3)])
        async with await psycopg.AsyncConnection.connect(small_queue) as user:
            jobs.append(await app.enqueue(echo(), on=user))
            await user.execute(
                "select leasework.enqueue(%s)", ['{"task": "tick", "payload": {"text": "b"}}']
            )
        for job in jobs:
            await job.wait(30)
        workers[0].wait_for("listen_lost.*half full", 60)

        hold = await app.enqueue(job_request("hold", "{}"))
        state = await until_async(lambda: running(app, hold.id), 30, "the job to run")
        holder = next(w for w in workers if str(w.pid) in state.worker_id.split(":"))
        ticks = len(await app.jobs(task="tick", state="completed", limit=200))
        holder.kill(signal.SIGKILL)
        await until_async(lambda: running(app, hold.id, attempt=2), 60, "the job to run again")
        await until_async(lambda: more_than(app, ticks + 2), 60, "more ticks")
        assert await hold.cancel()
        await until_async(lambda: ended(app, hold.id), 30, "the job to be cancelled")
    survivor = next(w for w in workers if w is not holder)
    survivor.wait_for("listen_works", 90, count=2)


async def test_a_node_polls_soon_after_the_queue_of_notifications_is_full(
    app: App, small_queue: str
) -> None:
    """The heartbeat tells it, long before the next test notification is due."""
    app.configure(polling=Polling(listen_check=3600.0))

    @app.task(name="echo")
    async def echo() -> int:
        return 1

    async with app.node() as node:
        await until_async(lambda: node.wakeups.healthy, 30)
        with stuck_listener(small_queue):
            await until_async(lambda: not node.wakeups.healthy, 30, "the node to poll")
            assert await (await echo.enqueue()).wait(30) == 1
        await until_async(lambda: node.wakeups.healthy, 30, "notifications to arrive again")


@pytest.mark.parametrize("way", ["psycopg", "sqlalchemy", "sql"])
async def test_a_transaction_that_enqueued_can_be_prepared(own_postgres: Any, way: str) -> None:
    with servers.database(own_postgres(None, {"max_prepared_transactions": "5"}).dsn) as dsn:
        app = App(dsn)
        await app.apply_schema()

        @app.task(name="echo")
        async def echo(text: str) -> str:
            return text

        async with app.node():
            await until_async(lambda: asleep(dsn), 30, "a node to sleep")
            await enqueue_in_two_phases(app, echo, dsn, way)
            record = await until_async(lambda: done(app), 30, "the job to run")
            assert record.result == "a"
        await app.close()


async def enqueue_in_two_phases(app: App, echo: Any, dsn: str, way: str) -> None:
    if way == "sqlalchemy":
        with create_engine(url(dsn, "psycopg"), poolclass=NullPool).connect() as connection:
            transaction = connection.begin_twophase("it")
            app.sync.enqueue(echo.job(text="a"), on=connection)
            transaction.prepare()
            assert await app.jobs(task="echo") == []
            transaction.commit()
        return
    with psycopg.connect(dsn, autocommit=True) as user:
        user.execute("begin")
        if way == "psycopg":
            app.sync.enqueue(echo.job(text="a"), on=user)
        else:
            request = '{"task": "echo", "payload": {"text": "a"}}'
            user.execute("select leasework.enqueue(%s)", [request])
        user.execute("prepare transaction 'it'")
        assert await app.jobs(task="echo") == []
        user.execute("commit prepared 'it'")


async def test_a_full_queue_passes_and_a_value_that_is_too_big_does_not(small_queue: str) -> None:
    with psycopg.connect(small_queue, autocommit=True) as user:
        with stuck_listener(small_queue), pytest.raises(psycopg.Error) as full:
            user.execute("select pg_notify('here', 'a')")
        with pytest.raises(psycopg.Error) as big:
            user.execute("create table wide (t text unique)")
            words = "select string_agg(md5(n::text), '') from generate_series(1, 3000) n"
            user.execute(f"insert into wide {words}".encode())
    assert full.value.sqlstate == big.value.sqlstate == "54000"
    assert isinstance(translate(full.value, sent=True), Unavailable)
    assert isinstance(translate(big.value, sent=True), BadPayload)


@pytest.mark.parametrize("source", ["GetNewTransactionId", "GetNewMultiXactId"])
def test_a_server_without_transaction_ids_is_not_taken_for_a_value_that_is_too_big(
    source: str,
) -> None:
    class Refused(psycopg.errors.ProgramLimitExceeded):
        diag: Any = SimpleNamespace(source_function=source)

    error = translate(Refused("database is not accepting commands"), sent=True)
    assert isinstance(error, Unavailable) and "Vacuum" in error.do


# -- helpers ---------------------------------------------------------------------------------------
async def running(app: App, job: Any, attempt: int = 1) -> Any:
    record = await app.get(job)
    return record if record.state == "running" and record.attempt >= attempt else None


async def ended(app: App, job: Any) -> bool:
    return bool((await app.get(job)).completed_at)


async def done(app: App) -> Any:
    return next(iter(await app.jobs(task="echo", state="completed")), None)


async def more_than(app: App, count: int) -> bool:
    return len(await app.jobs(task="tick", state="completed", limit=200)) > count


async def asleep(dsn: str) -> bool:
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        cursor = await other.execute("select 1 from leasework.node where sleeping <> '{}'")
        return await cursor.fetchone() is not None
