"""Leaders of the user's. Each App here has a guard and connections of its own: a process each."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest

from leasework.app.leader import Leader
from leasework.errors import ConfigError, LostLease, Unavailable, WrongConnection
from tests.pg.drivers import ALL, done
from tests.services.several import TIMES, Database, W, several_apps
from tests.support.wait import BUSY_SECONDS, forever, until, until_async


@pytest.fixture
async def database(dsn: str, migrated: str) -> AsyncIterator[Database]:
    async with several_apps(dsn, migrated) as database:
        yield database


async def fence_off(database: Database) -> None:
    """Every process finds its node row gone, as after a silence."""
    await database.sql("delete from leasework.node")


# -- one leads -------------------------------------------------------------------------------------
async def test_one_process_leads_and_the_next_one_follows_at_once_with_a_higher_term(database):
    one, two = database.app(), database.app()
    async with two.leader("engine") as follower:
        async with asyncio.timeout(30):
            await follower.wait()
        async with one.leader("engine") as lead:
            assert not lead.is_leader and lead.term is None and lead.lost.is_set()
            with pytest.raises(TimeoutError):
                await lead.wait(timeout=0.1)
            term = follower.term
            await follower.__aexit__(None, None, None)
            assert not follower.is_leader and follower.lost.is_set()
            assert await lead.wait(timeout=30) > (term or 0)
    kinds = [row["name"] for row in await database.events("lease_resigned")]
    assert set(kinds) <= {"leader:engine"}


async def test_an_application_a_leader_and_a_lock_of_one_name_do_not_meet(database):
    app = database.app(name="billing")
    async with app.node() as node, app.leader("billing") as lead, app.lock("billing") as lock:
        await lead.wait(timeout=30)
        await until_async(node.leads, 30)
        assert lock.held
        rows = await (await app.inspect()).leaders()
        assert {row.name for row in rows} == {"billing", "leader:billing"}


async def test_two_that_stand_in_one_process_lead_one_after_the_other(database):
    app = database.app()
    async with app.leader("engine") as one:
        await one.wait(timeout=30)
        async with app.leader("engine") as two:
            assert not two.is_leader
            await one.__aexit__(None, None, None)
            await two.wait(timeout=30)


async def test_callbacks_hear_of_each_gain_and_loss_and_may_fail(database):
    heard: list[str] = []

    async def gained(lead: Leader) -> None:
        heard.append(f"gain {lead.term}")
        try:
            await forever()
        finally:
            heard.append("gain ended")

    def lost(lead: Leader) -> None:
        heard.append(f"loss {lead.is_leader}")
        raise Mute

    class Mute(Exception):
        def __str__(self) -> str:
            raise LookupError("no words")

    app = database.app()
    async with app.leader("engine", on_gain=gained, on_loss=lost):
        await until_async(lambda: heard == ["gain 1"], 30)
        await fence_off(database)
        await until_async(lambda: heard[1:] == ["gain ended", "loss False", "gain 2"], 30)
    assert heard[4:] == ["gain ended", "loss False"]
    [failed, *_] = await until_async(lambda: database.events("callback_failed"))
    assert failed["name"] == "leader:engine"
    assert failed["error"] == "Mute: (its str() raised LookupError)"


async def test_a_callback_that_waits_for_what_it_cancelled_ends_no_candidacy(database):
    app = database.app()

    async def lost(lead: Leader) -> None:
        engine = asyncio.create_task(forever())
        await asyncio.sleep(0)
        engine.cancel()
        await engine

    async with app.leader("engine", on_loss=lost) as lead:
        first = await lead.wait(timeout=30)
        await fence_off(database)
        await lead.lost.wait()
        assert await lead.wait(timeout=30) > first
    async with database.app().leader("engine") as other:
        await other.wait(timeout=30)
    [failed, *_] = await until_async(lambda: database.events("callback_failed"))
    assert failed["error"].startswith("CancelledError")


async def test_a_leader_waits_no_longer_when_its_advisory_lock_is_back(database, monkeypatch):
    async with database.app().leader("engine") as lead:
        term = await lead.wait(timeout=30)
        now, asked = Leader._now, 0

        def not_at_first(self: Leader) -> Any:
            nonlocal asked
            asked += 1
            return now(self) if asked > 2 else None

        monkeypatch.setattr(Leader, "_now", not_at_first)
        assert await lead.wait(timeout=30) == term


# -- running while it leads ------------------------------------------------------------------------
async def test_a_body_is_cancelled_at_a_loss_and_begins_anew_with_the_next_term(database):
    app = database.app()
    terms: list[Any] = []

    async def body(lead: Leader) -> str:
        terms.append(lead.term)
        if len(terms) == 2:
            return "done"
        try:
            await fence_off(database)
            await forever()
        except asyncio.CancelledError:
            terms.append("cancelled")
            assert not lead.is_leader
            terms.pop()
            raise
        return "never"

    async with app.leader("engine") as lead:
        assert await asyncio.wait_for(lead.run(body), 30) == "done"
    assert terms == [1, 2]


async def test_what_the_body_raises_is_raised_also_a_lost_lease_of_something_else(database):
    app = database.app()

    async def body(lead: Leader) -> None:
        raise LostLease("a lock of its own")

    async with app.leader("engine") as lead:
        with pytest.raises(LostLease, match="of its own"):
            await asyncio.wait_for(lead.run(body), 30)
        with pytest.raises(ZeroDivisionError):
            async with lead.leading():
                _ = 1 / 0


async def test_a_block_that_leads_raises_when_it_is_lost(database):
    app = database.app()
    async with app.leader("engine") as lead:
        with pytest.raises(LostLease):
            async with lead.leading() as term:
                assert term == 1
                await fence_off(database)
                await forever()


async def test_the_next_one_leads_only_when_the_body_has_ended(database):
    """A clean stop: the row is given up after the cleaning up, and then at once."""
    one, two = database.app(), database.app()
    cleaning, clean = asyncio.Event(), asyncio.Event()

    async def body(lead: Leader) -> None:
        try:
            await forever()
        finally:
            cleaning.set()
            await clean.wait()

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(one.node())
        lead = await stack.enter_async_context(one.leader("engine"))
        term = await lead.wait(timeout=30)
        other = await stack.enter_async_context(two.leader("engine"))
        running = asyncio.ensure_future(lead.run(body))
        await asyncio.sleep(0.05)
        node = one.desk._nodes[-1]
        node._call(lambda: node.contests.step_down("a stop", locks=False))
        await asyncio.wait_for(cleaning.wait(), 30)
        assert not lead.is_leader
        assert not other.is_leader
        row = "select node is null from leasework.leader where name = 'leader:engine'"
        assert await database.sql(row) == [(False,)], "not given up before it is clean"
        clean.set()
        assert await other.wait(timeout=TIMES.renew * 2 + BUSY_SECONDS) > term
        running.cancel()


# -- verify ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("driver", ALL)
async def test_verify_holds_the_fence_on_every_driver_until_the_transaction_ends(
    database, direct_dsn, driver
):
    app = database.app()
    await database.sql("create table effect (n int)")
    locks = "select 1 from pg_locks where relation = 'leasework.fence'::regclass and mode = %s"
    async with app.lock("x") as lock, ALL[driver](direct_dsn) as way:
        await lock.verify(way.connection)
        assert await database.sql(locks, "RowShareLock")
        await way.effect()
        await done(way.commit())
        assert not await database.sql(locks, "RowShareLock")
    assert await database.sql("select n from effect") == [(1,)]


@pytest.mark.parametrize(
    "driver", ["psycopg async", "asyncpg", "sqlalchemy AsyncSession over psycopg"]
)
async def test_verify_of_a_lost_term_fails_and_the_transaction_with_it(
    database, direct_dsn, driver
):
    app = database.app()
    await database.sql("create table effect (n int)")
    async with app.leader("engine") as lead:
        await lead.wait(timeout=30)
        await database.sql("update leasework.fence set token = token + 1")
        async with ALL[driver](direct_dsn) as way:
            await way.effect()
            with pytest.raises(LostLease):
                await lead.verify(way.connection)
            with pytest.raises(Exception):  # noqa: B017 - each driver has its own
                await way.effect()
            await done(way.rollback())
    assert await database.sql("select n from effect") == []


async def test_verify_without_a_term_asks_nobody(database):
    async with database.app().leader("engine") as lead:
        await lead.wait(timeout=30)
    with pytest.raises(LostLease):
        await lead.verify("not even a connection")
    lock = database.app().lock("x")
    with pytest.raises(LostLease, match="never held"):
        await lock.verify("not even a connection")
    async with lock:
        with pytest.raises(WrongConnection):
            await lock.verify("not even a connection")
        with pytest.raises(ConfigError):
            await lock.verify(None, idle_timeout=0)


async def test_verify_leaves_a_shorter_idle_timeout_as_it_is(database, direct_dsn):
    show = "select current_setting('idle_in_transaction_session_timeout')"
    async with (
        database.app().lock("x") as lock,
        await psycopg.AsyncConnection.connect(direct_dsn) as user,
    ):
        await lock.verify(user)
        assert await (await user.execute(show.encode())).fetchone() == ("3s",)
        await user.rollback()
        assert await (await user.execute(show.encode())).fetchone() != ("3s",)
        await user.execute(b"set local idle_in_transaction_session_timeout = '700ms'")
        await lock.verify(user, idle_timeout=2.0)
        assert await (await user.execute(show.encode())).fetchone() == ("700ms",)


async def test_a_takeover_waits_for_a_verified_transaction_and_no_longer_than_it_may_idle(
    database, direct_dsn
):
    """One process's lease is over while its transaction is open; then a client that vanished."""
    app, other = database.app(), database.app()
    blocked = (
        "select 1 from pg_locks l join pg_stat_activity a using (pid) where not l.granted"
        " and a.query like %s and cardinality(pg_blocking_pids(l.pid)) > 0"
    )
    async with app.leader("engine") as lead:
        await lead.wait(timeout=30)
        user = await psycopg.AsyncConnection.connect(direct_dsn)
        await lead.verify(user, idle_timeout=60)
        # as if the lease was over: whoever waits sees the row given up
        await database.sql("update leasework.leader set node = null, seq = seq + 1")
        async with other.leader("engine") as next_one:
            await until_async(lambda: database.sql(blocked, "%leasework.fence f set%"), 30)
            assert not next_one.is_leader
            await user.commit()
            await user.close()

            async def led_anew() -> bool:  # the first one stands for election, too
                return any(one.term and one.term > 1 for one in (next_one, lead))

            await until_async(led_anew, 30)
        # the second: it vanishes without a word, its transaction open
        lock = other.lock("x")
        await lock.acquire()
        vanished = await psycopg.AsyncConnection.connect(direct_dsn)
        began = asyncio.get_running_loop().time()
        await lock.verify(vanished)
        await database.sql("update leasework.leader set node = null where name = 'lock:x'")
        async with app.lock("x") as taken_over:
            took = asyncio.get_running_loop().time() - began
            assert taken_over.held
        print(f"\nMEASURED an idle verified transaction holds a takeover for {took:.2f} s")
        assert 2.0 < took < 3.0 + 2 * TIMES.renew + BUSY_SECONDS
        await vanished.close()
        await lock.release()


# -- a rollout from advisory locks -----------------------------------------------------------------
async def test_a_new_version_leads_only_with_the_old_ones_advisory_lock_too(database, direct_dsn):
    app, other = database.app(), database.app()
    key = 0x52494F4C
    try_lock = "select pg_try_advisory_lock(%s)"
    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as old:
        assert await (await old.execute(try_lock.encode(), [key])).fetchone() == (True,)
        async with app.leader("engine", also_advisory_key=key) as lead:
            row = "select 1 from leasework.leader where name = 'leader:engine' and node is not null"
            await until_async(lambda: database.sql(row), 30)
            with pytest.raises(TimeoutError):
                await lead.wait(timeout=1.0)
            assert not lead.is_leader and lead.term is None
            await old.execute(b"select pg_advisory_unlock(%s)", [key])
            await lead.wait(timeout=30)
            assert await (await old.execute(try_lock.encode(), [key])).fetchone() == (False,)
            lost, term = lead.lost, lead.term
            holder = (
                "select pid from pg_locks where locktype = 'advisory' and objid = %s and granted"
            )
            [[pid]] = await database.sql(holder, key)
            await database.sql("select pg_terminate_backend(%s)", pid)
            began = asyncio.get_running_loop().time()
            async with asyncio.timeout(30):
                await lost.wait()
            took = asyncio.get_running_loop().time() - began
            print(f"\nMEASURED lost {took:.2f} s after the advisory lock was")
            assert took < 3.0 + BUSY_SECONDS
            assert await lead.wait(timeout=30) > (term or 0), "both anew"
        async with other.leader("engine", also_advisory_key=key) as next_one:
            await next_one.wait(timeout=30)


# -- a process that was stopped --------------------------------------------------------------------
LEADS = """
import asyncio, sys, time
from leasework import App
async def main():
    async with App(sys.argv[1], recover_within=9).leader("engine") as lead:
        term = await lead.wait()
        lost = lead.lost
        print("leads", term, flush=True)
        believed = time.clock_gettime(time.CLOCK_BOOTTIME)
        while lead.is_leader and lead.term == term:
            believed = time.clock_gettime(time.CLOCK_BOOTTIME)
            await asyncio.sleep(0.005)
        print(f"believed {believed} {lost.is_set()} ", flush=True)  # one piece: lines may mix
        await lost.wait()
        print("told", flush=True)
asyncio.run(main())
"""


async def test_a_process_that_was_stopped_does_not_believe_in_its_term_when_it_goes_on(
    database, procs
):
    stopped = procs.start(database.dsn, code=LEADS)
    stopped.wait_for("leads 1", 30)
    app = database.app()
    gained: list[float] = []

    def note(lead: Leader) -> None:
        gained.append(app.env.boot_now())

    async with app.leader("engine", on_gain=note) as lead:
        stopped.kill(signal.SIGSTOP)
        await lead.wait(timeout=W + 20)
        stopped.resume()
        believed = await asyncio.to_thread(stopped.wait_for, r"believed ([\d.]+) (\w+)", 30)
        assert float(believed[1]) < gained[0] - (W - TIMES.trust) / 2
        assert believed[2] == "True", "lost is set as soon as anybody asks"
        await asyncio.to_thread(stopped.wait_for, "told", 30)


# -- threads ---------------------------------------------------------------------------------------
async def test_threads_lead_as_tasks_do(database, direct_dsn):
    one, two = database.app(), database.app()

    def lead_in_thread() -> None:
        with one.sync.leader("engine") as lead:
            assert lead.wait(timeout=30) == 1 and lead.is_leader
            assert one.sync.leader("other").wait(timeout=0.05) is None
            with psycopg.connect(direct_dsn) as user:
                lead.verify(user)
            inside.set()
            until(leave.is_set, 30)

    inside, leave = threading.Event(), threading.Event()
    thread = asyncio.ensure_future(asyncio.to_thread(lead_in_thread))
    await until_async(inside.is_set, 30)
    async with two.leader("engine") as follower:
        assert not follower.is_leader
        leave.set()
        await thread
        assert await follower.wait(timeout=30) == 2


async def test_a_block_that_ends_ends_the_waits_for_its_term(database):
    app = database.app()
    async with database.app().leader("engine") as other:
        await other.wait(timeout=30)
        async with app.leader("engine") as lead:
            waits = asyncio.create_task(lead.wait())
            runs = asyncio.create_task(lead.run(forever))
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            for task in (waits, runs):
                with pytest.raises(LostLease, match="has ended"):
                    await task
        async with lead:  # the same object again
            with pytest.raises(TimeoutError):
                await lead.wait(timeout=0.1)


async def test_a_block_ends_though_its_node_has_ended_before(database, monkeypatch):
    app = database.app()
    async with asyncio.timeout(60):
        async with app.leader("engine") as lead:
            await lead.wait()

            def gone(bid: Any) -> None:
                raise Unavailable("this process does not take part any more")

            monkeypatch.setattr(lead._guard, "done", gone)
        monkeypatch.undo()
    assert not lead.is_leader


async def test_a_block_that_ends_at_once_leaves_nothing_open(database):
    """Before the election has begun in its task."""
    app = database.app()
    with pytest.raises(ValueError, match="at once"):
        async with app.leader("engine"):
            raise ValueError("at once")
    assert app.desk._users == 0


async def test_who_waits_is_told_although_the_end_of_the_block_is_cancelled(database):
    app = database.app()
    release = asyncio.Event()

    async def on_loss(_: Any) -> None:
        await release.wait()

    lead = app.leader("engine", on_loss=on_loss)
    await lead.__aenter__()
    await lead.wait(timeout=30)
    leaving = asyncio.create_task(lead.__aexit__(None, None, None))
    await until_async(lambda: not lead.is_leader, 30)
    waiting = asyncio.create_task(lead.wait())
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    with pytest.raises(LostLease):
        await waiting
    release.set()


async def test_how_long_ago_a_lead_became_vacant_grows_with_the_own_term(database):
    """The gate for APScheduler opens a little after the grant. What was due in between is ours."""
    app = database.app()
    async with app.leader("engine") as lead:
        await lead.wait(timeout=30)
        ago = lead._vacant_ago()
        await until_async(lambda: lead._vacant_ago() > ago, 30)
