"""What users call has connections of its own: a call that waits for a user's transaction keeps no
claim, outcome, duty or tick waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
import pytest

from leasework import App, Context
from leasework.app import home
from leasework.config import Settings
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]
BLOCKED = """
    select substring(application_name from 11) from pg_stat_activity
    where datname = current_database() and application_name in ('leasework user', 'leasework work')
    and wait_event_type = 'Lock'
"""
OPEN = """
    select substring(application_name from 11), count(*)::int from pg_stat_activity
    where datname = current_database() and application_name like 'leasework %' group by 1
"""
CUT = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name = 'leasework user'
"""


@pytest.fixture
async def key(migrated: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """In a transaction that has enqueued a job with the unique key ``one``, and is open."""
    async with await psycopg.AsyncConnection.connect(migrated) as connection:
        job = '{"task": "hello", "unique": "one"}'
        await connection.execute("select leasework.enqueue(%s::jsonb)", [job])
        yield connection


async def opened(sql: Sql) -> dict[str, int]:
    return dict(await sql(OPEN))


async def blocked(sql: Sql) -> list[str]:
    """The kinds of the connections that wait for a lock."""
    return [kind for (kind,) in await sql(BLOCKED)]


async def test_jobs_are_listed_while_enqueues_wait_for_a_users_transaction(
    app: App, sql: Sql, key: psycopg.AsyncConnection
):
    @app.task(name="hello")
    async def hello() -> None: ...

    most = app.settings.user_connections - 1
    again = hello.using(unique="one").job()
    waiting = [asyncio.ensure_future(app.enqueue(again)) for _ in range(most)]

    async def all_wait() -> bool:
        return len(await blocked(sql)) == most

    await until_async(all_wait, 30, "all enqueues to wait")
    other = await sql("select id from leasework.enqueue(%s::jsonb)", ['{"task": "hello"}'])
    assert [(job.id,) for job in await app.jobs()] == other
    assert await opened(sql) == {"user": most, "people": 1}
    assert not any(task.done() for task in waiting)
    await key.rollback()
    await asyncio.gather(*waiting)


def test_a_statement_of_a_report_ends_before_prometheus_gives_up(migrated: str) -> None:
    for given, limit in ((60.0, 5.0), (2.0, 2.0)):
        stores = home.Stores(Settings(dsn=migrated, call_timeout=given))
        assert stores.people.pool.call_timeout == limit < 10
        assert stores.users.pool.call_timeout == given


@pytest.mark.parametrize("by", ["the application", "a handler"])
async def test_jobs_and_ticks_run_while_enqueues_wait_for_a_users_transaction(
    app: App, sql: Sql, key: psycopg.AsyncConnection, by: str
):
    ran: list[str] = []

    @app.task(name="hello")
    async def hello(ctx: Context) -> None:
        ran.append("hello")

    @app.task(name="outer")
    async def outer(ctx: Context) -> None:
        await app.enqueue(hello.using(unique="one").job())

    @app.every(seconds=1, name="each second")
    @app.task(name="tick")
    async def tick(ctx: Context) -> None:
        ran.append("tick")

    async with app.node():
        job = outer.job() if by == "a handler" else hello.using(unique="one").job()
        waiting = [asyncio.ensure_future(app.enqueue(job)) for _ in range(2)]
        found = await until_async(lambda: blocked(sql), 30, "an enqueue to wait")
        assert set(found) == {"user"}
        ran.clear()
        await sql("select leasework.enqueue(%s::jsonb)", ['{"task": "hello"}'])
        await until_async(lambda: "hello" in ran and ran.count("tick") > 1, 30, "jobs and ticks")
        await until_async(lambda: blocked(sql), 10, "it to wait still")
        await key.rollback()
        await asyncio.gather(*waiting)


async def test_calls_that_wait_for_other_transactions_leave_a_connection_to_the_others(
    app: App, sql: Sql, key: psycopg.AsyncConnection
):
    @app.task(name="hello")
    async def hello() -> None: ...

    calls = [asyncio.ensure_future(app.enqueue(hello.using(unique="one").job())) for _ in range(10)]
    await until_async(lambda: blocked_is(sql, 2), 30, "two enqueues to wait")
    await asyncio.gather(*[app.enqueue(hello.job()) for _ in range(10)])
    assert await blocked_is(sql, 2) and not any(call.done() for call in calls)
    assert await opened(sql) == {"user": 3}
    await key.rollback()
    assert [job.created for job in await asyncio.gather(*calls)].count(True) == 1


async def blocked_is(sql: Sql, count: int) -> bool:
    return len(await blocked(sql)) == count


async def test_a_connection_for_calls_is_closed_when_it_is_idle_and_opened_again(
    app: App, sql: Sql, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(home, "ON_DEMAND_SECONDS", 2.0)

    @app.task(name="hello")
    async def hello() -> None: ...

    async with app.node():
        job = await app.enqueue(hello.job())
        await job.wait(60)
        protocol = {"guard": 1, "work": 1}

        async def is_open() -> bool:
            await job.get()  # it may have closed meanwhile
            return await opened(sql) == {**protocol, "user": 1}

        await until_async(is_open, 30)  # others come and go

        async def is_closed() -> bool:
            return await opened(sql) == protocol

        await until_async(is_closed, 30, "the idle connection to be closed")
        await (await app.enqueue(hello.job())).wait(60)


async def test_a_wait_for_a_job_goes_on_when_its_connection_is_cut(app: App, sql: Sql):
    @app.task(name="hello")
    async def hello() -> str:
        return "hi"

    job = await app.enqueue(hello.job())
    waiting = asyncio.ensure_future(job.wait(60))
    for _ in range(20):
        await until_async(lambda: sql(CUT), 30, "a connection to cut")
    assert not waiting.done()
    async with app.node():
        assert await waiting == "hi"
