"""Steps, sleeps, signals, children, batches and chains, on a real database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from leasework import App, Context, State, SyncContext
from leasework.errors import JobFailed, WaitTimeout
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]


async def ends(app: App, job: UUID, state: str = "completed") -> Any:
    """Wait for the end of a job, and return its result."""

    async def over() -> bool:
        record = await app.get(job)
        assert record.state in (state, "available", "running", "scheduled", "retryable"), (
            record.state,
            record.last_error,
        )
        return record.state == state

    await until_async(over, what=f"the job is {state}")
    return (await app.get(job)).result


async def is_held(app: App, job: UUID, because: str) -> None:
    async def held() -> bool:
        return (await app.get(job)).held_because == because

    await until_async(held, what=f"the job is held because of {because}")


async def test_a_step_runs_once_although_the_handler_runs_again(app: App) -> None:
    calls: list[int] = []

    def charge(amount: int) -> dict[str, int]:
        calls.append(amount)
        return {"charged": amount}

    @app.task(max_attempts=2)
    async def order(ctx: Context, amount: int) -> dict[str, int]:
        paid = await ctx.step("charge", charge, amount)
        if ctx.attempt == 1:
            raise ValueError("after the step")
        return paid

    job = await order.enqueue(7)
    async with app.node():
        await until_async(lambda: _is(bool(calls)), what="the step ran")
        await app.retry(job.id)
        assert await ends(app, job.id) == {"charged": 7}
    assert calls == [7]


async def _is(value: bool) -> bool:
    return value


async def test_a_wait_without_timeout_does_not_run_the_job_before_its_signal(
    app: App, sql: Sql
) -> None:
    runs: list[int] = []

    @app.task
    async def order(ctx: Context) -> Any:
        runs.append(1)
        return await ctx.event("approved")

    job = await order.enqueue()
    async with app.node():
        await is_held(app, job.id, "event")
        [(until,)] = await sql("select run_at - now() from leasework.job")
        assert until > timedelta(days=10_000)
        await app.signal(job.id, "approved", 7)
        assert await ends(app, job.id) == 7
    assert len(runs) == 2


async def test_a_sleep_holds_no_slot_and_counts_no_attempt(app: App) -> None:
    attempts: list[int] = []

    @app.task
    async def nap(ctx: Context) -> str:
        attempts.append(ctx.attempt)
        await ctx.sleep(0.2)
        return "awake"

    @app.task
    async def other() -> str:
        return "ran"

    job = await nap.enqueue()
    async with app.node(queues={"default": 1}):
        assert await ends(app, (await other.enqueue()).id) == "ran"
        assert await ends(app, job.id) == "awake"
    assert attempts == [1, 1]


async def test_a_signal_is_kept_and_taken_once(app: App) -> None:
    @app.task
    async def approval(ctx: Context) -> list[Any]:
        first = await ctx.event("approved")
        second = await ctx.event("approved", key=2)
        return [first, second]

    job = await approval.enqueue()
    assert await app.signal(job.id, "approved", {"by": "kim"})  # before it waits
    async with app.node():
        await is_held(app, job.id, "event")
        assert await app.signal(job.id, "approved", {"by": "lee"})
        assert await ends(app, job.id) == [{"by": "kim"}, {"by": "lee"}]
    assert not await app.signal(job.id, "approved")


async def test_a_wait_ends_with_its_timeout(app: App) -> None:
    @app.task
    async def approval(ctx: Context) -> str:
        try:
            await ctx.event("approved", timeout=0.1)
        except WaitTimeout:
            return "too late"
        return "in time"

    job = await approval.enqueue()
    async with app.node():
        assert await ends(app, job.id) == "too late"


async def test_a_parent_gets_the_results_of_its_children_in_their_order(app: App) -> None:
    @app.task
    async def square(number: int) -> int:
        return number * number

    @app.task
    async def total(ctx: Context, count: int) -> int:
        return sum(await ctx.gather([square.job(n) for n in range(count)]))

    job = await total.enqueue(20)
    async with app.node(queues={"default": 1}):
        assert await ends(app, job.id) == sum(n * n for n in range(20))


async def test_a_child_that_failed_raises_in_its_parent(app: App) -> None:
    @app.task(max_attempts=1)
    async def half(number: int) -> int:
        if number % 2:
            raise ValueError("odd")
        return number // 2

    @app.task
    async def parent(ctx: Context) -> list[Any]:
        try:
            await ctx.gather([half.job(2), half.job(3)])
        except JobFailed as error:
            found = await ctx.gather([half.job(4), half.job(5)], key=2, return_exceptions=True)
            return [str(error), found[0], type(found[1]).__name__]
        raise AssertionError

    job = await parent.enqueue()
    async with app.node():
        said, value, kind = await ends(app, job.id)
    assert "discarded" in said and (value, kind) == (2, "JobFailed")


async def test_a_batch_calls_once_when_all_have_ended(app: App, sql: Sql) -> None:
    calls: list[dict[str, Any]] = []

    @app.task(max_attempts=1)
    async def load(row: int) -> int:
        if row == 3:
            raise ValueError("bad row")
        return row

    @app.task
    async def report(batch: dict[str, Any]) -> None:
        calls.append(batch)

    @app.task
    async def mail(address: str) -> None:
        calls.append({"mail": address})

    batch = await app.batch(
        [load.job(n) for n in range(5)], on_done=report, on_success=mail.job("ok"),
        on_failure=mail.job("bad"),
    )  # fmt: skip
    async with app.node():
        await until_async(lambda: _is(len(calls) == 2), what="both callbacks")
    told = {"id": str(batch.id), "total": 5, "failed": 1}
    assert sorted(calls, key=len) == [{"mail": "bad"}, told]
    view = await app.get_batch(batch.id)
    assert (view.total, view.unfinished, view.failed, view.ended_at is None) == (5, 0, 1, False)
    results = await app.batch_results(batch.id)
    assert [one.id for one in results] == [job.id for job in batch.jobs]
    assert [one.result for one in results] == [0, 1, 2, None, 4]


async def test_a_large_batch_is_copied(app: App, sql: Sql) -> None:
    @app.task
    async def nothing(n: int) -> None: ...

    batch = await app.batch(nothing.job(n) for n in range(3000))
    assert (await app.get_batch(batch.id)).unfinished == 3000
    empty = await app.batch([])
    async with app.node():
        await until_async(lambda: _ended(app, batch.id), what="the batch ended")
        await until_async(lambda: _ended(app, empty.id), what="the empty batch ended")


async def _ended(app: App, batch: UUID) -> bool:
    return (await app.get_batch(batch)).ended_at is not None


async def test_a_chain_runs_one_after_the_other(app: App) -> None:
    ran: list[str] = []

    @app.task(max_attempts=1)
    async def part(name: str) -> None:
        ran.append(name)
        if name == "bad":
            raise ValueError

    await app.enqueue(part.job("a").then(part.job("b")).then(part.job("c")))
    bad = await app.enqueue(part.job("bad").then(part.job("never")))
    async with app.node():
        await until_async(lambda: _is(len(ran) == 4), what="the chain")
        await ends(app, bad.id, "discarded")
    assert [name for name in ran if name != "bad"] == ["a", "b", "c"]


async def test_a_handler_in_a_thread_has_steps_too(app: App) -> None:
    @app.task
    def work(ctx: SyncContext) -> list[Any]:
        first = ctx.step("first", lambda: 1)
        ctx.sleep(0.05)
        signal = ctx.event("go")
        second = ctx.step("second", max, 1, 2)
        return [first, signal, second]

    job = await work.enqueue()
    async with app.node():
        await is_held(app, job.id, "event")
        await asyncio.to_thread(app.sync.signal, job.id, "go", "now")
        assert await ends(app, job.id) == [1, "now", 2]


async def test_a_result_is_converted_as_that_of_a_task(app: App) -> None:
    seen: list[Any] = []

    async def pair() -> tuple[int, timedelta]:
        return (1, timedelta(hours=2))

    @app.task
    async def work(ctx: Context) -> None:
        seen.append(await ctx.step("pair", pair))
        await ctx.sleep(0.01)

    job = await work.enqueue()
    async with app.node():
        await ends(app, job.id)
    assert seen == [(1, timedelta(hours=2))] * 2


async def test_a_step_on_a_connection_commits_with_its_effect(app: App, sql: Sql, dsn: str) -> None:
    await sql("create table effect (n integer)")

    async def reserve(connection: psycopg.AsyncConnection[Any], n: int) -> int:
        await connection.execute("insert into effect values (%s)", (n,))
        return n

    @app.task(max_attempts=3)
    async def order(ctx: Context) -> int:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            n = await ctx.step("reserve", reserve, connection, 5, on=connection)
            if ctx.attempt == 1:
                raise ValueError("before the commit")
        if ctx.attempt == 2:
            raise ValueError("after the commit")
        return n

    job = await order.enqueue()
    async with app.node():
        for _ in range(2):
            await until_async(lambda: _state(app, job.id, State.RETRYABLE), what="it failed")
            await app.retry(job.id)
            await until_async(lambda: _moved(app, job.id), what="it ran again")
        await until_async(lambda: _retried(app, job.id), what="it completed")
        assert await ends(app, job.id) == 5
    assert await sql("select n from effect") == [(5,)]


async def _state(app: App, job: UUID, state: State) -> bool:
    return (await app.get(job)).state == state


async def _moved(app: App, job: UUID) -> bool:
    return (await app.get(job)).state in (State.RETRYABLE, State.COMPLETED)


async def _retried(app: App, job: UUID) -> bool:
    record = await app.get(job)
    if record.state == State.RETRYABLE:
        await app.retry(job)
    return record.state == State.COMPLETED


WRONG_STEPS = {
    "twice": "ctx.step('page', …, key=number)",
    "inside": "inside the step 'outer'",
    "name": "1 to 200",
    "called": "Do not call the function: ctx.step('load', load, 1)",
    "gathered twice": "ctx.gather(…, name='other', key=number)",
}


@pytest.mark.parametrize("kind", WRONG_STEPS)
async def test_wrong_steps_are_refused_with_words(app: App, kind: str) -> None:
    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        if kind == "twice":
            for _ in range(2):
                await ctx.step("page", lambda: 1)
        elif kind == "name":
            await ctx.step("x" * 201, lambda: 1)
        elif kind == "called":
            await ctx.step("one", (lambda: 1)())  # type: ignore[call-overload]
        elif kind == "gathered twice":
            await ctx.gather([])
            await ctx.gather([])
        else:
            await ctx.step("outer", lambda: ctx.sleep(1))

    job = await work.enqueue()
    async with app.node():
        await ends(app, job.id, "discarded")
    assert WRONG_STEPS[kind] in str((await app.get(job.id)).last_error)
