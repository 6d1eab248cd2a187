"""Connections that are lost, on every event loop: no call waits longer than its time, and a loop
that says nothing of it does no harm. uvloop calls once for a connection that was reset, when only
the server's last words were read, and never again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from leasework.config import Settings
from leasework.errors import LeaseworkError, Unavailable
from leasework.pg.connection.pool import Pool
from leasework.pg.connection.session import Session
from tests.pg.bench import copy_line
from tests.support.relay import Relay
from tests.support.wait import until_async

pytestmark = pytest.mark.every_loop

WAKE = "job/wake", {"queues": ["default"]}
LONG = 600.0
"""The time of a call that has to end for another reason."""


@pytest.fixture
def relay(migrated: str) -> Iterator[Relay]:
    with Relay(migrated) as relay:
        yield relay


@pytest.fixture
async def pool(relay: Relay) -> AsyncIterator[Pool]:
    pool = Pool(Settings(dsn=relay.dsn, call_timeout=LONG), "work")
    await pool.fetch(*WAKE)
    yield pool
    async with asyncio.timeout(60):
        await pool.close()


def session_of(pool: Pool) -> Session:
    (session,) = pool._open
    return session


async def under_way(call: Any) -> asyncio.Future[Any]:
    """The call, which has been sent."""
    future = asyncio.ensure_future(call)
    for _ in range(5):
        await asyncio.sleep(0)
    return future


def fetch(pool: Pool, timeout: float) -> Any:
    return pool.fetch(*WAKE, timeout)


def guarded(pool: Pool, timeout: float) -> Any:
    return session_of(pool).fetch(*WAKE, timeout)


def copy(pool: Pool, timeout: float) -> Any:
    return session_of(pool).copy("job/copy", [copy_line()], timeout, 1)


CALLS = pytest.mark.parametrize("call", [fetch, guarded, copy])


@CALLS
async def test_a_call_on_a_connection_that_was_reset_ends_long_before_its_time(
    pool: Pool, relay: Relay, call: Any
):
    relay.hold()
    waiting = await under_way(call(pool, LONG))
    relay.reset()
    with pytest.raises(Unavailable):
        async with asyncio.timeout(30):
            await waiting
    assert not session_of(pool).usable
    await pool.fetch(*WAKE)


@CALLS
async def test_its_time_ends_a_call_although_the_loop_says_nothing(
    pool: Pool, relay: Relay, call: Any
):
    relay.hold()
    waiting = await under_way(call(pool, 0.3))  # less than until the first look
    relay.reset()
    with pytest.raises(Unavailable):
        async with asyncio.timeout(30):
            await waiting
    assert not session_of(pool).usable


async def test_its_time_ends_a_call_that_is_never_answered_and_says_so_once(
    pool: Pool, relay: Relay
):
    relay.silence()
    ended: list[bool] = []
    session = session_of(pool)
    with pytest.raises(Unavailable, match=r"0\.3 s") as caught:
        async with asyncio.timeout(30):
            await session.fetch_fast(*WAKE, 0.3, lambda: ended.append(True))
    relay.reset()
    session.shut()
    await session.close()
    for _ in range(20):
        await asyncio.sleep(0)
    assert ended == [True] and caught.value.sent


@pytest.mark.parametrize("failed", [False, True], ids=["after an answer", "after an error"])
async def test_a_connection_that_ends_while_it_is_idle_is_not_used_again(
    migrated: str, failed: bool
):
    pool = Pool(Settings(dsn=migrated), "work")
    await pool.fetch(*WAKE)
    session = session_of(pool)
    if failed:
        with suppress(LeaseworkError):
            await pool.fetch("job/wake", {"queues": "no array"})
    async with await psycopg.AsyncConnection.connect(migrated, autocommit=True) as other:
        pid = session.connection.info.backend_pid
        await other.execute("select pg_terminate_backend(%s)", [pid])
    await until_async(lambda: not session.usable, 30, "the idle connection to be known as lost")
    await pool.fetch(*WAKE)  # no error: a new one was opened
    assert session_of(pool) is not session
    await pool.close()


async def test_opening_a_connection_ends_in_its_time_when_the_server_resets_it(relay: Relay):
    relay.silence()
    opening = asyncio.ensure_future(Session.open(Settings(dsn=relay.dsn), "work", 1.0))
    await until_async(lambda: relay._client_sides, 30, "the connection to reach the relay")
    relay.hold()
    relay.reset()
    with pytest.raises(Unavailable):
        async with asyncio.timeout(30):
            await opening


async def test_a_statement_that_is_cancelled_on_a_connection_that_was_reset_ends(
    pool: Pool, relay: Relay
):
    relay.hold()
    connection = session_of(pool).connection
    waiting = await under_way(connection.execute("select 1"))
    relay.reset()
    waiting.cancel()
    with pytest.raises((asyncio.CancelledError, psycopg.Error)):
        async with asyncio.timeout(60):
            await waiting
    assert not connection.usable


async def test_a_transaction_that_lost_its_connection_between_statements_is_not_called_committed(
    migrated: str, sql: Any
) -> None:
    session = await Session.open(Settings(dsn=migrated), "work", LONG)
    connection = session.connection
    ended = "select 1 where not exists (select 1 from pg_stat_activity where pid = %s)"
    with pytest.raises(Unavailable):
        async with session.guarded(LONG), connection.transaction():
            await connection.execute("create table public.lost (n int)")
            pid = session.facts.backend_pid
            await sql("select pg_terminate_backend(%s)", [pid])
            await until_async(lambda: sql(ended, [pid]), 60, "the backend to end")
            for _ in range(20):  # the event loop hears of the end
                await asyncio.sleep(0.01)
    assert await sql("select to_regclass('lost')") == [(None,)]
    await session.close()
