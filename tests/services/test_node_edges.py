"""Starts and stops at the wrong moment, and handlers that raise what is no Exception."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from leasework import App, Context
from leasework.errors import JobFailed
from leasework.jobs.acker import Acker
from leasework.jobs.executor import LocalQueue
from leasework.model.filter import JobFilter
from leasework.pg.schema import migrate
from leasework.tuning import Tuning
from tests.support.wait import forever, until, until_async


async def rows(dsn: str, query: str) -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        return await (await connection.execute(query.encode())).fetchall()


async def make_app(dsn: str) -> App:
    app = App(dsn)
    await migrate.apply(app.settings)
    return app


async def test_a_start_that_is_cancelled_leaves_no_node_and_no_leader(dsn: str):
    app = await make_app(dsn)
    for steps in (1, 3, 10, 30, 100):
        node = app.node()
        start = asyncio.create_task(node.__aenter__())
        for _ in range(steps):
            await asyncio.sleep(0.0005)
        start.cancel()
        await asyncio.wait([start])
        if not start.cancelled():  # it was faster than we
            await node.__aexit__(None, None, None)

        async def gone() -> bool:
            left = await rows(dsn, "select 1 from leasework.node")
            led = await rows(dsn, "select 1 from leasework.leader where node is not null")
            return not left and not led

        await until_async(gone, 30, "the half-started node to leave")
    await app.close()


async def test_an_on_drain_that_fails_is_an_event(dsn: str):
    app = await make_app(dsn)
    asked: list[bool] = []

    def on_drain(alone: bool) -> None:
        asked.append(alone)
        raise RuntimeError("not now")

    failed = "select fields ->> 'error' from leasework.event where kind = 'callback_failed'"
    async with app.node(on_drain=on_drain) as node:
        says = "select 1 from leasework.node where info ? 'drains'"
        await until_async(lambda: rows(dsn, says), 30, "what it says of itself")
        assert node.recorder.identity
        operator = await app.operator("somebody", "a test")
        _, ends = await operator.drain_node(node.recorder.identity.worker_id)
        assert ends
        assert await until_async(lambda: rows(dsn, failed), 30) == [("RuntimeError: not now",)]
        assert asked == [True]
    await app.close()


async def test_a_stop_during_an_acquisition_leaves_no_leader_behind(dsn: str):
    app = await make_app(dsn)
    async with app.node():
        await until_async(lambda: rows(dsn, "select 1 from leasework.term"), 30, "a first leader")
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute("select 1 from leasework.leader for update")
        node = app.node()
        await node.__aenter__()
        waiting = (
            "select 1 from pg_stat_activity where application_name = 'leasework guard' "
            "and datname = current_database() and wait_event_type = 'Lock'"
        )
        await until_async(lambda: rows(dsn, waiting), 30, "its acquisition to wait for the row")
        stop = asyncio.create_task(node.__aexit__(None, None, None))
        await until_async(
            lambda: rows(dsn, "select 1 from leasework.event where kind = 'node_stopped'"), 30
        )
        await holder.rollback()
        await stop
    assert not await rows(dsn, "select 1 from leasework.leader where node is not null")
    await app.close()


class Panic(BaseException):
    """What foreign code may raise: no Exception."""


async def test_whatever_a_handler_raises_its_job_fails_and_its_slot_is_free(dsn: str):
    app = await make_app(dsn)

    @app.task(name="panic", max_attempts=1)
    async def panic(ctx: Context) -> None:
        raise Panic("boom")

    @app.task(name="leave", max_attempts=1)
    async def leave(ctx: Context) -> None:
        sys.exit(3)

    @app.task(name="leave_thread", max_attempts=1)
    def leave_thread() -> None:
        sys.exit(3)

    @app.task(name="exhausted", max_attempts=1)
    def exhausted() -> None:
        next(iter(()))

    @app.task(name="fine")
    async def fine() -> str:
        return "fine"

    async with app.node(queues={"default": 1}):
        for task, words in (
            (panic, "Panic: boom"),
            (leave, "SystemExit: 3"),
            (leave_thread, "SystemExit: 3"),
            (exhausted, "StopIteration"),
        ):
            job = await task.enqueue()
            with pytest.raises(JobFailed, match=words):
                await job.wait(timeout=60)
        assert await (await fine.enqueue()).wait(timeout=60) == "fine"
    await app.close()


async def test_a_stop_goes_on_to_its_end_however_often_it_is_cancelled(dsn: str):
    """As frameworks do it in a scope that was cancelled: again and again."""
    app = await make_app(dsn)
    begun, let_go, cancels = asyncio.Event(), asyncio.Event(), []

    @app.task(name="long")
    async def long() -> None:
        begun.set()
        await let_go.wait()  # the drain waits for it

    async def serve() -> None:
        async with app.node():
            await long.enqueue()
            await forever()

    serving = asyncio.create_task(serve())
    async with asyncio.timeout(30):
        await begun.wait()

    async def hurry() -> bool:
        cancels.append(serving.cancel())
        if len(cancels) == 5:
            let_go.set()
        return serving.done()

    await until_async(hurry, 30, "the stop to end")
    assert serving.cancelled()
    assert not await rows(dsn, "select 1 from leasework.node")
    assert await rows(dsn, "select state from leasework.job_done") == [("completed",)]
    await app.close()


async def test_what_was_claimed_ahead_goes_back_when_no_job_ends(
    dsn: str, monkeypatch: pytest.MonkeyPatch
):
    """Quick jobs were claimed behind long ones: others have room for them."""
    app, other = await make_app(dsn), App(dsn)
    let_go, ran = asyncio.Event(), []

    @app.task(name="quick")
    async def quick() -> None: ...

    @app.task(name="long")
    async def long() -> None:
        ran.append(1)
        await let_go.wait()

    @other.task(name="quick")
    async def quick_there() -> None: ...

    await app.enqueue_many([quick.job() for _ in range(2000)])
    await app.enqueue_many([long.job() for _ in range(2)])
    await app.enqueue_many([quick.job() for _ in range(20)])
    left = "select count(*) from leasework.job where task_name = 'quick' having count(*) = "
    async with app.node(queues={"default": 2}) as node:
        seen, give_back = asyncio.Event(), node._claimer.give_back

        async def later(queue: Any) -> None:
            await seen.wait()
            await give_back(queue)

        monkeypatch.setattr(node._claimer, "give_back", later)
        held = "select 1 from leasework.job where node is not null having count(*) > 2"
        await until_async(lambda: rows(dsn, f"{left}20"), 30, "the long ones to have the slots")
        await until_async(lambda: len(ran) == 2, 30)
        assert await rows(dsn, held), "nothing was claimed ahead"
        seen.set()
        async with other.node():
            await until_async(lambda: rows(dsn, f"{left}0"), 30, "the others to run elsewhere")
        assert node.executor.busy() == 2
        let_go.set()
    await app.close()
    await other.close()


def test_the_connections_of_loops_that_have_ended_are_closed(dsn: str):
    app = asyncio.run(make_app(dsn))

    @app.task(name="t")
    async def work() -> None: ...

    async def enqueue() -> None:
        await work.enqueue()
        await (await app.operator("somebody", "a test")).reports.jobs(JobFilter(), 1)

    def one_after_the_other() -> list[None]:
        return [asyncio.run(enqueue()) for _ in range(5)]

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(one_after_the_other) for _ in range(4)]:
            done.result()
    mine = (
        "select count(*) from pg_stat_activity where application_name like 'leasework%' "
        "and datname = current_database()"
    )

    def none_is_open() -> bool:
        return asyncio.run(rows(dsn, mine)) == [(0,)]

    until(none_is_open, 30, "the connections of all loops to be closed")
    by_hand = asyncio.new_event_loop()
    by_hand.run_until_complete(enqueue())
    by_hand.close()
    assert not none_is_open()
    asyncio.run(enqueue())
    until(none_is_open, 30, "those of the loop that was closed by hand to be closed as well")


async def test_a_job_that_has_its_slot_is_not_sent_back_for_want_of_room(
    dsn: str, monkeypatch: pytest.MonkeyPatch
):
    """Where runs take some milliseconds, no more are started than would run again after a kill.
    One whose start has to be written down first is asked a second time: it is among them."""
    really = Acker.__init__

    def careful(acker: Acker, *given: Any) -> None:
        really(acker, *given)
        acker._careful = True

    monkeypatch.setattr(Acker, "__init__", careful)
    app = await make_app(dsn)
    running, all_run = set(), asyncio.Event()

    @app.task(name="t")
    async def work(n: int) -> None:
        running.add(n)
        if len(running) == 100:
            all_run.set()
        await all_run.wait()

    await app.enqueue_many([work.job(n=n) for n in range(100)])
    await rows(dsn, "update leasework.job set crashes = 1 returning 1")
    async with app.node(), asyncio.timeout(30):
        await all_run.wait()
    assert not await rows(dsn, "select 1 from leasework.attempt where outcome <> 'completed'")
    await app.close()


async def test_a_batch_that_is_being_started_is_not_given_back(
    dsn: str, monkeypatch: pytest.MonkeyPatch
):
    """One handler after the other begins: until the last one has, no slot is taken for good."""
    monkeypatch.setattr(Tuning, "give_back_seconds", 0.0)
    app = await make_app(dsn)
    running, all_run = set(), asyncio.Event()

    @app.task(name="t")
    async def work(n: int) -> None:
        await asyncio.sleep(0)
        running.add(n)
        if len(running) == 100:
            all_run.set()
        await all_run.wait()

    async with app.node() as node, asyncio.timeout(30):
        sleeps = "select 1 from leasework.node where sleeping <> '{}'"
        await until_async(lambda: rows(dsn, sleeps), 30, "it to have nothing to do")
        given: list[int] = []
        give_back = node._claimer.give_back

        async def counted(queue: LocalQueue) -> None:
            given.append(len(queue.waiting))
            await give_back(queue)

        monkeypatch.setattr(node._claimer, "give_back", counted)
        await app.enqueue_many([work.job(n=n) for n in range(100)])
        await all_run.wait()
    assert given == []
    await app.close()


async def test_a_suspect_behind_a_job_that_hangs_goes_back_and_the_node_goes_on(
    dsn: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Tuning, "alone_seconds", 2.0)
    app = await make_app(dsn)
    begun = asyncio.Event()

    @app.task(name="hangs")
    async def hangs() -> None:
        begun.set()
        await forever()

    @app.task(name="suspect")
    async def suspect() -> None: ...

    @app.task(name="fine")
    async def fine() -> None: ...

    async with app.node(queues={"default": 3}):
        hanging = await hangs.enqueue()
        async with asyncio.timeout(30):
            await begun.wait()
        late = await suspect.using(run_in=3600).enqueue()
        crashed = "update leasework.job set crashes = 2 where task_name = 'suspect' returning 1"
        assert await rows(dsn, crashed)
        await app.retry(late.id)
        held = "select 1 from leasework.attempt where outcome = 'not_alone'"
        await until_async(lambda: rows(dsn, held), 60, "it to go back")
        await (await fine.enqueue()).wait(timeout=60)
        assert (await hanging.get()).state == "running"
        await hanging.cancel()
        await late.wait(timeout=60)
    await app.close()
