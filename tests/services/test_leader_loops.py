"""Leaders whose event loop stands still, and leaders in threads. Each App here is a process."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from leasework import App
from leasework.app.leader import Leader
from leasework.errors import LockNotAcquired
from tests.services.several import TIMES, Database, several_apps
from tests.support.pgbouncer import PgBouncer
from tests.support.wait import BUSY_SECONDS, forever, until, until_async

STUCK = "its event loop is stuck"
HAND_OVER = 4 * TIMES.renew + TIMES.jitter
"""The loop owes an answer for two renewals, seen at a beat; then the successor."""
KEY = 0x52494F4C
LONG = bool(os.environ.get("LEASEWORK_LONG"))


@pytest.fixture
async def database(dsn: str, migrated: str) -> AsyncIterator[Database]:
    async with several_apps(dsn, migrated) as database:
        yield database


class Blocks:
    """A leader in a thread with a loop of its own, which can be made to stand still."""

    def __init__(self, app: App, name: str, *, in_body: bool) -> None:
        self.lead: Leader = app.leader(name)
        self._in_body = in_body
        self._block, self._go_on, self._end = (threading.Event() for _ in range(3))
        self.blocks = threading.Event()
        self.cancelled = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.thread.start()

    async def _run(self) -> None:
        async with self.lead:
            await self.lead.wait(timeout=30)
            if self._in_body:
                body = asyncio.ensure_future(self.lead.run(self._body))
                await until_async(self.cancelled.is_set, 60)
                body.cancel()
                return
            await until_async(self._block.is_set, 30)
            self._stand_still()
            await until_async(self._end.is_set, 60)

    async def _body(self, lead: Leader) -> None:
        await until_async(self._block.is_set, 30)
        self._stand_still()
        try:
            await forever()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def _stand_still(self) -> None:
        self.blocked_at = time.monotonic()
        self.blocks.set()
        self._go_on.wait(60)

    async def block(self) -> float:
        """When it stood still."""
        self._block.set()
        await until_async(self.blocks.is_set, 30)
        return self.blocked_at

    def go_on(self) -> None:
        self._go_on.set()

    async def end(self) -> None:
        self._go_on.set()
        self._end.set()
        self._block.set()
        await asyncio.to_thread(self.thread.join, 60)


async def test_a_leader_whose_loop_stands_still_hands_over_and_a_lock_is_kept(database):
    """Three at once: they mostly wait."""
    await asyncio.gather(
        a_leader_hands_over(database, "alone"),
        a_body_that_ends_in_time_hands_over(database, "body"),
        a_lock_is_kept(database),
    )


async def a_leader_hands_over(database: Database, name: str) -> None:
    one, two = database.app(), database.app()
    blocked = Blocks(one, name, in_body=False)
    try:
        await until_async(lambda: blocked.lead.is_leader, 30)
        async with two.leader(name) as other:
            began = await blocked.block()
            await other.wait(timeout=60)
            took = time.monotonic() - began
            print(f"\nMEASURED another leads {took:.2f} s after the loop stood still")
            assert 2 * TIMES.renew < took < HAND_OVER + BUSY_SECONDS
            assert not blocked.lead.is_leader and blocked.lead.lost.is_set()
            await until_async(lambda: was_lost(database, name), 30)
            blocked.go_on()
        await until_async(lambda: blocked.lead.is_leader, 60, "it stands again when it runs")
    finally:
        await blocked.end()


async def was_lost(database: Database, name: str) -> bool:
    lost = [e for e in await database.events("lease_lost") if e["name"] == f"leader:{name}"]
    return [event["why"] for event in lost] == [STUCK]


async def a_body_that_ends_in_time_hands_over(database: Database, name: str) -> None:
    one, two = database.app(), database.app()
    blocked = Blocks(one, name, in_body=True)
    try:
        await until_async(lambda: blocked.lead.is_leader, 30)
        async with two.leader(name) as other:
            lost = blocked.lead.lost
            await blocked.block()
            await asyncio.to_thread(lost.wait_in_thread, 30)
            assert not other.is_leader, "told before anybody else can lead"
            assert await was_lost_row(database, name) is False, "and kept until the body has ended"
            blocked.go_on()
            await until_async(blocked.cancelled.is_set, 30)
            async with asyncio.timeout(TIMES.renew * 2 + BUSY_SECONDS):
                await other.wait()
    finally:
        await blocked.end()


async def was_lost_row(database: Database, name: str) -> bool:
    """Was it given up in the database?"""
    [[free]] = await database.sql(
        "select node is null from leasework.leader where name = %s", f"leader:{name}"
    )
    return bool(free)


async def a_lock_is_kept(database: Database) -> None:
    """What blocks the loop may be what the lock is held for."""
    app, other = database.app(), database.app()
    held, end = threading.Event(), threading.Event()

    async def hold() -> None:
        async with app.lock("x"):
            held.set()
            assert end.wait(60)

    thread = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(hold())))
    await until_async(held.is_set, 30)
    with pytest.raises(LockNotAcquired):
        await other.lock("x").acquire(timeout=HAND_OVER)
    end.set()
    await thread


if LONG:

    async def test_what_runs_in_a_loop_that_stands_still_has_until_the_end_of_the_lease(database):
        one, two = database.app(), database.app()
        blocked = Blocks(one, "body", in_body=True)
        try:
            await until_async(lambda: blocked.lead.is_leader, 30)
            async with two.leader("body") as other:
                began = await blocked.block()
                await other.wait(timeout=60)
                took = time.monotonic() - began
                print(f"\nMEASURED another leads {took:.2f} s after a body blocked its loop")
                assert took > TIMES.trust
                assert await until_async(lambda: database.events("lease_overlaps"), 30)
                blocked.go_on()
                await until_async(blocked.cancelled.is_set, 30)
        finally:
            await blocked.end()


CLOSES = """
import asyncio, sys, threading
from leasework import App
loop = asyncio.new_event_loop()
lead = App(sys.argv[1], recover_within=9).leader("engine")
async def begin():
    await lead.__aenter__()
    await lead.wait(timeout=30)
loop.run_until_complete(begin())
loop.close()
print("leads", lead.is_leader, flush=True)
lead._bid.lost.wait_in_thread()
print("lost", lead._bid.lost.why, flush=True)
threading.Event().wait()
"""


async def test_a_leader_whose_loop_was_closed_under_it_hands_over(database, procs):
    process = procs.start(database.dsn, code=CLOSES)
    process.wait_for("leads True", 30)
    async with database.app().leader("engine") as other:
        await asyncio.to_thread(process.wait_for, f"lost {STUCK}", 30)
        await other.wait(timeout=60)


# -- threads ---------------------------------------------------------------------------------------
async def test_a_thread_of_a_new_version_leads_only_with_the_old_ones_advisory_lock_too(
    database, direct_dsn
):
    app = database.app()
    holder = "select pid from pg_locks where locktype = 'advisory' and objid = %s and granted"
    row = "select 1 from leasework.leader where name = 'leader:engine' and node is not null"

    def stand() -> None:
        with app.sync.leader("engine", also_advisory_key=KEY) as lead:
            leads.append(lead)
            until(end.is_set, 120)

    leads: list[Any] = []
    end = threading.Event()
    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as old:
        await old.execute(b"select pg_advisory_lock(%s)", [KEY])
        thread = asyncio.ensure_future(asyncio.to_thread(stand))
        await until_async(lambda: leads and database.sql(row), 30)
        [lead] = leads
        assert await asyncio.to_thread(lead.wait, 1.0) is None
        assert not lead.is_leader and lead.term is None
        await old.execute(b"select pg_advisory_unlock(%s)", [KEY])
        term = await asyncio.to_thread(lead.wait, 30)
        assert [pid for (pid,) in await database.sql(holder, KEY)] != [old.info.backend_pid]

        lost = lead.lost
        [[pid]] = await database.sql(holder, KEY)
        await database.sql("select pg_terminate_backend(%s)", pid)
        began = asyncio.get_running_loop().time()
        await until_async(lost.is_set, 30)
        took = asyncio.get_running_loop().time() - began
        print(f"\nMEASURED lost {took:.2f} s after the advisory lock was")
        assert took < 3.0 + BUSY_SECONDS
        await until_async(lambda: (lead.term or 0) > term, 30, "both anew")
        end.set()
        await thread
        assert not await database.sql(holder, KEY), "it goes with the leadership"


async def test_a_leader_that_the_server_refuses_says_so_once_and_tries_on(
    database, pgbouncer: PgBouncer
):
    """Behind a pooler an advisory lock of a session is none. In both forms."""
    one, two = (App(pgbouncer.dsn, recover_within=9) for _ in range(2))
    database.apps += [one, two]

    def stand() -> None:
        with one.sync.leader("thread", also_advisory_key=KEY) as lead:
            assert lead.wait(timeout=2.0) is None
            told.wait(60)

    async def both() -> bool:
        return len(await database.events("service_failed")) >= 2

    told = threading.Event()
    thread = asyncio.ensure_future(asyncio.to_thread(stand))
    async with two.leader("task", also_advisory_key=KEY) as lead:
        with pytest.raises(TimeoutError):
            await lead.wait(timeout=2.0)
        try:
            await until_async(both, 30, "both to say it")
        finally:
            told.set()
    await thread
    for app in (one, two):
        await asyncio.to_thread(app.desk.close)
    events = await database.events("service_failed")
    assert sorted(event["service"] for event in events) == ["leader:task", "leader:thread"]
    assert all("pooler" in event["error"] for event in events)
