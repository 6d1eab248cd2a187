"""``ctx.complete(on=…)`` and ``ctx.assert_mine(…)``: a handler's effects and the completion of its
job are one commit, or none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest

from leasework import App, Cancel, Context, Discard, Limits, Snooze, SyncContext
from leasework.errors import JobFailed, LostClaim
from leasework.model.backoff import Backoff
from leasework.model.states import State
from tests.pg.bench import Bench
from tests.pg.drivers import ALL, SYNC, Open, done
from tests.support.wait import forever, until_async

Sql = Callable[..., Awaitable[list[Any]]]
AT_ONCE = Backoff(base=0, jitter=0)


@pytest.fixture
async def effects(sql: Sql) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    await sql("create table effect (n int)")

    async def count() -> int:
        return (await sql("select count(*) from effect"))[0][0]

    yield count


@pytest.mark.parametrize("open_way", ALL.values(), ids=ALL)
async def test_effect_and_completion_are_one_commit(
    app: App, migrated: str, effects: Any, open_way: Open
) -> None:
    """The first attempt rolls back: it fails with that reason, and runs again."""
    errors: list[str | None] = []

    @app.task(name="pay", backoff=AT_ONCE)
    async def pay(ctx: Context) -> Any:
        errors.append((await app.get(ctx.job_id)).last_error)
        async with open_way(migrated) as way:
            await ctx.assert_mine(way.connection)
            await way.effect()
            await ctx.complete(on=way.connection, result={"paid": [1, "☃"]})
            await done(way.rollback() if ctx.attempt == 1 else way.commit())
        return "not this"

    async with app.node():
        job = await pay.enqueue()
        assert await job.wait(60) == {"paid": [1, "☃"]}
    record = await job.get()
    assert (record.state, record.attempt, await effects()) == (State.COMPLETED, 2, 1)
    assert errors[0] is None and "was rolled back" in str(errors[1])
    assert record.started_at and record.worker_id


async def test_a_result_is_converted_by_the_annotation(app: App, migrated: str) -> None:
    @app.task
    async def pay(ctx: Context) -> UUID:
        async with ALL["psycopg"](migrated) as way:
            await ctx.complete(on=way.connection, result=UUID(int=7))
            await done(way.commit())
        return UUID(int=8)

    async with app.node():
        assert await (await pay.enqueue()).wait(30) == UUID(int=7)


async def test_a_handler_that_returns_a_value_completes_with_a_result_of_that_type(
    app: App, migrated: str, effects: Any
) -> None:
    async def complete(ctx: Context, **given: Any) -> None:
        async with ALL["psycopg async"](migrated) as way:
            await way.effect()
            await ctx.complete(on=way.connection, **given)
            await done(way.commit())

    @app.task(max_attempts=1)
    async def count(ctx: Context, given: dict[str, Any]) -> int:
        await complete(ctx, **given)
        return 5

    @app.task(max_attempts=1)
    async def identify(ctx: Context) -> UUID:
        await complete(ctx)
        return UUID(int=1)

    @app.task(max_attempts=1)
    async def choose(ctx: Context) -> None:
        await complete(ctx, result=[1])

    async with app.node():
        for wrong in (count.job({}), count.job({"result": "5"}), identify.job()):
            with pytest.raises(JobFailed, match=r"result= of ctx\.complete does not fit"):
                await (await app.enqueue(wrong)).wait(30)
        assert await effects() == 0
        assert await (await count.enqueue({"result": 5})).wait(30) == 5
        job = await choose.enqueue()
        await job.wait(30)
        assert (await job.get()).result == [1], "what returns nothing has any result"


async def test_what_a_handler_returns_after_its_completion_is_an_event_if_it_is_lost(
    app: App, migrated: str, sql: Sql
) -> None:
    @app.task
    async def pay(ctx: Context, value: Any):  # type: ignore[no-untyped-def]
        async with ALL["psycopg async"](migrated) as way:
            await ctx.complete(on=way.connection, result=1)
            await done(way.commit())
        return Snooze(60) if value == "snooze" else value

    async with app.node():
        for value in (None, 1, 2, "snooze"):
            assert await (await pay.enqueue(value)).wait(30) == 1
        told = (
            "select fields ->> 'error' from leasework.events where kind = 'job_failed' order by at"
        )
        errors = await until_async(lambda: enough(sql, told, 2))
    assert ["another result" in errors[0], "Snooze(seconds=60" in errors[1]] == [True, True]


async def enough(sql: Sql, query: str, count: int) -> list[Any]:
    found = [value for (value,) in await sql(query)]
    return found if len(found) >= count else []


async def test_the_applications_limit_of_results_holds_there_too(migrated: str) -> None:
    app = App(migrated, limits=Limits(result_bytes=10))

    @app.task
    async def pay(ctx: Context) -> None:
        async with ALL["psycopg"](migrated) as way:
            await ctx.complete(on=way.connection, result="x" * 10)

    async with app.node():
        with pytest.raises(JobFailed, match="result: 12 bytes, over the limit of 10"):
            await (await pay.using(max_attempts=1).enqueue()).wait(30)


@pytest.mark.parametrize("open_way", SYNC.values(), ids=SYNC)
async def test_a_handler_in_a_thread_completes_in_its_transaction(
    app: App, migrated: str, effects: Any, open_way: Open
) -> None:
    def run(ctx: SyncContext, way: Any) -> None:
        ctx.assert_mine(way.connection)
        way.execute("insert into effect values (1)")
        ctx.complete(on=way.connection, result=ctx.attempt)
        (way.rollback if ctx.attempt == 1 else way.commit)()

    @app.task(name="pay", backoff=AT_ONCE)
    def pay(ctx: SyncContext) -> None:
        async def with_way() -> None:
            async with open_way(migrated) as way:
                run_outside_of_loops(run, ctx, way)

        asyncio.run(with_way())

    async with app.node():
        job = await pay.enqueue()
        assert await job.wait(60) == 2
    assert await effects() == 1


def run_outside_of_loops(work: Callable[..., None], *arguments: Any) -> None:
    """As a plain thread would call it."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        work(*arguments)
    finally:
        asyncio._set_running_loop(loop)


@pytest.mark.parametrize("name", ["psycopg async", "asyncpg pool", "sqlalchemy Session"])
async def test_a_lost_claim_applies_nothing_even_if_the_handler_commits(
    app: App, migrated: str, effects: Any, name: str
) -> None:
    lost: list[str] = []

    @app.task(name="pay")
    async def pay(ctx: Context) -> None:
        if ctx.attempt > 1:
            await until_async(lambda: "end" in lost)
            return
        # somebody takes the job away, and this handler does not notice
        assert await (await app.store()).requeue(ctx.job_id, ctx.token)
        for act in (ctx.assert_mine, lambda c: ctx.complete(on=c)):
            async with ALL[name](migrated) as way:
                await way.effect()
                try:
                    await act(way.connection)
                except LostClaim as error:
                    lost.append(str(error))
                with suppress(Exception):  # even so nothing is applied
                    await done(way.commit())
        lost.append("end")

    async with app.node():
        job = await pay.enqueue()
        await until_async(lambda: "end" in lost)
        await job.wait(60)
        assert (await job.get()).attempt == 2
    assert [text for text in lost if "Roll back" in text] == lost[:2] and len(lost) == 3
    assert await effects() == 0


async def test_a_transaction_left_open_holds_up_nobody_else(
    app: App, migrated: str, effects: Any
) -> None:
    """The handler has returned, its transaction is open still: neither acks nor progress nor
    cancels of other jobs wait for it, and the end of the transaction decides."""
    opened: list[psycopg.AsyncConnection[Any]] = []

    @app.task(name="open")
    async def open_(ctx: Context) -> None:
        connection = await psycopg.AsyncConnection.connect(migrated)
        await connection.execute("insert into effect values (1)")
        await ctx.complete(on=connection)
        await ctx.progress(0.5, "its row is locked")
        opened.append(connection)

    @app.task(name="other")
    async def other(ctx: Context, wait: bool = False) -> int:
        await ctx.progress(0.5)
        if wait:
            await forever()
        return 1

    async with app.node():
        held = await open_.enqueue()
        await until_async(lambda: opened)
        took = []
        for _ in range(3):
            began = time.monotonic()
            assert await (await other.enqueue()).wait() == 1
            took.append(time.monotonic() - began)
        assert min(took) < 4, "they waited for the lock, whose timeout is five seconds"
        waiting = await other.enqueue(wait=True)
        await until_async(lambda: running(app, waiting))
        assert await waiting.cancel()
        await until_async(lambda: cancelled(app, waiting))
        assert (await held.get()).state is State.RUNNING and await effects() == 0
        await opened[0].commit()
        await held.wait(30)
    assert await effects() == 1
    await opened[0].close()


async def test_an_asserted_row_holds_up_nobody_else(app: App, migrated: str) -> None:
    """A handler that writes progress inside the transaction that locks its row would wait for
    itself."""

    @app.task(name="assert")
    async def assert_(ctx: Context) -> str:
        async with await psycopg.AsyncConnection.connect(migrated) as connection:
            await ctx.assert_mine(connection)
            async with asyncio.timeout(20):
                await ctx.progress(0.5)
                await other.enqueue()
                await (await other.enqueue()).wait()
        return "done"

    @app.task(name="other")
    async def other() -> None: ...

    async with app.node():
        assert await (await assert_.enqueue()).wait(60) == "done"


async def test_a_job_has_run_until_it_is_completed_not_until_its_transaction_began(
    app: App, migrated: str, sql: Sql
) -> None:
    worked: list[Any] = []

    @app.task(name="slow")
    async def slow(ctx: Context) -> None:
        async with await psycopg.AsyncConnection.connect(migrated) as connection:
            await connection.execute("select 1")
            worked.extend(await sql("select clock_timestamp()"))
            await ctx.complete(on=connection)

    async with app.node():
        job = await slow.enqueue()
        await job.wait(60)
    record = await job.get()
    assert record.completed_at is not None and record.completed_at > worked[0][0]


async def test_a_job_has_run_no_longer_because_its_outcome_was_written_among_many(
    bench: Bench, sql: Sql
) -> None:
    for _ in range(300):
        await bench.enqueue()
    jobs = await bench.claim(300)
    await bench.ack(*jobs)
    ran = "select distinct extract(epoch from finished_at - started_at) from leasework.job_done"
    assert [float(seconds) for (seconds,) in await sql(ran)] == [0.1]


async def test_an_error_after_the_completion_was_rolled_back_is_the_reason(
    app: App, migrated: str, effects: Any
) -> None:
    @app.task(name="raises", max_attempts=1)
    async def raises(ctx: Context) -> None:
        async with await psycopg.AsyncConnection.connect(migrated) as connection:
            await connection.execute("insert into effect values (1)")
            await ctx.complete(on=connection)
            raise LookupError("no such customer")

    @app.task(name="gives up")
    async def gives_up(ctx: Context, why: str) -> Any:
        async with await psycopg.AsyncConnection.connect(migrated) as connection:
            await ctx.complete(on=connection)
            await connection.rollback()
        return Cancel("not today") if why == "cancel" else Discard("never")

    async with app.node():
        job = await raises.enqueue()
        with pytest.raises(JobFailed, match="no such customer"):
            await job.wait(60)
        for why, state in (("cancel", State.CANCELLED), ("discard", State.DISCARDED)):
            job = await gives_up.enqueue(why=why)
            await until_async(lambda job=job: finished(app, job))
            assert (await job.get()).state is state
    assert await effects() == 0


async def test_an_error_after_the_commit_leaves_the_job_completed_and_is_an_event(
    app: App, migrated: str, sql: Sql
) -> None:
    @app.task(name="raises")
    async def raises(ctx: Context) -> None:
        async with await psycopg.AsyncConnection.connect(migrated) as connection:
            await ctx.complete(on=connection, result=1)
        raise LookupError("too late")

    async with app.node():
        assert await (await raises.enqueue()).wait(60) == 1
        [(error,)] = await until_async(
            lambda: sql("select fields ->> 'error' from leasework.events where kind = 'job_failed'")
        )
    assert "after it was completed: LookupError: too late" in error


async def test_a_handler_that_was_cancelled_before_its_commit_is_cancelled(
    app: App, migrated: str, effects: Any
) -> None:
    async def handler(ctx: Context) -> None:
        async with await psycopg.AsyncConnection.connect(migrated) as connection:
            await connection.execute("insert into effect values (1)")
            await forever()
            await ctx.complete(on=connection)

    task = app.task(name="slow")(handler)
    async with app.node():
        job = await task.enqueue()
        await until_async(lambda: running(app, job))
        await job.cancel()
        await until_async(lambda: cancelled(app, job))
    assert await effects() == 0


async def running(app: App, job: Any) -> bool:
    return (await app.get(job.id)).state is State.RUNNING


async def cancelled(app: App, job: Any) -> bool:
    return (await app.get(job.id)).state is State.CANCELLED


async def finished(app: App, job: Any) -> bool:
    return (await app.get(job.id)).completed_at is not None
