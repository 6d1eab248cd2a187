"""A cancel that was answered "running" ends the run, whatever way it comes to it.

Each test was seen to fail with its protection taken out.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from leasework import App, Context, SyncContext
from leasework.errors import Conflict, JobCancelled, JobFailed
from leasework.model.job import ClaimedJob
from leasework.model.states import State
from leasework.store.store import Store
from leasework.tuning import Tuning
from tests.pg.bench import Bench
from tests.support.wait import forever, until_async

Sql = Callable[..., Awaitable[list[Any]]]


async def test_a_cancel_that_is_heard_before_the_answer_to_the_claim_ends_the_run(
    app: App, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat has a connection of its own: its answer may be faster."""
    ran: list[int] = []

    @app.task()
    async def work(n: int) -> None:
        ran.append(n)

    store = (await app.stores()).work
    claim = store.claim

    async def late(*args: Any, **kwargs: Any) -> list[ClaimedJob]:
        jobs = await claim(*args, **kwargs)
        for job in jobs:
            if job.payload["n"] == 1:
                assert await app.cancel(job.id)
                # heard: the next heartbeat takes it out of the table
                await until_async(lambda: none_left(sql), 30, "the signal to be heard")
        return jobs

    monkeypatch.setattr(store, "claim", late)
    job = await work.enqueue(n=1)
    async with app.node():
        with pytest.raises(JobCancelled, match="the worker ended it"):
            await job.wait(30)
        await (await work.enqueue(n=2)).wait(30)
    assert ran == [2]


async def none_left(sql: Sql) -> bool:
    return not await sql("select 1 from leasework.signal")


async def test_progress_ends_a_run_whose_signal_got_lost(app: App, sql: Sql) -> None:
    async def flag(job: Any) -> None:
        await sql("update leasework.job set cancel_requested = true where id = %s", [job])

    loop, after = asyncio.get_running_loop(), []

    @app.task()
    async def slow(ctx: Context) -> None:
        await ctx.progress(0.1)
        await flag(ctx.job_id)
        await ctx.progress(0.2)
        await forever()

    @app.task()
    def thread(ctx: SyncContext) -> None:
        ctx.progress(0.1)
        asyncio.run_coroutine_threadsafe(flag(ctx.job_id), loop).result()
        try:
            ctx.progress(0.2)
        finally:
            after.append(ctx.cancelled)

    async with app.node():
        for task in (slow, thread):
            with pytest.raises(JobCancelled, match="the worker ended it"):
                await (await task.enqueue()).wait(30)
    assert after == [True]


async def test_a_thread_hears_why_its_job_was_cancelled(app: App) -> None:
    heard: list[JobCancelled] = []

    @app.task()
    def thread(ctx: SyncContext) -> None:
        ctx.progress(0.1)
        ctx.claim.cancelled.wait()
        try:
            ctx.progress(0.2)
        except JobCancelled as error:
            heard.append(error)
            raise

    async with app.node():
        job = await thread.enqueue()
        await until_async(lambda: progressed(app, job.id))
        await job.cancel("the order was withdrawn")
        with pytest.raises(JobCancelled, match="the order was withdrawn"):
            await job.wait(30)
    assert [error.got for error in heard] == ["the order was withdrawn"]


async def progressed(app: App, job: UUID) -> bool:
    return (await app.get(job)).progress is not None


@pytest.mark.parametrize("way", ["looks", "progresses", "neither"])
async def test_a_thread_whose_time_is_over_has_failed_if_it_ended_for_that(
    app: App, way: str
) -> None:
    @app.task(timeout=0.05, max_attempts=1)
    def works(ctx: SyncContext) -> None:
        over = ctx.claim.cancelled
        while not (over.is_set() if way == "neither" else ctx.cancelled):
            over.wait(60)
        if way == "progresses":
            ctx.progress(0.5)

    async with app.node():
        job = await works.enqueue()
        if way == "neither":
            assert await job.wait(30) is None  # it ran to its end, though late
        else:
            with pytest.raises(JobFailed, match=r"ran longer than its timeout of 0.05 s"):
                await job.wait(30)


async def test_a_thread_that_hangs_at_each_attempt_is_given_up_and_says_why(app: App) -> None:
    let_go = threading.Event()

    @app.task(requeue_after=1, max_attempts=2)
    def hangs() -> None:
        let_go.wait(60)

    try:
        async with app.node():
            job = await hangs.enqueue()
            record = await until_async(lambda: finished(app, job), 60, "the job to be given up")
            events = await until_async(lambda: told(app), 30, "the event")
            let_go.set()
    finally:
        let_go.set()
    assert record and record.state is State.DISCARDED and record.attempt == 2
    assert record.last_error == "ran longer than its requeue_after of 1 s"
    assert events and events[0].fields["job"] == str(job.id)
    assert "requeue_after of 1 s" in events[0].fields["error"]


async def finished(app: App, job: Any) -> Any:
    record = await app.get(job.id)
    return record if record.state is State.DISCARDED else None


async def told(app: App) -> Any:
    return await (await app.reports()).events("job_discarded", None, 10)


@pytest.mark.parametrize("way", ["requeue", "give_back", "give_back_unknown"])
async def test_whichever_comes_first_a_cancel_or_the_end_of_a_claim_the_job_is_cancelled(
    bench: Bench, app: App, sql: Sql, way: str
) -> None:
    for _ in range(60):
        await bench.enqueue()
    pairs = [(job.id, job.claim_token) for job in await bench.claim()]
    store, other = bench.store, Store(app.settings, "other")

    async def take(job: UUID, token: int) -> None:
        if way == "requeue":
            while await store.requeue(job, token) is State.RUNNING:
                pass
        else:
            while not await store.give_back(bench.node, [(job, token)]):
                pass  # the cancel had its row locked

    async def cancel(job: UUID) -> str | None:
        await asyncio.sleep(0)
        return await other.cancel(job, "no more", None)

    answers: list[str | None] = []
    async with asyncio.timeout(60):
        if way == "give_back_unknown":
            cancels = [asyncio.create_task(cancel(job)) for job, _ in pairs]
            await asyncio.wait(cancels, return_when=asyncio.FIRST_COMPLETED)
            assert await store.give_back_unknown(bench.node, 1, []) == len(pairs)
            answers = list(await asyncio.gather(*cancels))
        else:
            for job, token in pairs:
                answer, _ = await asyncio.gather(cancel(job), take(job, token))
                answers.append(answer)
    await other.close()
    assert await sql("select distinct state from leasework.jobs") == [("cancelled",)], answers


async def test_a_locked_row_is_tried_again_and_named_in_the_error(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(name="t")
    async def work() -> None: ...

    job = await work.using(run_in=3600).enqueue()
    store = await app.store()
    looks: list[str | None] = []
    retry_many = store.retry_many

    async def noted(*args: Any) -> dict[UUID, str]:
        where = await retry_many(*args)
        looks.append(where.get(job.id))
        return where

    monkeypatch.setattr(store, "retry_many", noted)
    async with await psycopg.AsyncConnection.connect(await app.dsn()) as other:
        await other.execute("select from leasework.job where id = %s for update", [job.id])
        for act in app.retry, app.cancel, (await app.operator("ann", "cli")).discard:
            with pytest.raises(Conflict, match=f"holds a lock on the job's row.*{job.id}"):
                await act(job.id)
        assert looks == ["locked"] * Tuning.locked_tries
        looks.clear()
        trying = asyncio.create_task(app.retry(job.id))
        await until_async(lambda: looks, what="its first look")
        await other.rollback()
        assert await trying
    assert (await job.get()).state is State.AVAILABLE
