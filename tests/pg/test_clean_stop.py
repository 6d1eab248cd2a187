"""A clean stop blames no job, not even one that runs on in a thread, which nothing ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg

from leasework import App, Cancel, Context, SyncContext
from leasework.duties.leading import free_the_dead
from leasework.errors import JobCancelled, LostClaim
from leasework.model.states import State
from tests.support.wait import forever, until_async

Sql = Callable[..., Awaitable[list[Any]]]


async def test_a_thread_that_outlives_three_stops_is_neither_blamed_nor_quarantined(
    app: App, migrated: str, sql: Sql
) -> None:
    let_go, late = threading.Event(), []
    job: Any = None
    for number in (1, 2, 3):
        one = App(migrated, grace=0.1)  # a process of the next deploy
        inside = threading.Event()

        @one.task(name="long")
        def long(ctx: SyncContext, inside: threading.Event = inside) -> None:
            inside.set()
            let_go.wait(120)
            try:
                ctx.progress(0.9)
            except (JobCancelled, LostClaim, RuntimeError) as error:  # its loop may be gone
                late.append(type(error))

        async with one.node():
            job = job or await long.enqueue()
            await until_async(partial(_set, inside), 60, "the handler to start")
        record = await app.get(job.id)
        assert (record.state, record.attempt, record.crashes) == (State.SCHEDULED, 0, 0), number
        problems = [
            p for p in await (await one.inspect()).problems() if p.kind == "job_interrupted"
        ]
        assert len(problems) == (number == 3), number
        store = await app.store()
        assert await free_the_dead(store, app.settings.limits, _quiet, None) == 0
        [event] = await (await app.reports()).events("node_stopped", None, 1)
        assert event.fields["given_back"] == event.fields["running"] == 1
        await one.close()
    let_go.set()
    await until_async(lambda: _all(late, 3), 60, "the late handlers to end")
    record = await app.get(job.id)
    assert (record.state, record.attempt, record.last_error) == (State.SCHEDULED, 0, None)
    assert await sql("select outcome from leasework.attempt") == [("stopped",)] * 3
    [problem] = problems
    assert "task 'long', because they run longer than the grace of 0.1 s: 1 of" in problem.sentence
    assert problem.do.endswith(f"leasework jobs cancel {job.id}")


async def test_a_stop_past_the_grace_writes_one_outcome_for_each_job(
    app: App, migrated: str, sql: Sql
) -> None:
    """Even for a job that has completed, but whose row another transaction holds."""
    one, begun = App(migrated, grace=0.1), asyncio.Event()
    holder = await psycopg.AsyncConnection.connect(migrated)

    @one.task(name="quick")
    async def quick(ctx: Context) -> str:
        await holder.execute("select 1 from leasework.job where id = %s for update", [ctx.job_id])
        return "done"

    @one.task(name="slow")
    async def slow() -> None:
        begun.set()
        try:
            await forever()
        finally:
            await holder.rollback()  # when the stop has cancelled this handler

    async with one.node():
        first = await quick.enqueue()
        waits = partial(_unrecorded, sql)
        await until_async(waits, 60, "the outcome to wait for the row")
        second = await slow.enqueue()
        await asyncio.wait_for(begun.wait(), 60)
    await holder.close()
    record = await app.get(first.id)
    assert (record.state, record.result) == (State.COMPLETED, "done")
    assert (await app.get(second.id)).state == State.SCHEDULED
    reports = await app.reports()
    assert not await reports.events("ack_refused", None, 10)
    [event] = await reports.events("node_stopped", None, 1)
    assert event.fields["given_back"] == 0 and event.fields["cancelled"] == 1
    await one.close()


async def _unrecorded(sql: Sql) -> bool:
    return ("1",) in await sql("select info ->> 'unrecorded' from leasework.node")


async def _set(event: threading.Event) -> bool:
    return event.is_set()


async def _all(found: list[Any], count: int) -> bool:
    return len(found) == count


def _quiet(kind: str, **_: Any) -> None: ...


async def test_a_completion_that_the_stop_rolled_back_blames_nobody(
    app: App, migrated: str, sql: Sql
) -> None:
    one = App(migrated, grace=0.1)
    completed = asyncio.Event()

    @one.task(name="pay")
    async def pay(ctx: Context) -> None:
        async with await psycopg.AsyncConnection.connect(migrated) as connection:
            await ctx.complete(on=connection)
            completed.set()
            await forever()  # the stop cancels it, and the transaction with it

    async with one.node():
        job = await pay.enqueue()
        async with asyncio.timeout(30):
            await completed.wait()
    record = await app.get(job.id)
    assert (record.state, record.attempt, record.crashes) == (State.AVAILABLE, 0, 0)
    store = await app.store()
    assert await free_the_dead(store, app.settings.limits, _quiet, None) == 0
    await one.close()


async def test_a_coroutine_that_the_stop_ends_cannot_cancel_its_job(
    app: App, migrated: str
) -> None:
    """It takes the stop for a cancel of its job, and says so."""
    one = App(migrated, grace=0.1)
    begun = asyncio.Event()

    @one.task(name="polite")
    async def polite() -> Cancel:
        begun.set()
        with suppress(asyncio.CancelledError):
            await forever()
        return Cancel("it was cancelled, I think")

    async with one.node():
        job = await polite.enqueue()
        async with asyncio.timeout(30):
            await begun.wait()
    record = await app.get(job.id)
    assert record.state in (State.SCHEDULED, State.AVAILABLE)
    assert record.attempt == 0, "the attempt does not count"
    await one.close()


async def test_a_handler_that_cancels_all_tasks_does_not_end_the_stop(
    app: App, migrated: str
) -> None:
    one = App(migrated, grace=0.1)
    begun, nodes = asyncio.Event(), []

    @one.task(name="reckless")
    async def reckless() -> None:
        begun.set()
        await until_async(lambda: nodes[0]._stopping, what="the stop")
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task is not test:
                task.cancel()
        await forever()

    test = asyncio.current_task()
    async with one.node() as node:
        nodes.append(node)
        job = await reckless.enqueue()
        async with asyncio.timeout(30):
            await begun.wait()
    record = await app.get(job.id)
    assert record.state in (State.SCHEDULED, State.AVAILABLE)
    assert (record.attempt, record.crashes) == (0, 0)
    assert await (await app.reports()).events("node_stopped", None, 1)
    await one.close()
