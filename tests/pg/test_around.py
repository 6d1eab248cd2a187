"""Around a job: the lifespan of its process, and middleware, wherever the handler runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from leasework import App, CallNext, Context
from leasework.errors import BadJob, ConfigError, JobCancelled, JobFailed
from leasework.jobs.attempt import Attempts
from leasework.model.states import State
from leasework.testing import drain
from tests.pg import around
from tests.support.wait import until_async

Lines = Callable[[], list[str]]


@pytest.fixture
async def shop(
    migrated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[App]:
    monkeypatch.setattr(around, "journal", tmp_path / "journal")
    monkeypatch.setenv("LEASEWORK_TEST_AROUND", str(tmp_path / "journal"))
    around.app.configure(dsn=migrated)
    yield around.app
    await around.app.close()


@pytest.fixture
def lines(shop: App, tmp_path: Path) -> Lines:
    return lambda: (tmp_path / "journal").read_text().splitlines()


@pytest.mark.parametrize(
    ("name", "state"),
    [("in_loop", True), ("in_thread", True), ("in_process", None), ("async_in_process", None)],
)
async def test_a_handler_runs_inside_the_middleware_and_has_the_state_of_the_worker(
    shop: App, lines: Lines, name: str, state: bool | None
) -> None:
    """But a child process enters no lifespan."""
    task: Any = getattr(around, name)
    async with shop.node():
        first, second = await task.enqueue(), await task.enqueue()
        assert await first.wait(60) == await second.wait(60) == ["acme", state]
    each = [f"outer of {name}, attempt 1 of 5", f"inner saw {['acme', state]}", "outer ends"]
    told = lines()
    assert told[0] == "enter" and told[-1] == "leave"
    assert sorted(told[1:-1]) == sorted(each * 2)


async def test_a_child_process_has_the_settings_of_its_worker(shop: App) -> None:
    async with shop.node():
        made = await (await around.enqueues_in_process.enqueue()).wait(60)
    assert (await shop.get(made)).task_name == "in_loop"


async def test_middleware_that_looks_whether_it_should_stop_does_not_answer_for_the_handler(
    migrated: str,
) -> None:
    app, timed_out = App(migrated), threading.Event()

    @app.middleware
    async def measures(ctx: Context, call_next: CallNext) -> Any:
        async def look() -> None:
            await until_async(lambda: asyncio.sleep(0, ctx.cancelled), what="the timeout")
            timed_out.set()

        looking = asyncio.create_task(look())
        try:
            return await call_next()
        finally:
            await looking

    @app.task(name="plain", timeout=0.1)
    def plain() -> None:
        assert timed_out.wait(60)

    job = await plain.enqueue()
    await drain(app)
    record = await app.get(job.id)
    assert (record.state, record.attempt) == ("completed", 1), "it finished its work"
    await app.close()


async def test_a_handler_that_cleans_up_after_a_cancel_may_report_its_progress(
    migrated: str,
) -> None:
    app, begun, undone = App(migrated), asyncio.Event(), []

    @app.task(name="undoes")
    async def undoes(ctx: Context) -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ctx.progress(1, "undoing")
            await asyncio.sleep(0)
            undone.append(ctx.attempt)
            raise

    async with app.node():
        job = await undoes.enqueue()
        await begun.wait()
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.wait(60)
    assert undone == [1]
    await app.close()


async def test_jobs_of_one_child_share_neither_context_nor_tasks(shop: App) -> None:
    async with shop.node(queues={"default": 1}):
        first = await around.tells_tenant.enqueue(sets=True)
        assert await first.wait(60) == "nobody [False]"
        second = await around.tells_tenant.enqueue(sets=False)
        assert await second.wait(60) == "nobody [True]"


async def test_a_plain_handler_in_a_process_may_run_a_loop_although_there_is_middleware(
    shop: App,
) -> None:
    async with shop.node():
        assert await (await around.runs_a_loop.enqueue()).wait(60) == 7


async def test_middleware_that_gives_up_does_not_let_go_of_a_thread_that_runs(
    shop: App, lines: Lines
) -> None:
    job = await around.slow_thread.enqueue()
    async with shop.node():
        with pytest.raises(JobFailed):
            await job.wait(60)
        assert lines().index("thread ends") > 0, "its outcome was recorded while it ran"
    assert "TimeoutError" in ((await shop.get(job.id)).last_error or "")


async def test_middleware_cannot_hide_that_no_thread_started(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(migrated)
    ran: list[int] = []

    @app.middleware
    async def hides(ctx: Any, call_next: Any) -> Any:
        with suppress(Exception):
            return await call_next()

    @app.task(name="plain")
    def plain() -> None:
        ran.append(1)

    def refuses(*given: Any) -> Any:
        raise RuntimeError("can't start new thread")

    job = await plain.enqueue()
    monkeypatch.setattr(Attempts, "_pool", refuses)
    await drain(app)
    record = await app.get(job.id)
    assert (record.state, record.held_because, ran) == (State.SCHEDULED, "no_process", [])
    await app.close()


async def test_middleware_wraps_a_handler_without_a_context(shop: App) -> None:
    async with shop.node():
        assert await (await around.without_context.enqueue()).wait(60) == "acme"


@pytest.mark.parametrize("name", ["fails", "fails_in_thread", "fails_in_process"])
async def test_middleware_sees_the_error_and_what_it_raises_is_recorded(
    shop: App, lines: Lines, name: str
) -> None:
    job = await getattr(around, name).enqueue()
    async with shop.node():
        with pytest.raises(JobFailed, match="discarded"):
            await job.wait(60)
    assert "outer saw LookupError('no such user')" in lines()
    error = (await shop.get(job.id)).last_error or ""
    assert error.startswith("ValueError: told by the middleware")


async def test_middleware_that_does_not_call_the_handler_decides_the_outcome(
    shop: App, lines: Lines
) -> None:
    job = await around.refused.enqueue()
    await drain(shop)
    assert (await shop.get(job.id)).state is State.SCHEDULED
    assert "refused ran" not in lines()
    assert lines()[0] == "enter" and lines()[-1] == "leave", "drain enters the lifespan as well"


async def test_a_process_that_runs_no_jobs_does_not_enter_the_lifespan(
    shop: App, tmp_path: Path
) -> None:
    async with shop.node(execute=False):
        pass
    assert not (tmp_path / "journal").exists()


async def test_a_lifespan_that_fails_stops_the_process_before_it_joins(migrated: str) -> None:
    @asynccontextmanager
    async def broken(app: App) -> AsyncIterator[None]:
        raise LookupError("no credentials")
        yield

    app = App(migrated, lifespan=broken)
    app.task(name="t")(lambda: None)
    with pytest.raises(LookupError, match="no credentials"):
        async with app.node():
            pytest.fail("it started")
    assert await (await app.inspect()).nodes() == []
    await app.close()


async def test_middleware_that_is_not_a_coroutine_function_or_comes_too_late_is_refused(
    migrated: str,
) -> None:
    app = App(migrated)
    with pytest.raises(BadJob, match="middleware is a coroutine function"):
        app.middleware(lambda ctx, call_next: call_next())
    async with app.node():
        with pytest.raises(ConfigError, match="middleware is defined too late"):

            @app.middleware
            async def late(ctx: Any, call_next: Any) -> Any: ...

    await app.close()
