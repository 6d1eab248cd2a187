"""``leasework.testing`` without a database: eager mode, contexts, and the moments of schedules."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from leasework import App, CallNext, Cancel, Context, Discard, Snooze, SyncContext
from leasework.errors import (
    BadJob,
    BadPayload,
    BadSchedule,
    ConfigError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    WaitTimeout,
)
from leasework.testing import assert_enqueued, context, eager, next_runs, sync, sync_context


@pytest.fixture
def app() -> App:
    """An application that has no database."""
    return App()


@dataclass
class Line:
    article: UUID
    due: datetime


# -- eager mode ------------------------------------------------------------------------------------
async def test_an_enqueued_job_has_run_when_the_enqueue_returns(app: App) -> None:
    ran: list[str] = []

    @app.task(name="send", tags=["mail"])
    async def send(ctx: Context, to: str) -> str:
        await ctx.progress(0.5, "half")
        ran.append(to)
        return f"sent to {to}"

    with eager(app):
        job = await send.enqueue("kim")
        assert ran == ["kim"]
        assert await job.wait() == "sent to kim"
        record = await assert_enqueued(app, send, to="kim")
        assert (record.id, record.state, record.progress_note) == (job.id, "completed", "half")
        assert await app.jobs(state="completed", tag="mail", task="send") == [record]
        assert await app.jobs(queue="other") == [] and not await job.cancel()
        with pytest.raises(BadJob, match="Did you mean 'completed'"):
            await app.jobs(state="complete")
        with pytest.raises(JobNotFound):
            await app.get(uuid4())
        assert len(await app.enqueue_many(send.job(to=to) for to in "ab")) == 2
    assert ran == ["kim", "a", "b"]
    with pytest.raises(ConfigError, match="no database is configured"):
        await send.enqueue("lee")


async def test_arguments_and_results_are_those_that_the_database_would_return(app: App) -> None:
    @app.task
    async def typed(line: Line) -> Line:
        assert isinstance(line.article, UUID)
        return line

    @app.task
    async def plain(pair: Any) -> Any:
        return pair, {"n": (1,)}

    line = Line(uuid4(), datetime(2030, 1, 1, tzinfo=UTC))
    with eager(app):
        copy = await (await typed.enqueue(line)).wait()
        assert copy == line and copy is not line
        assert await (await plain.enqueue((1, 2))).wait() == [[1, 2], {"n": [1]}]
        assert (await assert_enqueued(app, typed, line=line)).state == "completed"
        with pytest.raises(BadPayload):
            await typed.enqueue("no line")  # type: ignore[arg-type]


@pytest.mark.parametrize("plain", [False, True])
async def test_middleware_runs_around_a_handler_and_both_get_the_state(
    app: App, plain: bool
) -> None:
    seen: list[Any] = []

    @app.middleware
    async def noted(ctx: Context, call_next: CallNext) -> Any:
        seen.append((ctx.task, ctx.state))
        return [await call_next()]

    if plain:

        @app.task(name="t")
        def work(ctx: SyncContext) -> Any:
            return ctx.state
    else:

        @app.task(name="t")
        async def work(ctx: Context) -> Any:
            return ctx.state

    with eager(app, state="pool"):
        assert await (await app.enqueue(work.job())).wait() == ["pool"]
        job = await asyncio.to_thread(app.sync.enqueue, work.job())
        assert await asyncio.to_thread(job.wait) == ["pool"]
    assert seen == [("t", "pool"), ("t", "pool")]


async def test_a_failure_is_raised_by_the_enqueue(app: App) -> None:
    @app.task(name="fail")
    async def fail() -> None:
        raise LookupError("no such user")

    @app.task
    async def unstorable() -> object:
        return object()

    with eager(app):
        with pytest.raises(LookupError, match="no such user"):
            await fail.enqueue()
        [record] = await app.jobs()
        assert (record.state, record.last_error) == ("discarded", "LookupError: no such user")
        with pytest.raises(JobFailed, match="cannot be stored"):
            await unstorable.enqueue()


async def test_a_handler_may_return_an_outcome(app: App) -> None:
    @app.task
    async def end(how: str) -> Any:
        return {"cancel": Cancel("no"), "discard": Discard("no"), "snooze": Snooze(60)}[how]

    with eager(app):
        with pytest.raises(JobCancelled):
            await (await end.enqueue("cancel")).wait()
        with pytest.raises(JobFailed):
            await (await end.enqueue("discard")).wait()
        with pytest.raises(WaitTimeout, match="scheduled"):
            await (await end.enqueue("snooze")).wait()


async def test_what_needs_a_database_is_refused_before_anything_runs(app: App) -> None:
    ran: list[int] = []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)

    at = datetime(2030, 1, 1, tzinfo=UTC)
    with eager(app):
        for options in ({"run_in": 60}, {"run_at": at}, {"unique": "k"}, {"on": object()}):
            with pytest.raises(ConfigError, match=next(iter(options)) + r"=.*leasework_app"):
                await work.using(**options).enqueue(1)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="unique="):
            await app.enqueue_many([work.job(1), work.using(unique="k").job(2)])
        with pytest.raises(ConfigError, match="retry"):
            await app.retry(uuid4())
        with pytest.raises(ConfigError, match="on already"), eager(app):
            raise AssertionError("twice")
    assert ran == []


def test_without_a_loop_a_plain_handler_runs_in_the_calling_thread(app: App) -> None:
    threads: list[str] = []

    @app.task
    def plain(ctx: SyncContext) -> int:
        ctx.progress(1.0)
        threads.append(threading.current_thread().name)
        return 1

    @app.task
    async def waits() -> int:
        await asyncio.sleep(0)
        threads.append(threading.current_thread().name)
        return 2

    with eager(app):
        jobs = [app.sync.enqueue(task.job()) for task in (plain, waits)]
        assert [job.wait() for job in jobs] == [1, 2]
        assert threads == [threading.current_thread().name, "leasework-sync"]
        assert sync.assert_enqueued(app, plain).state == "completed"


async def test_a_plain_handler_that_an_event_loop_enqueues_can_use_app_sync(app: App) -> None:
    @app.task(name="leaf")
    async def leaf() -> int:
        return 7

    @app.task
    def plain() -> None: ...

    @app.task
    def root() -> int:
        result: int = app.sync.wait(app.sync.enqueue(leaf.job()).id)
        return result

    with eager(app):
        assert await (await root.enqueue()).wait() == 7
        with pytest.raises(ConfigError, match="inside an event loop"):
            app.sync.enqueue(plain.job())


# -- contexts --------------------------------------------------------------------------------------
async def test_a_handler_is_called_with_a_context_that_remembers(app: App) -> None:
    @app.task
    async def work(ctx: Context, n: int) -> str:
        await ctx.progress(0.5, "half")
        ctx.log.info("on its way")
        await ctx.assert_mine("connection")
        await ctx.complete(on="connection", result={"n": (n,)})
        return f"{ctx.job_id} {ctx.attempt} {ctx.token} {ctx.schedule} {ctx.scheduled_for:%H:%M}"

    at = datetime(2030, 1, 1, 7, tzinfo=UTC)
    job = uuid4()
    ctx = context(job_id=job, attempt=2, token=9, schedule="daily", scheduled_for=at)
    assert await work(ctx, 3) == f"{job} 2 9 daily 07:00"
    assert ctx.notes == [(0.5, "half")]
    assert ctx.completed and ctx.completion == {"n": [3]}
    fresh = context(state="pool")
    assert (fresh.state, sync_context(state=1).state, fresh.max_attempts) == ("pool", 1, 5)
    assert (fresh.attempt, fresh.cancelled, fresh.completed, fresh.notes) == (1, False, False, [])
    with pytest.raises(BadPayload):
        await fresh.complete(on="connection", result=object())
    with pytest.raises(BadJob, match="from 0 to 1"):
        await fresh.progress(2)


async def test_a_cancelled_context_stops_the_handler_at_its_next_progress() -> None:
    ctx = context()
    ctx.cancel()
    assert ctx.cancelled
    with pytest.raises(asyncio.CancelledError):
        await ctx.progress(0.1)
    plain = sync_context()
    plain.progress(0.1)
    plain.cancel("no longer wanted")
    with pytest.raises(JobCancelled, match="no longer wanted"):
        plain.progress(0.2)
    assert (ctx.notes, plain.notes) == ([], [(0.1, None)])


# -- schedules -------------------------------------------------------------------------------------
def test_a_misspelt_argument_of_a_context_is_refused() -> None:
    for make in (context, sync_context):
        with pytest.raises(ConfigError, match=r"no 'max_attempt'.*'max_attempts'"):
            make(max_attempt=1)  # type: ignore[call-arg]


def test_the_moments_of_a_schedule_need_no_database(app: App) -> None:
    @app.periodic("0 7 * * 1-5", timezone="Asia/Seoul")
    @app.task(name="report")
    async def report() -> None: ...

    friday = datetime(2030, 1, 4, 12, tzinfo=UTC)
    app.once(at=friday, name="once")(report)
    monday = datetime(2030, 1, 6, 22, tzinfo=UTC)
    assert next_runs(app, report, after=friday) == [monday]
    assert next_runs(app, "report", after=monday, count=2) == [
        monday + timedelta(days=1),
        monday + timedelta(days=2),
    ]
    assert next_runs(app, "once", after=monday, count=2) == []
    [coming] = next_runs(app, report)
    assert coming > datetime.now(UTC)
    with pytest.raises(BadSchedule, match="Did you mean 'report'"):
        next_runs(app, "reports")


# -- the plugin ------------------------------------------------------------------------------------
def test_the_plugin_imports_nothing_but_pytest() -> None:
    code = """if True:
        import sys, pytest
        before = set(sys.modules)
        import leasework.testing.plugin
        print(sorted(set(sys.modules) - before))
    """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = ["leasework", "leasework.testing", "leasework.testing.plugin", "leasework.version"]
    assert found.stdout.strip() == str(modules)
