"""What waits, ends in vain, is refused or lost in the four APIs of coordination: leaders, lease
locks, advisory locks, deadlines. What each of them does when all is well is tested elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leasework import App, Deadline
from leasework.errors import (
    BadDeadline,
    ConfigError,
    DeadlineNotFound,
    LockNotAcquired,
    LostLease,
    LostLock,
    Unavailable,
)
from tests.services.several import Database, several_apps
from tests.support.relay import Relay
from tests.support.wait import forever, until_async

KEY = 0x52494F4C


@pytest.fixture
async def database(migrated: str) -> AsyncIterator[Database]:
    async with several_apps(migrated, migrated) as database:
        yield database


# -- no server -------------------------------------------------------------------------------------
def in_thread(enter: Any) -> Callable[[], Awaitable[Any]]:
    return lambda: asyncio.to_thread(enter)


async def test_without_a_server_each_of_them_says_so_and_none_waits_for_ever(tmp_path: Path):
    app = App(f"host={tmp_path} dbname=nowhere", recover_within=9, call_timeout=1)
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "lock": lambda: app.lock("x").acquire(),
        "try": lambda: app.lock("x").try_acquire(),
        "leader": lambda: app.leader("engine").__aenter__(),
        "lock in a thread": in_thread(lambda: app.sync.lock("x").acquire()),
        "leader in a thread": in_thread(lambda: app.sync.leader("engine").__enter__()),
        "advisory": lambda: app.advisory_lock("x").acquire(),
        "advisory, session": lambda: app.advisory_lock("x", scope="session", timeout=1).acquire(),
        "advisory in a thread": in_thread(lambda: app.sync.advisory_lock("x").acquire()),
        "deadline": lambda: app.deadline("books", due=5, on_breach="page"),
        "deadline, found": lambda: app.deadline("books"),
    }
    app.task(name="page")(lambda breach: None)
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*[call() for call in calls.values()], return_exceptions=True)
    told = {name: type(answer) for name, answer in zip(calls, answers, strict=True)}
    assert told == dict.fromkeys(calls, Unavailable)
    await app.close()


async def test_on_a_link_that_falls_silent_all_is_lost_in_time_and_giving_up_does_not_hang(
    database, direct_dsn
):
    with Relay(direct_dsn) as link:
        app = App(link.dsn, recover_within=9, call_timeout=1)
        database.apps.append(app)
        lead, lock = app.leader("engine"), app.lock("x")
        advisory = app.advisory_lock("y", scope="session", cancel=False)
        await lead.__aenter__()
        await lead.wait(timeout=30)
        await lock.acquire()
        assert await advisory.acquire()
        began = asyncio.get_running_loop().time()
        link.silence()
        async with asyncio.timeout(30):
            await asyncio.gather(lead.lost.wait(), lock.lost.wait(), advisory.lost.wait())
            took = asyncio.get_running_loop().time() - began
            print(f"\nMEASURED all is lost {took:.2f} s after the link fell silent")
            assert not lead.is_leader and not lock.held and not advisory.held
            with pytest.raises(TimeoutError):
                await lead.wait(timeout=0.1)
            with pytest.raises(LostLease):
                async with lead.while_leading():
                    pytest.fail("it does not lead")
            with pytest.raises(LostLock):
                await advisory.verify()
            with pytest.raises(LostLock):
                await advisory.release()
            with pytest.raises(LockNotAcquired):
                await app.lock("z").acquire(timeout=0.2)
            await lock.release()
            await lead.__aexit__(None, None, None)


# -- leaders ---------------------------------------------------------------------------------------
async def test_a_leader_is_used_once_at_a_time_and_what_makes_no_sense_is_refused(database):
    app = database.app()
    lead, other = app.leader("engine"), app.leader("other")
    with pytest.raises(LostLease, match="never held"):
        async with lead.while_leading():
            pytest.fail("it does not lead")
    async with lead:
        with pytest.raises(ConfigError, match="in use"):
            await lead.__aenter__()
        with pytest.raises(ConfigError, match="timeout"):
            await lead.wait(timeout=-1)
        await lead.wait(timeout=30)
        with pytest.raises(TimeoutError):  # the caller's, and not a loss
            async with asyncio.timeout(0.1), lead.leading():
                await forever()
        assert lead.is_leader
    with pytest.raises(TimeoutError):
        await other.wait(timeout=0.05)

    def in_a_thread() -> None:
        standing = app.sync.leader("engine")
        with standing:
            with pytest.raises(ConfigError, match="in use"):
                standing.__enter__()
            with pytest.raises(ConfigError, match="timeout"):
                standing.wait(-1)
            assert standing.wait(30)
        with pytest.raises(LostLease), psycopg.connect(database.dsn) as user:
            standing.verify(user)

    await asyncio.to_thread(in_a_thread)


async def test_a_leader_outlives_the_node_that_carried_it_and_a_waiter_for_a_lock_is_told(database):
    app, other = database.app(), database.app()
    async with other.lock("x"):
        node = app.node()
        await node.__aenter__()
        async with app.leader("engine") as lead:
            term = await lead.wait(timeout=30)
            lost = lead.lost
            waiter = asyncio.ensure_future(app.lock("x").acquire())
            await until_async(lambda: database.sql("select 1 from leasework.bid"), 30)
            await node.__aexit__(None, None, None)
            assert lost.is_set()
            with pytest.raises(Unavailable, match="stopping"):
                await waiter
            assert await lead.wait(timeout=30) > term, "on a light node"
            assert app.desk._light is not None


async def test_a_lease_that_is_lost_while_the_advisory_lock_is_waited_for_is_had_anew(database):
    app = database.app()
    held = "select token from leasework.leader where name = 'leader:engine' and node is not null"
    async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as old:
        await old.execute(b"select pg_advisory_lock(%s)", [KEY])
        async with app.leader("engine", also_advisory_key=KEY) as lead:
            await until_async(lambda: database.sql(held), 30)
            await database.sql("delete from leasework.node")

            async def anew() -> bool:
                rows = await database.sql(held)
                return bool(rows) and rows[0][0] > 1

            await until_async(anew, 30)
            assert not lead.is_leader
            await old.execute(b"select pg_advisory_unlock(%s)", [KEY])
            assert await lead.wait(timeout=30) > 1


# -- locks -----------------------------------------------------------------------------------------
async def test_a_lock_in_a_thread_refuses_waits_and_loses_as_one_in_a_task(database):
    app, other = database.app(), database.app()

    def in_a_thread() -> None:
        lock = other.sync.lock("x")
        with pytest.raises(LostLease, match="never held"):
            _ = lock.token
        with pytest.raises(ConfigError, match="timeout"):
            lock.acquire(-1)
        with pytest.raises(LockNotAcquired):
            lock.acquire(0.2)
        assert not lock.try_acquire() and not lock.held
        assert not lock.try_acquire(sure=True), "its holder is seen alive"

    async with app.lock("x"):
        await asyncio.to_thread(in_a_thread)

    def loses() -> None:
        with (
            pytest.raises(LostLease, match="was lost while it was held"),
            app.sync.lock("x") as lock,
        ):
            with pytest.raises(ConfigError, match="in use"):
                lock.acquire()
            holds.append(lock)
            assert lock.lost.wait_in_thread(60)
            with psycopg.connect(database.dsn) as user, pytest.raises(LostLease):
                lock.verify(user)
        with pytest.raises(ZeroDivisionError), app.sync.lock("x", timeout=30):
            _ = 1 / 0

    holds: list[Any] = []
    thread = asyncio.ensure_future(asyncio.to_thread(loses))
    await until_async(lambda: holds, 30)
    await database.sql("delete from leasework.node")
    await thread


async def test_a_fence_that_does_not_fit_is_told_and_the_lock_is_had_when_it_does(database):
    app = database.app()
    async with app.lock("x"):
        pass
    await database.sql("update leasework.fence set token = token + 100 where name = 'lock:x'")
    waiter = asyncio.ensure_future(app.lock("x").acquire())
    [event] = await until_async(lambda: database.events("service_failed"), 30)
    assert event["service"] == "lock:x" and "fence" in event["error"]
    assert not waiter.done()
    await database.sql("delete from leasework.fence where name = 'lock:x'")
    async with asyncio.timeout(60):
        await waiter
    assert await until_async(lambda: database.events("lease_remade"), 30)


# -- deadlines -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("due", "on_breach", "reason"),
    [
        ("tomorrow", "page", "seconds must be a number"),
        (True, "page", "seconds must be a number"),
        (-5, "page", "."),
        (timedelta(0), "page", "."),
        (Deadline(minutes=5, on_breach="page"), "page", "seconds must be a number"),
        (5, None, "."),
    ],
)
async def test_a_deadline_alone_that_makes_no_sense_is_refused(database, due, on_breach, reason):
    app = database.app()
    app.task(name="page")(lambda breach: None)
    with pytest.raises(BadDeadline, match=reason):
        await app.deadline("books", due=due, on_breach=on_breach)
    assert await database.sql("select 1 from leasework.deadline") == []


async def test_one_that_is_past_keeping_is_told_and_one_whose_connection_died_is_met(database):
    app = database.app()
    app.task(name="page")(lambda breach: None)
    gone = await app.deadline("papers", due=3600, on_breach="page")
    await database.sql("delete from leasework.deadline")
    async with await psycopg.AsyncConnection.connect(database.dsn) as user:
        for act in (gone.met, gone.cancel):
            with pytest.raises(DeadlineNotFound, match="papers"):
                await act()
            with pytest.raises(DeadlineNotFound, match="papers"):
                await act(on=user)
            await user.rollback()
    kept = await app.deadline("books", due=3600, on_breach="page")
    await database.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name like 'leasework%%'"
        " and pid <> pg_backend_pid()",
    )
    assert await kept.met(), "asked again on a new connection"
