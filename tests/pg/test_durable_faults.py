"""What handlers with steps do wrong or meet: waits at once, cancels, odd functions."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any
from uuid import UUID

import psycopg
import pytest

from leasework import App, Context, SyncContext
from leasework.env import Env
from leasework.errors import BadJob, BadPayload, WaitTimeout
from leasework.jobs import family
from leasework.jobs.steps import StepRecorder
from leasework.model.outcome import StepItem
from leasework.testing import context
from tests.pg.drivers import ALL, Open, done
from tests.pg.test_durable import Sql, ends, is_held
from tests.support.requests import job_request
from tests.support.wait import until_async


async def test_of_two_waits_at_once_the_earlier_end_resumes_the_job(app: App) -> None:
    @app.task
    async def work(ctx: Context) -> str:
        try:
            await asyncio.gather(ctx.event("never"), ctx.event("late", timeout=0.3))
        except WaitTimeout:
            return "late"
        return ""

    job = await work.enqueue()
    async with app.node():
        assert await ends(app, job.id) == "late"


async def test_a_sleep_beside_a_step_waits_for_its_end(app: App, sql: Sql) -> None:
    calls: list[int] = []

    async def asleep() -> bool:
        return bool(await sql("select 1 from leasework.step where kind = 'sleep'"))

    async def long() -> int:
        calls.append(1)
        await until_async(asleep, what="the handler sleeps")
        return len(calls)

    @app.task
    async def work(ctx: Context) -> int:
        return (await asyncio.gather(ctx.sleep(0.01), ctx.step("long", long)))[1]

    job = await work.enqueue()
    async with app.node():
        assert await ends(app, job.id) == 1


@pytest.mark.parametrize("kind", ["thread", "complete"])
async def test_a_wait_where_none_can_be_is_refused(app: App, dsn: str, kind: str) -> None:
    if kind == "thread":

        @app.task(name="work", max_attempts=1)
        def in_thread(ctx: SyncContext) -> None:
            ctx.step("outer", lambda: ctx.sleep(1))

    else:

        @app.task(name="work", max_attempts=1)
        async def work(ctx: Context) -> None:
            async with await psycopg.AsyncConnection.connect(dsn) as connection:
                await ctx.complete(on=connection)
                await ctx.step("late", lambda: 1)

    job = await app.enqueue(job_request("work", "{}", max_attempts=1))
    async with app.node():
        await ends(app, job.id, "discarded")
    words = {"thread": "inside the step 'outer'", "complete": "after ctx.complete"}[kind]
    assert words in str((await app.get(job.id)).last_error)


async def test_a_cancelled_step_does_not_cancel_the_others() -> None:
    ctx = context()
    asked = asyncio.Event()

    async def steps(job: UUID) -> list[Any]:
        if not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        return []

    ctx.memory.steps = steps  # type: ignore[method-assign]
    first = asyncio.create_task(ctx.step("first", lambda: 1))
    await asked.wait()
    second = asyncio.create_task(ctx.step("second", lambda: 2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 2


async def test_of_steps_written_together_only_the_wrong_one_fails() -> None:
    """It fails, whatever its error is, and does not hang."""
    written: list[str] = []

    class Records:
        async def record_steps(self, node: UUID, items: list[StepItem], now: Any) -> Any:
            if any("wrong" in item.name for item in items):
                raise OSError("no")
            written.extend(item.name for item in items)
            return {(item.job, item.name) for item in items}

    store: Any = Records()
    recorder, claim = StepRecorder(store, Env()), context().claim
    names = ("a", "wrong", "b")
    items = [StepItem(claim.job.id, 1, name, "1", 0.0) for name in names]
    found = await asyncio.gather(
        *[recorder.record(claim, item) for item in items], return_exceptions=True
    )
    assert found[0] is None and isinstance(found[1], OSError) and found[2] is None
    assert written == ["a", "b"]


async def test_the_functions_of_steps_are_not_kept() -> None:
    class Large:
        pass

    large = Large()
    seen = weakref.ref(large)

    def returns(held: Large = large) -> dict[str, int]:
        return {"a": 1}

    assert await context().step("a", returns) == {"a": 1}
    del returns, large
    gc.collect()
    assert seen() is None


async def test_a_step_calls_what_has_no_hash() -> None:
    class Odd:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self) -> int:
            return 4

    assert await context().step("odd", Odd()) == 4


async def test_no_payload_or_result_looks_like_an_encoded_one(app: App) -> None:
    job = await app.enqueue(job_request("unknown", "{}"))
    odd = {"$encoded": "eA=="}
    operator = await app.operator("kim", "cli")
    for send in (app.signal(job.id, "go", odd), operator.signal(job.id, "go", odd)):
        with pytest.raises(BadPayload, match="encoded"):
            await send
    with pytest.raises(BadPayload, match="encoded"):
        await context().step("odd", lambda: odd)


async def test_a_signal_that_nobody_can_read_fails_the_step_that_waits_for_it(
    app: App, sql: Sql
) -> None:
    @app.task(max_attempts=1)
    async def waits(ctx: Context) -> str:
        try:
            return str(await ctx.event("go"))
        except BadPayload as error:
            return error.what

    job = await waits.enqueue()
    await sql("select leasework.send_signal(%s, 'go', repeat('9', 5000)::jsonb)", [job.id])
    async with app.node():
        assert "the signal 'go' cannot be read" in await ends(app, job.id)


async def test_nothing_follows_a_job_that_leaves_nothing(app: App, sql: Sql) -> None:
    @app.task
    async def part() -> None: ...

    plain, silent = part.job(), part.using(history=False).job()
    assert plain.then(silent).options.on_success
    for chain in (lambda: silent.then(plain), lambda: plain.then(silent).then(plain)):
        with pytest.raises(BadJob, match="history=False"):
            chain()
    for words in ('"on_success": {"task": "u"}', '"on_success": {"task": "u", "on_success": {}}'):
        with pytest.raises(psycopg.Error, match=r"history false|task must be"):
            await sql(f'select leasework.enqueue(\'{{"task": "t", "history": false, {words}}}\')')


async def test_the_jobs_of_a_batch_in_a_thread_wait_there(app: App) -> None:
    @app.task
    async def square(n: int) -> int:
        return n * n

    def calls() -> list[int]:
        batch = app.sync.batch(square.job(n) for n in range(3))
        return [job.wait(10) for job in batch.jobs]

    async with app.node():
        assert await asyncio.to_thread(calls) == [0, 1, 4]


async def test_a_signal_to_a_job_that_fails_is_there_when_it_runs_again(app: App, sql: Sql) -> None:
    fails = [True]

    def check() -> None:
        if fails:
            raise ValueError("not yet")

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> Any:
        await ctx.step("check", check)
        return await ctx.event("go")

    job = await work.enqueue()
    await app.signal(job.id, "go", 5)
    async with app.node():
        await ends(app, job.id, "discarded")
        store = (await app.stores()).work
        days = {"events": 30, "ticks": 30, "attempts": 30, "history": 30, "finished": 30}
        await store.prune(days, 1000, None)
        assert (await (await app.reports()).durable_counts(None)).signals == 0
        fails.clear()
        await app.retry(job.id)
        assert await ends(app, job.id) == 5


async def test_a_step_is_not_forgotten_while_somebody_holds_the_job(app: App, sql: Sql) -> None:
    job = await app.enqueue(job_request("unknown", "{}"))
    await sql(
        "insert into leasework.step (job, name, kind, token, at) "
        "values (%s, 'a', 'step', 1, now())",
        [job.id],
    )
    store = await app.store()
    session = await psycopg.AsyncConnection.connect(await app.dsn())
    async with session:
        await session.execute("select from leasework.job where id = %s for update", [job.id])
        assert await store.forget_steps(job.id, "a") == 0
    assert await store.forget_steps(job.id, "a") == 1


async def test_a_large_family_is_cancelled_whole(
    app: App, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The members that have ended take no place from those that have not."""
    monkeypatch.setattr(family, "MOST", 2)

    @app.task
    async def child(seconds: float) -> None:
        if seconds:
            await asyncio.sleep(seconds)

    @app.task
    async def parent(ctx: Context) -> None:
        await ctx.gather([child.job(0.0) for _ in range(4)], name="first")
        await ctx.gather([child.using(run_in=3600).job(0.0) for _ in range(5)], name="second")

    job = await parent.enqueue()
    async with app.node():
        await is_held(app, job.id, "gather")
        waiting = "select count(*) from leasework.jobs where state = 'scheduled'"

        async def second() -> bool:
            return (await sql(waiting))[0][0] == 6

        await until_async(second, what="the second jobs wait")
        assert await app.cancel(job.id, family=True)
        assert (await sql(waiting))[0][0] == 0


@pytest.mark.parametrize("open_way", ALL.values(), ids=ALL)
async def test_batches_and_signals_are_part_of_the_users_transaction(
    app: App, sql: Sql, migrated: str, open_way: Open
) -> None:
    @app.task
    async def part(n: int) -> None: ...

    found = "select (select count(*) from leasework.batch), (select count(*) from leasework.inbox)"
    job = await part.enqueue(0)
    for commits in (False, True):
        async with open_way(migrated) as way:
            requests = [part.job(n) for n in range(30)]
            batch = await app.batch(requests, on_done=part.job(31), on=way.connection)
            assert await app.signal(job.id, "go: %s \u2603", {"a": ["\u2603"]}, on=way.connection)
            assert len(batch.jobs) == 30 and all(one.created for one in batch.jobs)
            assert await sql(found) == [(0, 0)]
            await done(way.commit() if commits else way.rollback())
    assert await sql(found) == [(1, 1)]
    assert await sql("select name, payload from leasework.inbox") == [
        ("go: %s \u2603", {"a": ["\u2603"]})
    ]


async def test_a_batch_without_jobs_ends_and_calls(app: App, migrated: str) -> None:
    seen: list[Any] = []

    @app.task
    async def report(batch: dict[str, Any]) -> None:
        seen.append(batch["total"])

    async def reported() -> bool:
        return seen == [0, 0]

    await app.batch([], on_done=report)
    async with await psycopg.AsyncConnection.connect(migrated) as connection:
        await app.batch([], on_success=report, on_failure=report, on=connection)
    async with app.node():
        await until_async(reported, what="both have ended")
