"""``ctx.progress``: what a handler reports while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from leasework import App, Context, SyncContext
from leasework.errors import JobFailed, LostClaim, WaitTimeout
from leasework.model.job import JobRecord
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]
NOTE = "a quarter\\0\\ud800 password=••••••"


async def test_progress_is_seen_while_the_job_runs(app: App) -> None:
    go_on = asyncio.Event()

    @app.task()
    async def slow(ctx: Context) -> None:
        await ctx.progress(0.25, "a quarter\x00\ud800 password=hunter22")
        await go_on.wait()

    async with app.node():
        job = await slow.enqueue()

        async def seen() -> JobRecord | None:
            record = await job.get()
            return record if record.progress else None

        record = await until_async(seen)
        assert record
        assert (record.progress, record.progress_note) == (0.25, NOTE)
        with pytest.raises(WaitTimeout, match="is running after 0"):
            await job.wait(0)
        go_on.set()
        await job.wait(60)
    record = await job.get()
    assert (record.progress, record.progress_note) == (0.25, NOTE), "it is kept"


async def test_a_report_that_the_database_cannot_record_costs_no_attempt(
    app: App, sql: Sql, migrated: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its connection ends while the table is locked."""
    started, locked, free = threading.Event(), threading.Event(), threading.Event()

    @app.task(max_attempts=1)
    async def slow(ctx: Context) -> None:
        started.set()
        await asyncio.to_thread(locked.wait, 60)
        await ctx.progress(0.5)
        await asyncio.to_thread(free.wait, 60)
        await ctx.progress(0.75, "three quarters")

    @app.task(max_attempts=1)
    def in_thread(ctx: SyncContext) -> None:
        started.set()
        locked.wait(60)
        ctx.progress(0.5)
        free.wait(60)
        ctx.progress(0.75, "three quarters")

    cut = """
        select pg_terminate_backend(pid) from pg_stat_activity
        where wait_event_type = 'Lock' and query like '%progress = %'
          and datname = current_database()
    """
    async with app.node():
        for task in (slow, in_thread):
            for event in (started, locked, free):
                event.clear()
            job = await task.enqueue()
            await until_async(started.is_set, 30)
            async with await psycopg.AsyncConnection.connect(migrated) as locking:
                await locking.execute("lock table leasework.job in share mode")
                locked.set()
                await until_async(lambda: sql(cut), 30, "a report that waits")
            free.set()
            await job.wait(60)
            record = await job.get()
            assert (record.attempt, record.progress_note) == (1, "three quarters")
    assert caplog.text.count("the progress could not be recorded") == 2


async def test_progress_is_a_share(app: App) -> None:
    shares: list[Any] = [-0.1, 1.1, "half", float("nan"), True]

    @app.task(max_attempts=1)
    async def wrong(ctx: Context, n: int) -> None:
        await ctx.progress(shares[n])

    async with app.node():
        for n in range(len(shares)):
            with pytest.raises(JobFailed, match="progress takes a share from 0 to 1"):
                await (await wrong.enqueue(n=n)).wait(60)


async def test_progress_after_a_lost_claim_says_so(app: App, sql: Sql) -> None:
    told: list[str] = []

    @app.task()
    async def slow(ctx: Context) -> None:
        if ctx.attempt > 1:
            return
        assert await (await app.store()).requeue(ctx.job_id, ctx.token)
        try:
            await ctx.progress(0.5)
        except LostClaim:
            told.append("lost")

    async with app.node():
        job = await slow.enqueue()
        await job.wait(60)
    assert told == ["lost"] and (await job.get()).attempt == 2
