"""Locks whose next holder gives up, and locks during a failover."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from tests.services.several import Database, several_apps, waiting
from tests.support.wait import until_async


@pytest.fixture
async def database(dsn: str, migrated: str) -> AsyncIterator[Database]:
    async with several_apps(dsn, migrated) as database:
        yield database


async def _none(database: Database, text: str) -> bool:
    return not await database.sql(text)


async def test_a_server_that_is_read_only_for_a_while_refuses_nobody_who_waits(database):
    """As the old primary, or a standby that is not yet promoted, during a failover."""
    app = database.app()
    [(name,)] = await database.sql("select current_database()")
    sessions = "select sessions from pg_stat_database where datname = current_database()"
    end = (
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name = 'leasework lease'"
    )
    async with app.lock("x"):
        await database.sql(f'alter database "{name}" set default_transaction_read_only = on')
        await database.sql(end)
        [(before,)] = await database.sql(sessions)
        lock = app.lock("y")
        acquiring = asyncio.create_task(lock.acquire())

        async def tried() -> bool:
            return acquiring.done() or (await database.sql(sessions))[0][0] > before + 1

        await until_async(tried)
        assert not acquiring.done()
        await database.sql(f'alter database "{name}" reset default_transaction_read_only')
        await acquiring
        await lock.release()


async def test_a_lock_that_one_bid_should_have_passed_to_the_next_is_free_if_that_one_gives_up(
    database,
):
    app = database.app()
    first = app.lock("x")
    async with app.lock("another"):  # else the process leaves when nobody waits any more
        await first.acquire()
        async with await psycopg.AsyncConnection.connect(database.dsn) as user:
            # a transaction that verified the old token is still open
            await user.execute("select 1 from leasework.fence where name = 'lock:x' for share")
            second = asyncio.create_task(app.lock("x").acquire())
            await until_async(lambda: waiting(app, "lock:x") == 1)
            await first.release()
            waits = (
                "select 1 from pg_stat_activity where datname = current_database()"
                " and application_name = 'leasework lease' and wait_event_type = 'Lock'"
            )
            await until_async(lambda: database.sql(waits), what="its attempt")
            await until_async(lambda: _none(database, waits), what="its pause", every=0.005)
            second.cancel()
            await asyncio.wait([second])
        free = "select 1 from leasework.leader where name = 'lock:x' and node is null"
        await until_async(lambda: database.sql(free))


REFUSE = """
create function refuse() returns trigger language plpgsql as $$
begin raise 'not now'; end $$;
create trigger refuse before update on leasework.{table} for each row
when (new.{changed}) execute function refuse()
"""
FREE = "select 1 from leasework.leader where name = 'lock:x' and node is null"


async def test_a_lock_is_free_although_its_release_failed(database):
    app = database.app()
    async with app.lock("another"):
        lock = app.lock("x")
        await lock.acquire()
        await database.sql(REFUSE.format(table="leader", changed="node is null"))
        await lock.release()
        assert not await database.sql(FREE)
        await database.sql("drop function refuse cascade")
        await until_async(lambda: database.sql(FREE))


async def test_a_lock_is_free_if_the_next_of_its_process_could_not_have_it_and_gives_up(database):
    app = database.app()
    first = app.lock("x")
    async with app.lock("another"):
        await first.acquire()
        second = asyncio.create_task(app.lock("x").acquire())
        await until_async(lambda: waiting(app, "lock:x") == 1)
        await database.sql(REFUSE.format(table="fence", changed="name = 'lock:x'"))
        await first.release()
        await until_async(lambda: database.events("service_failed"), what="its attempt")
        second.cancel()
        await asyncio.wait([second])
        await database.sql("drop function refuse cascade")
        await until_async(lambda: database.sql(FREE))
