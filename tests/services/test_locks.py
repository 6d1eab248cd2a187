"""Locks of the user's. Each App here has a guard and connections of its own: a process each."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from leasework import App, Context
from leasework.env import ASSIGNED_NODE, _taken, assigned_node_id
from leasework.errors import ConfigError, LockNotAcquired, LostLease, Unavailable, WrongDsn
from leasework.tuning import Tuning
from tests.services.several import TIMES, Database, W, several_apps, waiting
from tests.support.wait import BUSY_SECONDS, forever, until_async


@pytest.fixture
async def database(dsn: str, migrated: str) -> AsyncIterator[Database]:
    async with several_apps(dsn, migrated) as database:
        yield database


def statements(app: App) -> int:
    """What its leases asked of the database beside the heartbeat."""
    light = app.desk._light
    store: Any = light.guard.contests._store if light else None
    return store.pool.statements if store else 0


# -- one holder ------------------------------------------------------------------------------------
async def test_a_process_that_only_holds_locks_hears_notifications(database):
    app = database.app()
    async with app.lock("billing"):
        wakeups = app.desk._light._wakeups
        await until_async(lambda: wakeups.healthy, 30)


async def test_one_process_holds_a_lock_and_the_next_gets_a_higher_token(database):
    one, two = database.app(), database.app()
    async with one.lock("billing") as lock:
        assert lock.held and not lock.lost.is_set()
        assert not await two.lock("billing").try_acquire()
        waiter = asyncio.ensure_future(two.lock("billing").acquire())
        await until_async(lambda: database.sql("select 1 from leasework.bid"))
        token = lock.token
    await waiter
    assert not lock.held and lock.lost.is_set()
    [[new]] = await database.sql("select token from leasework.leader where node is not null")
    assert new > token
    with pytest.raises(LostLease):
        _ = lock.token


async def test_a_lock_of_one_name_is_no_lock_of_another(database):
    app = database.app()
    async with app.lock("a"), app.lock("b"):
        assert not await app.lock("a").try_acquire()


async def test_a_lock_goes_from_hand_to_hand_in_a_process_with_a_new_token_and_one_statement(
    database,
):
    app = database.app()
    tokens: list[int] = []

    async def use() -> None:
        async with app.lock("x") as lock:
            tokens.append(lock.token)

    async with app.lock("x"):
        uses = [asyncio.ensure_future(use()) for _ in range(Tuning.handovers)]
        await until_async(lambda: waiting(app, "lock:x") == Tuning.handovers)
        before = statements(app)
    await asyncio.gather(*uses)
    assert tokens == sorted(set(tokens)) and len(tokens) == Tuning.handovers
    spent = statements(app) - before
    print(f"\nMEASURED {spent} statements for {Tuning.handovers} hand-overs and one release")
    assert spent <= Tuning.handovers + 3


async def test_who_waits_in_one_process_has_the_lock_in_the_order_of_asking(database):
    app = database.app()
    order: list[int] = []

    async def use(number: int) -> None:
        async with app.lock("x"):
            order.append(number)

    async with app.lock("x"):
        uses = []
        for number in range(5):
            uses.append(asyncio.ensure_future(use(number)))
            await until_async(lambda n=number: waiting(app, "lock:x") == n + 1)
    await asyncio.gather(*uses)
    assert order == sorted(order)


async def test_processes_have_their_turn_in_the_order_of_asking(database):
    first, *others = [database.app() for _ in range(4)]
    order: list[int] = []

    async def use(number: int, app: App) -> None:
        async with app.lock("x"):
            order.append(number)

    async with first.lock("x"):
        uses = []
        for number, app in enumerate(others):
            uses.append(asyncio.ensure_future(use(number, app)))
            rows = number + 1
            await until_async(
                lambda rows=rows: database.sql(
                    "select 1 from leasework.bid having count(*) = %s", rows
                )
            )
    began = time.monotonic()
    await asyncio.gather(*uses)
    assert order == [0, 1, 2]
    print(f"\nMEASURED three processes one after the other in {time.monotonic() - began:.3f} s")


async def test_a_free_lock_is_left_to_who_waits_and_who_does_not_come_is_passed_over(database):
    stopped, late = database.app(), database.app()
    async with stopped.lock("another"):
        async with late.lock("x"):
            began = time.monotonic()  # free from here on
        await database.sql(
            "insert into leasework.bid (name, node) select 'lock:x', node from leasework.leader"
            " where name = 'lock:another'"
        )
        assert not await late.lock("x").try_acquire()
        async with late.lock("x"):
            took = time.monotonic() - began
        print(f"\nMEASURED who does not come is passed over after {took:.2f} s")
        assert took >= TIMES.renew / 2


async def test_a_place_that_stayed_behind_is_given_up_when_its_turn_comes(database):
    """As after a withdrawal whose answer was lost: nobody would wait for it for ever."""
    idle, busy = database.app(), database.app()
    async with idle.lock("another"):
        async with busy.lock("x"):
            await database.sql(
                "insert into leasework.bid (name, node) select 'lock:x', node from leasework.leader"
                " where name = 'lock:another'"
            )
        await until_async(lambda: _none(database, "select 1 from leasework.bid"), 30)


# -- not waiting, and giving up --------------------------------------------------------------------
async def test_a_wait_with_a_limit_ends_and_leaves_nothing_behind(database):
    one, two = database.app(), database.app()
    async with one.lock("x"):
        with pytest.raises(LockNotAcquired, match=r"'x' was not free within 0\.2 s"):
            await two.lock("x").acquire(timeout=0.2)
        with pytest.raises(LockNotAcquired):
            async with two.lock("x", timeout=0.2):
                pytest.fail("it is held")
        await until_async(lambda: _none(database, "select 1 from leasework.bid"))
    assert await two.lock("x").try_acquire()


async def test_after_a_promotion_a_lock_is_free_at_once_when_a_node_has_waited_for_all(database):
    """Even for a process that lives for less time than that."""
    await database.sql("update leasework.incarnation set added = added + 1")
    assert not await database.app().lock("new").try_acquire()
    settled = "select 1 from leasework.incarnation where settled = added + seen"
    async with database.app().node():
        await until_async(lambda: database.sql(settled), 60, "the timeline to be settled")
    assert await database.app().lock("other").try_acquire()


async def test_a_timeout_of_zero_is_one_try_that_gets_a_free_lock(database):
    one, two = database.app(), database.app()
    async with one.lock("x", timeout=0) as lock:
        assert lock.held
        for refused in (two.lock("x", timeout=0), one.lock("x", timeout=0)):
            with pytest.raises(LockNotAcquired):
                await refused.acquire(timeout=0)
        with pytest.raises(LockNotAcquired):
            await asyncio.to_thread(two.sync.lock("x").acquire, 0)
    await until_async(lambda: _none(database, "select 1 from leasework.bid"))

    def in_thread() -> bool:
        with two.sync.lock("x", timeout=0) as held:
            return held.held

    assert await asyncio.to_thread(in_thread)


async def test_a_wait_that_ends_before_its_light_node_is_there_leaves_no_node(database):
    """The thread that starts the node goes on when nobody waits for it any more."""
    app = database.app()
    with pytest.raises(LockNotAcquired):
        await app.lock("x").acquire(timeout=0.0001)
    await until_async(lambda: not (app.desk._begun or app.desk._light), 30)
    await until_async(lambda: _none(database, "select 1 from leasework.node"))


async def _none(database: Database, text: str) -> bool:
    return not await database.sql(text)


async def test_a_waiter_that_is_cancelled_holds_nothing_however_the_race_ends(database):
    one, two = database.app(), database.app()
    for pause in (0.0, 0.001, 0.003, 0.006, 0.01):
        lock, other, after = one.lock("x"), two.lock("x"), one.lock("x")
        await lock.acquire()
        waiter = asyncio.ensure_future(other.acquire())
        await until_async(lambda: database.sql("select 1 from leasework.bid"))
        releasing = asyncio.ensure_future(lock.release())
        await asyncio.sleep(pause)
        waiter.cancel()
        await releasing
        try:
            await waiter  # it was faster
            await other.release()
        except asyncio.CancelledError:
            assert not other.held
        await until_async(after.try_acquire, 30, "the lock to be free")
        await after.release()


async def test_one_object_is_one_use(database):
    lock = database.app().lock("x")
    async with lock:
        with pytest.raises(ConfigError, match="in use"):
            await lock.acquire()
    async with lock:
        assert lock.held


async def test_what_the_database_refuses_is_told(migrated, direct_dsn):
    with pytest.raises(WrongDsn):
        async with App(direct_dsn.replace("dbname=", "dbname=no_such_")).lock("x"):
            pytest.fail("there is no database")
    with pytest.raises(ConfigError):
        App(direct_dsn, name="lock:x")
    with pytest.raises(ConfigError):
        App(direct_dsn).lock("x", timeout=-1)


async def test_one_who_asks_is_answered_while_others_of_its_process_keep_asking(database):
    """Each asks whether the holder is alive, and must not make the others ask again."""
    held = database.app().lock("x")
    await held.acquire()
    app = database.app()
    first = asyncio.ensure_future(app.lock("x").try_acquire(sure=True))
    others = []
    async with asyncio.timeout(60):
        while not first.done():
            others.append(asyncio.ensure_future(app.lock("x").try_acquire(sure=True)))
            await asyncio.sleep(TIMES.renew / 20)
    assert not await first
    await held.release()
    await asyncio.gather(*others)


# -- losing ----------------------------------------------------------------------------------------
async def test_a_lock_that_is_lost_cancels_its_block_which_raises(database):
    app = database.app()
    with pytest.raises(LostLease, match="was lost while it was held"):
        async with app.lock("x"):
            await database.sql("delete from leasework.node")
            await forever()
    await until_async(lambda: database.events("lock_lost"))
    assert await app.lock("x").try_acquire(sure=True)


async def test_without_cancelling_the_block_raises_at_its_end(database):
    app = database.app()
    with pytest.raises(LostLease):
        async with app.lock("x", cancel=False) as lock:
            await database.sql("delete from leasework.node")
            async with asyncio.timeout(30):
                await lock.lost.wait()
            assert not lock.held


async def test_the_cancellation_of_a_block_by_others_stays_theirs(database):
    app = database.app()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3), app.lock("x"):
            await forever()
    assert await app.lock("x").try_acquire()


async def test_a_body_that_goes_on_after_the_grace_is_told_of_and_ends_no_process(database):
    app = database.app()
    with pytest.raises(LostLease):
        async with app.lock("x", cancel=False):
            await database.sql("delete from leasework.node")
            await until_async(lambda: database.events("lease_overlaps"), 30)


# -- dying -----------------------------------------------------------------------------------------
HOLD = """
import asyncio, sys
from leasework import App
async def main():
    app = App(sys.argv[1], recover_within=9)
    async with app.lock("x") as x, app.lock("y") as y, app.lock("z") as z:
        print("holds", x.token, y.token, z.token, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_the_locks_of_a_process_that_was_killed_are_free_after_its_lease(database, procs):
    """For who waits, for who only asks again and again, and for who came when it was dead."""
    app, asks, late = database.app(), database.app(), database.app()
    holder = procs.start(database.dsn, code=HOLD)
    holder.wait_for("holds 1 1 1", 30)
    assert not await app.lock("x").try_acquire(sure=True), "it was seen alive"
    holder.kill(signal.SIGKILL)
    killed_at = time.monotonic()
    assert not await app.lock("x").try_acquire(), "nobody knows yet that it is dead"

    async def waits() -> float:
        async with app.lock("x") as lock:
            assert lock.token == 2
            return time.monotonic() - killed_at

    lock = asks.lock("y")
    sure = asyncio.ensure_future(late.lock("z").try_acquire(sure=True))
    waiter = asyncio.ensure_future(waits())
    # on a busy machine, one of its many statements may take too long
    await until_async(lock.try_acquire, W + 20, ignoring=Unavailable)
    assert lock.token == 2 and await sure
    took = await waiter
    print(f"\nMEASURED the lock of a killed process is free after {took:.2f} s, W is {W:.2f} s")
    assert TIMES.lease - TIMES.renew - 1 < took < W + 2 * TIMES.renew + BUSY_SECONDS


async def test_what_a_buried_node_held_is_free_at_once_for_a_process_that_just_came(
    database, procs
):
    """Some node of an application saw it die."""
    app = database.app()
    holder = procs.start(database.dsn, code=HOLD)
    async with app.node():
        holder.wait_for("holds 1", 30)
        holder.kill(signal.SIGKILL)
        await until_async(
            lambda: database.sql(
                "select 1 from leasework.leader where name = 'lock:x' and node is null"
            ),
            30,
        )
    late = database.app()
    assert await late.lock("x").try_acquire()


LEAVES = """
import sys
from leasework import App
app = App(sys.argv[1], recover_within=9)
print("holds", app.sync.lock("x").try_acquire(), flush=True)
"""


async def test_a_lock_that_a_process_holds_at_its_end_is_free_for_a_process_that_just_came(
    database, procs
):
    """Its node keeps its row until others have seen it silent, as if it had been killed."""
    app = database.app()
    holder = procs.start(database.dsn, code=LEAVES)
    assert holder.wait(60) == 0 and "holds True" in holder.output
    async with app.node():
        await until_async(
            lambda: database.sql(
                "select 1 from leasework.leader where name = 'lock:x' and node is null"
            ),
            60,
        )
    assert await database.app().lock("x").try_acquire()
    assert await database.sql("select distinct how from leasework.death") == [("left",)]


async def test_while_the_database_is_away_one_try_is_refused_at_once(database, monkeypatch):
    app = database.app()
    async with app.lock("x"):
        guard: Any = app.desk._light.guard
        monkeypatch.setattr(guard.membership, "valid", lambda now: False)
        async with asyncio.timeout(30):
            with pytest.raises(Unavailable, match="has not answered"):
                await app.lock("y").try_acquire()
            with pytest.raises(Unavailable, match="has not answered"):
                await app.lock("y").try_acquire(sure=True)
        monkeypatch.undo()


async def test_an_outage_that_is_over_counts_no_more(database):
    app = database.app()
    async with app.lock("x"):
        contests: Any = app.desk._light.guard.contests
        contests._away_since = 1.0
        await until_async(lambda: contests._away_since == 0.0, 30, "a heartbeat")


async def test_the_child_of_a_fork_holds_no_lock(database):
    async with database.app().lock("x") as lock:
        child = os.fork()
        if child == 0:
            os._exit(int(lock.held))
        waited = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(waited[1]) == 0
        assert lock.held


async def test_a_parent_certifies_the_death_of_a_process_that_only_holds_locks(
    database, monkeypatch
):
    """With hooks of gunicorn, say: others need not wait for its lease."""
    mine = uuid4()
    monkeypatch.setenv(ASSIGNED_NODE, f"{mine}:{os.getppid()}")
    app, parent = database.app(), database.app()
    lock = app.lock("x")
    await lock.acquire()
    told = "select 1 from leasework.node where info ->> 'assigned' = %s"
    await until_async(lambda: database.sql(told, str(mine)), 30)
    await (await parent.store()).certify(mine, 10.0, process=True)
    assert await parent.lock("x").try_acquire()
    assert assigned_node_id() == mine
    _taken.clear()


# -- beside a node ---------------------------------------------------------------------------------
async def test_a_job_keeps_its_lock_while_its_node_drains(database):
    app = database.app()
    began, held = asyncio.Event(), []

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        async with app.lock("x") as lock:
            began.set()
            await asyncio.sleep(0.1)
            async with app.lock("another"):
                await asyncio.sleep(0.1)
            held.append(lock.held)

    async with app.node():
        await app.enqueue(work.job())
        await began.wait()
    assert held == [True]
    assert app.desk._light is None, "the node's own guard served"
    assert await database.sql("select 1 from leasework.leader where node is not null") == []


async def test_it_works_by_polling_alone(database):
    one, two = database.app(listen=False), database.app(listen=False)
    lock = one.lock("x")
    await lock.acquire()
    waiter = asyncio.ensure_future(two.lock("x").acquire())
    await until_async(lambda: database.sql("select 1 from leasework.bid"))
    await lock.release()
    async with asyncio.timeout(30):
        await waiter


async def test_a_lock_that_is_released_while_a_heartbeat_is_under_way_is_forgotten(
    database, direct_dsn
):
    """The heartbeat names it still, and brings an answer about it."""
    app = database.app()
    waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like %s"
    async with await psycopg.AsyncConnection.connect(direct_dsn) as user:
        lock = app.lock("x")
        await lock.acquire()
        await user.execute(b"select from leasework.node for update")
        await until_async(lambda: database.sql(waits, "%leasework.node%"), 30)
        await lock.release()
        light = app.desk._light
        assert light and "lock:x" not in light.guard.contests
        beats: Any = light.guard._store
        before = beats.pool.statements
        await user.rollback()
    await until_async(lambda: beats.pool.statements > before, 30)
    async with app.lock("y"):
        pass
    await asyncio.to_thread(app.desk.close)
    assert await database.events("service_failed") == []


async def test_a_thousand_locks_are_renewed_by_one_statement(database):
    app = database.app(recover_within=30)
    await database.sql(
        "insert into leasework.leader (name, lease_seconds)"
        " select 'lock:n' || n, 6 from generate_series(0, 999) n"
    )
    await database.sql("insert into leasework.fence (name) select name from leasework.leader")
    locks = [app.lock(f"n{number}") for number in range(1000)]
    await asyncio.gather(*[lock.acquire() for lock in locks])
    light = app.desk._light
    assert light
    beats: Any = light.guard._store
    before, asked = beats.pool.statements, statements(app)
    [[seq]] = await database.sql("select min(seq) from leasework.leader")
    await until_async(
        lambda: database.sql("select 1 from leasework.leader having min(seq) >= %s", seq + 2), 90
    )
    spent = beats.pool.statements - before
    print(f"\nMEASURED {spent} statements renewed 1,000 locks twice")
    assert spent <= 4 and statements(app) == asked
    assert all(lock.held for lock in locks)
    await asyncio.gather(*[lock.release() for lock in locks])
    # on a busy machine, the statements of so many take longer than a release waits for its own
    held = "select 1 from leasework.leader where node is not null limit 1"
    await until_async(lambda: database.sql(f"select 1 where not exists ({held})"), 90)


# -- threads ---------------------------------------------------------------------------------------
async def test_threads_lock_and_wait_as_tasks_do(database):
    one, two = database.app(), database.app()

    def use(app: App, tokens: list[int]) -> None:
        for _ in range(3):
            with app.sync.lock("x", timeout=30) as lock:
                assert lock.held
                tokens.append(lock.token)

    tokens: list[int] = []
    await asyncio.gather(*[asyncio.to_thread(use, app, tokens) for app in (one, two, one, two)])
    assert len(set(tokens)) == 12
    async with one.lock("x"):
        assert not await asyncio.to_thread(two.sync.lock("x").try_acquire)
        with pytest.raises(LockNotAcquired):
            await asyncio.to_thread(two.sync.lock("x").acquire, 0.2)


async def test_a_thread_that_lost_its_lock_is_told_at_the_end_of_its_block(database):
    app = database.app()

    def use() -> bool:
        with app.sync.lock("x") as lock:
            asyncio.run_coroutine_threadsafe(
                database.sql("delete from leasework.node"), loop
            ).result()
            return lock.lost.wait_in_thread(30)

    loop = asyncio.get_running_loop()
    with pytest.raises(LostLease):
        await asyncio.to_thread(use)


async def test_who_asks_a_node_that_is_gone_is_refused(database):
    app = database.app()
    async with app.node() as node:
        pass
    lock: Any = app.lock("x")
    with pytest.raises(Unavailable):
        node.guard.ask(lock._new_bid(1, has_body=True))


async def test_starts_without_a_database_hold_up_nothing_else_and_fail_together(tmp_path):
    app = App(f"postgresql:///nothing?host={tmp_path}", call_timeout=5.0)
    started = asyncio.get_running_loop().time()
    asked = [asyncio.create_task(app.lock(f"lock {n}").acquire()) for n in range(20)]
    async with asyncio.timeout(4.8):
        await asyncio.sleep(0)  # they have begun
        await asyncio.to_thread(int)  # the loop's own threads are free
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(answer, Unavailable) for answer in answers), answers
    assert asyncio.get_running_loop().time() - started < 50, "one after the other"


def no_thread(self: Any) -> None:
    raise RuntimeError("can't start new thread")


async def test_a_lock_works_without_a_thread_that_ends_it_when_idle(database, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr("leasework.app.desk.threading.Timer.start", no_thread)
        async with asyncio.timeout(30), database.app().lock("x") as lock:
            assert lock.token


async def test_a_start_that_got_no_thread_is_made_again_by_whoever_asks_next(database, monkeypatch):
    app = database.app()
    with monkeypatch.context() as full:
        full.setattr("leasework.app.desk.threading.Thread.start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            await app.lock("x").acquire()
    async with asyncio.timeout(30), app.lock("x") as lock:
        assert lock.token
