"""``leasework.testing`` without a database: contexts, and the moments of schedules."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from leasework import App, Context
from leasework.errors import BadJob, BadPayload, BadSchedule, ConfigError, JobCancelled
from leasework.testing import context, next_runs, sync_context


@pytest.fixture
def app() -> App:
    """An application that has no database."""
    return App()


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
