"""Rows of leaders and locks that somebody deletes by hand while their holder lives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress

import pytest

from leasework import App
from leasework.errors import LostLease, QueryFailed
from tests.services.several import TIMES, Database, several_apps
from tests.support.wait import until_async

LOOK_SECONDS = TIMES.jitter + 1.5
"""A candidate that sees a free row has taken it by then."""


@pytest.fixture
async def database(dsn: str, migrated: str) -> AsyncIterator[Database]:
    async with several_apps(dsn, migrated) as database:
        yield database


async def hold_still(app: App) -> threading.Event:
    """The guard of this application asks nothing until the event is set."""
    light = app.desk._light
    assert light
    still, go_on = threading.Event(), threading.Event()

    def stand() -> None:
        still.set()
        go_on.wait(30)

    light.guard.loop.call_soon_threadsafe(stand)
    await until_async(still.is_set, 30)
    return go_on


@pytest.mark.parametrize("terms", ["known", "deleted, too"])
async def test_nobody_takes_what_was_deleted_before_its_holder_can_have_noticed(database, terms):
    """It believes for as long as its lease, and goes on with it when it asks in time."""
    one, two = database.app(recover_within=30), database.app()
    row = "select token, node from leasework.leader where name = 'leader:engine'"
    # without the record of its term nothing says whose it was: its next renewal may be refused
    with nullcontext() if terms == "known" else suppress(LostLease):
        await _believe_and_delete(database, one, two, row, terms)
    remade = await until_async(lambda: database.events("lease_remade"), 30)
    assert {event["name"] for event in remade} <= {"leader:engine", "lock:x"}


async def _believe_and_delete(database: Database, one: App, two: App, row: str, terms: str) -> None:
    async with one.leader("engine") as lead, one.lock("x") as lock:
        term = await lead.wait(timeout=30)
        async with two.leader("engine") as other:
            waiter = asyncio.ensure_future(two.lock("x").acquire())
            await until_async(lambda: database.sql("select 1 from leasework.bid"))
            held = await database.sql(row)
            go_on = await hold_still(one)
            if terms != "known":
                await database.sql("delete from leasework.term")
            await database.sql("delete from leasework.leader")
            await until_async(
                lambda: database.sql("select 1 from leasework.leader having count(*) = 2"), 30
            )
            loop = asyncio.get_running_loop()
            until = loop.time() + LOOK_SECONDS
            while loop.time() < until:
                assert not (other.is_leader and lead.is_leader), "two believe"
                assert not (waiter.done() and lock.held), "two believe"
                await asyncio.sleep(0.01)
            assert lead.is_leader and lock.held, "it believed all the time"
            go_on.set()
            if terms == "known":
                assert await database.sql(row) == held
                await until_async(
                    lambda: database.sql(
                        "select 1 from leasework.leader where renewed_at is not null"
                    ),
                    30,
                )
                assert lead.is_leader and lead.term == term, "it goes on"
        waiter.cancel()
        await asyncio.wait([waiter])


async def test_a_fence_that_was_deleted_is_made_again_and_one_that_is_ahead_is_reported(database):
    """No token fits a fence that is ahead: who does not want to wait hears of it at once."""
    app = database.app()
    async with app.lock("x"):
        pass
    await database.sql("delete from leasework.fence")
    async with asyncio.timeout(30), app.lock("x", timeout=0) as lock:
        assert lock.token == 2
    [remade] = await until_async(lambda: database.events("lease_remade"), 30)
    assert remade["name"] == "lock:x"
    await database.sql("update leasework.fence set token = 100")
    async with asyncio.timeout(30):
        with pytest.raises(QueryFailed, match="missing or ahead"):
            await app.lock("x").try_acquire()
    await until_async(lambda: database.events("service_failed"), 30)
