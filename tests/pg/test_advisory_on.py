"""``app.advisory_lock(..., on=…)``: inside the user's transaction, on every driver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from leasework import App
from leasework.errors import Conflict, LockNotAcquired, WrongConnection
from leasework.model.lock_key import key_of_name
from tests.pg.drivers import ALL, SYNC, Open, Way, done
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]
HOLDERS = "select count(*) from leasework.locks where name = 'nightly' and granted"
WAITERS = "select pid from leasework.locks where name = 'nightly' and not granted"


async def test_on_every_driver_it_is_held_until_the_end_and_a_wait_in_vain_leaves_that_whole(
    app: App, migrated: str, sql: Sql
) -> None:
    await sql("create table effect (n int)")
    for open_way in ALL.values():
        await holds(app, migrated, sql, open_way)


async def holds(app: App, migrated: str, sql: Sql, open_way: Open) -> None:
    await sql("truncate effect")
    async with open_way(migrated) as way:
        assert await app.advisory_lock("nightly", on=way.connection).acquire()
        assert await sql(HOLDERS) == [(1,)], "seen with its name before the commit"
        assert not await app.advisory_lock("nightly").acquire()
        async with app.advisory_lock(("order", 7), on=way.connection, shared=True):
            pass
        await done(way.commit())
    assert await sql(HOLDERS) == [(0,)]
    async with open_way(migrated) as way, app.advisory_lock("nightly"):
        await way.effect(1)
        lock = app.advisory_lock("nightly", on=way.connection, timeout=0.2)
        with pytest.raises(LockNotAcquired, match=r"for 0\.2 s"):
            async with lock:
                pass
        assert not lock.held and lock.pid is None
        await way.effect(2)
        await done(way.commit())
    assert await sql("select n from effect order by n") == [(1,), (2,)]


async def test_a_wait_on_the_users_connection_ends_with_the_lock(
    app: App, migrated: str, sql: Sql
) -> None:
    async with await psycopg.AsyncConnection.connect(migrated) as mine:
        await mine.execute("set local lock_timeout = '7s'")
        async with app.advisory_lock("nightly"):
            waiting = asyncio.create_task(
                app.advisory_lock("nightly", on=mine, timeout=30).acquire()
            )
            await until_async(lambda: sql(WAITERS), 30)
        assert await waiting
        cursor = await mine.execute("show lock_timeout")
        assert await cursor.fetchone() == ("7s",), "the user's own setting is back"


async def test_threads_lock_on_their_own_connections(app: App, migrated: str) -> None:
    def work(way: Way) -> list[Any]:
        with (
            psycopg.connect(migrated, autocommit=True) as other,
            app.sync.advisory_lock("nightly", on=way.connection, timeout=5) as lock,
        ):
            held = other.execute(HOLDERS.encode()).fetchone()
            way.rollback()
            return [lock.held, held, other.execute(HOLDERS.encode()).fetchone()]

    for open_way in SYNC.values():
        async with open_way(migrated) as way:
            assert await asyncio.to_thread(work, way) == [False, (1,), (0,)]


async def test_what_is_no_transaction_is_refused(app: App, migrated: str) -> None:
    async with await psycopg.AsyncConnection.connect(migrated, autocommit=True) as plain:
        with pytest.raises(WrongConnection, match="autocommit"):
            await app.advisory_lock("nightly", on=plain).acquire()
        with pytest.raises(WrongConnection, match="autocommit"):
            await app.advisory_lock("nightly", on=plain, timeout=1).acquire()
    with pytest.raises(WrongConnection, match="cannot use this"):
        await app.advisory_lock("nightly", on=object(), timeout=1).acquire()
    with pytest.raises(WrongConnection, match="closed"):
        await app.advisory_lock("nightly", on=plain).acquire()


async def test_two_transactions_that_wait_for_each_other_are_told(
    app: App, migrated: str, sql: Sql
) -> None:
    async with (
        await psycopg.AsyncConnection.connect(migrated) as one,
        await psycopg.AsyncConnection.connect(migrated) as two,
    ):
        assert await app.advisory_lock("nightly", on=one).acquire()
        assert await app.advisory_lock("other", on=two).acquire()
        first = asyncio.create_task(app.advisory_lock("other", on=one, timeout=60).acquire())
        second = asyncio.create_task(app.advisory_lock("nightly", on=two, timeout=60).acquire())
        ended = await asyncio.gather(first, second, return_exceptions=True)
        assert sorted(type(end).__name__ for end in ended) in (
            ["Conflict", "bool"],
            ["Conflict", "Conflict"],
        )
        [conflict, *_] = [end for end in ended if isinstance(end, Conflict)]
        assert "deadlock" in str(conflict)
        await one.rollback()
        await two.rollback()


async def test_the_locks_of_names_are_the_locks_of_hand_written_sql(
    app: App, migrated: str
) -> None:
    async with await psycopg.AsyncConnection.connect(migrated) as mine:
        query = "select pg_try_advisory_xact_lock(leasework.lock_key('nightly'))"
        assert await (await mine.execute(query.encode())).fetchone() == (True,)
        assert not await app.advisory_lock("nightly").acquire()
        assert not await app.advisory_lock(key_of_name("nightly")).acquire()
