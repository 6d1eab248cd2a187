"""A failed attempt keeps the last lines that its handler logged, wherever it ran."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from leasework import Context, SyncContext
from leasework.testing import drain
from leasework.tuning import Tuning

logger = logging.getLogger("shop.mail")


@pytest.fixture(autouse=True)
def levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


async def attempts_of(app: Any, job: Any) -> list[Any]:
    return list(await (await app.reports()).attempts(job.id, 10))


async def failing(ctx: Context, lines: int) -> None:
    for number in range(lines):
        logger.info("line %d of %s", number, "postgresql://ann:secret-word@db/shop")
    ctx.log.warning("it will fail")
    raise ValueError("no")


def failing_thread(ctx: SyncContext, lines: int) -> None:
    for number in range(lines):
        logger.info("line %d", number)
    ctx.log.warning("it will fail")
    raise ValueError("no")


async def working(ctx: Context) -> int:
    ctx.log.warning("all well")
    return 7


def working_thread(ctx: SyncContext) -> int:
    ctx.log.warning("all well")
    return 7


async def saying_nothing() -> None: ...


@pytest.mark.parametrize(
    ("handler", "options"),
    [(failing, {}), (failing_thread, {}), (failing_thread, {"executor": "process"})],
    ids=["async", "thread", "process"],
)
async def test_the_last_lines_are_kept(app: Any, handler: Any, options: dict[str, Any]):
    task = app.task(name="t", max_attempts=1, **options)(handler)
    job = await task.enqueue(lines=Tuning.kept_lines + 5)
    await drain(app)
    [attempt] = await attempts_of(app, job)
    if options:  # the child's root logger has the level WARNING
        assert "it will fail" in attempt.log.splitlines()[-1]
        return
    lines = attempt.log.splitlines()
    assert len(lines) == Tuning.kept_lines and "it will fail" in lines[-1]
    assert f"INFO shop.mail: line {Tuning.kept_lines + 4}" in lines[-2]
    assert "secret-word" not in attempt.log


async def test_jobs_keep_their_own_lines_and_completed_ones_none(app: Any):
    bad = app.task(name="bad", max_attempts=1)(failing)
    good = app.task(name="good")(working)
    jobs = [await bad.enqueue(lines=n) for n in (0, 1, 2)]
    well = await good.enqueue()
    await drain(app)
    for number, job in enumerate(jobs):
        [attempt] = await attempts_of(app, job)
        assert len(attempt.log.splitlines()) == number + 1
    assert await attempts_of(app, well) == []


@pytest.mark.parametrize(
    ("handler", "options"),
    [(working, {}), (working_thread, {}), (working_thread, {"executor": "process"})],
    ids=["async", "thread", "process"],
)
async def test_a_task_may_keep_the_log_of_attempts_that_complete(
    app: Any, sql: Any, handler: Any, options: dict[str, Any]
):
    talks = app.task(name="talks", keep_log=True, **options)(handler)
    silent = app.task(name="silent", keep_log=True)(saying_nothing)
    jobs = [await talks.enqueue(), await silent.enqueue(), await talks.enqueue()]
    await drain(app)
    assert [(await app.get(job.id)).result for job in jobs] == [7, None, 7]
    for job in (jobs[0], jobs[2]):
        [attempt] = await attempts_of(app, job)
        assert attempt.outcome == "completed" and "all well" in attempt.log
        assert attempt.error is None and (await app.get(job.id)).state == "completed"
    assert await attempts_of(app, jobs[1]) == []
    assert await (await app.operator("kim", "cli")).failures() == []


async def test_a_secret_that_the_limit_would_cut_in_two_is_masked(app: Any):
    async def long() -> None:
        logger.info("postgresql://ann:secret-word@db/%s", "x" * 7_960)
        raise ValueError("no")

    job = await app.task(name="long", max_attempts=1)(long).enqueue()
    await drain(app)
    [attempt] = await attempts_of(app, job)
    assert len(attempt.log) >= 7_900 and "secret-word" not in attempt.log


async def test_a_record_whose_arguments_do_not_fit_is_left_out(app: Any):
    async def odd() -> None:
        record = logging.getLogRecordFactory()("x", 20, "f", 1, "%d and %d", ("one",), None)
        assert record.name == "x"
        logger.warning("then this")
        raise ValueError("no")

    job = await app.task(name="odd", max_attempts=1)(odd).enqueue()
    await drain(app)
    [attempt] = await attempts_of(app, job)
    assert [line.partition(": ")[2] for line in attempt.log.splitlines()] == ["then this"]
