"""What ``app.sync`` promises for leaders and locks beyond what tasks get."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest

from leasework.errors import ConfigError
from tests.services.several import TIMES, Database, several_apps
from tests.support.wait import until, until_async

INTERRUPTED = """
import asyncio, signal, sys, threading
from leasework import App

class Stop(Exception):
    pass

def stop(*_):
    raise Stop

def held(app):
    async def hold():
        async with app.lock("x"):
            taken.set()
            await asyncio.to_thread(let_go.wait)
    asyncio.run(hold())

signal.signal(signal.SIGUSR1, stop)
app, other = (App(sys.argv[1], recover_within=9) for _ in range(2))
taken, let_go = threading.Event(), threading.Event()
thread = threading.Thread(target=held, args=[other])
thread.start()
taken.wait()
lock = app.sync.lock("x")
try:
    print("waits", flush=True)
    lock.acquire()
except Stop:
    print("stopped", flush=True)
let_go.set()
thread.join()
with other.sync.lock("x", timeout=30), app.sync.leader("engine") as lead:
    lead.wait()
with lock:
    print("had", lock.held, flush=True)
for each in app, other:
    each.desk.close()
"""

INTERRUPTED_ADVISORY = """
import signal, sys, threading
from leasework import App

def stop(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGUSR1, stop)
try:
    App(sys.argv[1]).sync.advisory_lock(7, scope="session", timeout=600).acquire()
except KeyboardInterrupt:
    print("stopped", flush=True)
threading.Event().wait()
"""


@pytest.fixture
async def database(dsn: str, migrated: str) -> AsyncIterator[Database]:
    async with several_apps(dsn, migrated) as database:
        yield database


async def test_a_loop_is_told_that_it_would_stand_still(database):
    app = database.app()
    calls = [
        lambda: app.sync.lock("x").acquire(),
        lambda: app.sync.lock("x").try_acquire(),
        lambda: app.sync.lock("x").__enter__(),
        lambda: app.sync.leader("engine").__enter__(),
        lambda: app.sync.leader("engine").wait(0.1),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match="inside an event loop"):
            call()


async def test_a_wait_that_a_signal_interrupts_leaves_no_claim_on_the_lock(database, procs):
    process = procs.start(database.dsn, code=INTERRUPTED)
    process.wait_for("waits", 30)
    await until_async(lambda: database.sql("select 1 from leasework.bid"), 30)
    process.kill(signal.SIGUSR1)
    await asyncio.to_thread(process.wait_for, "stopped", 30)
    await asyncio.to_thread(process.wait_for, "had True", 60)
    assert await asyncio.to_thread(process.wait, 30) == 0


async def test_a_call_that_a_signal_interrupts_does_not_go_on_without_its_caller(
    database, direct_dsn, procs
):
    waiting = "select 1 from pg_locks where locktype = 'advisory' and objid = 7 and not granted"
    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as old:
        await old.execute("select pg_advisory_lock(7)")
        process = procs.start(direct_dsn, code=INTERRUPTED_ADVISORY)
        await until_async(lambda: database.sql(waiting), 30)
        process.kill(signal.SIGUSR1)
        await asyncio.to_thread(process.wait_for, "stopped", 30)

        async def gone() -> bool:
            return not await database.sql(waiting)

        await until_async(gone, 30)


async def test_an_interrupt_that_comes_with_the_answer_gives_back_what_was_taken(
    database, monkeypatch
):
    app, other = database.app(), database.app()
    call = app.sync.call

    def interrupted(work: Any) -> Any:
        monkeypatch.setattr(app.sync, "call", call)
        call(work)
        raise KeyboardInterrupt

    def take(enter: Callable[[], Any]) -> None:
        monkeypatch.setattr(app.sync, "call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            enter()

    await asyncio.to_thread(take, app.sync.lock("x").acquire)
    await other.lock("x").acquire(timeout=30)
    leader = app.sync.leader("engine")
    await asyncio.to_thread(take, leader.__enter__)
    async with other.leader("engine") as lead:
        await lead.wait(timeout=30)


async def test_a_thread_leads_on_while_the_background_loop_stands_still(database):
    app, other = database.app(), database.app()
    inside, leave = threading.Event(), threading.Event()

    def stand() -> None:
        with app.sync.leader("engine") as lead:
            term = lead.wait(30)
            app.sync.background().call_soon_threadsafe(leave.wait, 60)
            inside.set()
            until(leave.is_set, 60)
            assert lead.term == term

    thread = asyncio.ensure_future(asyncio.to_thread(stand))
    await until_async(inside.is_set, 30)
    async with other.leader("engine") as follower:
        with pytest.raises(TimeoutError):
            await follower.wait(4 * TIMES.renew + TIMES.lease)
        leave.set()
        await follower.wait(30)
    await thread
