"""The gate for APScheduler."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from apscheduler.events import EVENT_JOB_ERROR, EVENT_SCHEDULER_PAUSED
from apscheduler.executors.pool import ProcessPoolExecutor, ThreadPoolExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import STATE_PAUSED, STATE_RUNNING, STATE_STOPPED
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from leasework import App
from leasework.errors import ConfigError, LostLease, Unavailable
from leasework.integrations.apscheduler import (
    _first_from,
    _Gate,
    leader_gate,
    leader_gate_in_thread,
)
from tests.services.several import Database, several_apps
from tests.support.wait import forever, until_async

FAR = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
async def database(dsn: str, migrated: str) -> AsyncIterator[Database]:
    async with several_apps(dsn, migrated) as database:
        yield database


def nothing() -> None: ...


async def test_a_scheduler_runs_here_only_while_this_process_leads(database):
    one, two = database.app(), database.app()
    ran: list[str] = []

    async def work(who: str) -> None:
        ran.append(who)

    schedulers = [AsyncIOScheduler(timezone="UTC") for _ in range(2)]
    pauses: list[Any] = []  # the pause itself may be too short to be seen
    for who, scheduler in zip("ab", schedulers, strict=True):
        scheduler.add_job(work, "interval", seconds=0.05, args=[who], id="work")
    async with leader_gate(schedulers[0], one, "engine"):
        await until_async(lambda: len(ran) > 2, 30)
        async with leader_gate(schedulers[1], two, "engine"):
            assert schedulers[1].state == STATE_PAUSED and set(ran) == {"a"}
            schedulers[0].add_listener(pauses.append, EVENT_SCHEDULER_PAUSED)
            await database.sql(
                "delete from leasework.node where id in"
                " (select node from leasework.leader where name = 'leader:engine')"
            )
            await until_async(lambda: pauses, 30)
            paused_after = len(ran)
            await until_async(lambda: len(ran) > paused_after, 30)
    assert schedulers[0].state == schedulers[1].state == STATE_STOPPED


async def test_a_coroutine_that_runs_at_the_loss_is_cancelled(database):
    app = database.app()
    seen: list[str] = []

    async def work() -> None:
        seen.append("runs")
        try:
            await forever()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    scheduler = AsyncIOScheduler(timezone="UTC")
    scheduler.add_job(work, id="work", misfire_grace_time=None)
    async with leader_gate(scheduler, app, "engine"):
        await until_async(lambda: seen == ["runs"], 30)
        await database.sql("delete from leasework.node")
        await until_async(lambda: seen == ["runs", "cancelled"], 30)


async def test_a_run_that_was_submitted_before_the_loss_does_nothing(database):
    """What ``pause`` cannot take back."""
    app = database.app()
    ran: list[int] = []
    scheduler = BackgroundScheduler(timezone="UTC")
    async with leader_gate(scheduler, app, "engine") as lead:
        await lead.wait(timeout=30)
        job = scheduler.add_job(
            lambda: ran.append(1), next_run_time=FAR, id="work", misfire_grace_time=None
        )
        executor = scheduler._executors["default"]
        submit_job = scheduler._lookup_executor("default").submit_job
        await asyncio.to_thread(submit_job, job, [datetime.now(UTC)])
        await until_async(lambda: ran == [1])
        lead.lost.set("as at a deadline")
        await asyncio.to_thread(submit_job, job, [datetime.now(UTC)])
        await until_async(lambda: job.id not in executor._instances)
    assert ran == [1]


async def test_a_background_scheduler_in_a_thread(database):
    app = database.app()
    ran = threading.Event()

    def in_background() -> None:
        scheduler = BackgroundScheduler(timezone="UTC")
        scheduler.add_job(ran.set, "interval", seconds=0.05)
        with leader_gate_in_thread(scheduler, app, "engine") as lead:
            assert lead.wait(30) and ran.wait(30)
            assert scheduler.state == STATE_RUNNING
        assert scheduler.state == STATE_STOPPED

    await asyncio.to_thread(in_background)


async def test_what_was_due_while_another_led_is_not_run_again_and_what_was_missed_is_late(
    database,
):
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.start(paused=True)
    now = datetime.now(UTC).replace(microsecond=0)
    hour_ago = now - timedelta(hours=1)
    minutes = IntervalTrigger(minutes=1, start_date=hour_ago)
    scheduler.add_job(nothing, minutes, id="each-minute", next_run_time=hour_ago)
    scheduler.add_job(nothing, "date", run_date=hour_ago, id="once", misfire_grace_time=None)
    late = now - timedelta(seconds=2)
    scheduler.add_job(nothing, "date", run_date=late, id="missed", misfire_grace_time=None)
    gate = _Gate(scheduler, database.app())
    gate._skip_before(now - timedelta(seconds=5))
    left = {job.id: job.next_run_time for job in scheduler.get_jobs()}
    scheduler.shutdown()
    assert left.keys() == {"each-minute", "missed"}
    assert left["missed"] == late
    assert now - timedelta(seconds=5) <= left["each-minute"] <= now + timedelta(seconds=60)


async def test_a_process_pool_is_refused_before_anything_starts(database):
    app = database.app()
    background = BackgroundScheduler(timezone="UTC")
    in_loop = AsyncIOScheduler(timezone="UTC")
    for scheduler in (background, in_loop):
        scheduler.add_executor(ProcessPoolExecutor(1), "processes")

    def enter() -> None:
        with leader_gate_in_thread(background, app, "engine"):
            pytest.fail("it is not guarded")

    with pytest.raises(ConfigError, match="another process"):
        await asyncio.to_thread(enter)
    with pytest.raises(ConfigError, match="another process"):
        async with leader_gate(in_loop, app, "engine"):
            pytest.fail("it is not guarded")
    assert {s.state for s in (background, in_loop)} == {STATE_STOPPED}


async def test_a_process_pool_that_is_added_later_gets_no_runs_and_the_others_are_guarded(database):
    app = database.app()
    scheduler = BackgroundScheduler(timezone="UTC")
    async with leader_gate(scheduler, app, "engine") as lead:
        await lead.wait(timeout=30)
        scheduler.add_executor(ProcessPoolExecutor(1), "processes")
        scheduler.add_executor(ThreadPoolExecutor(1), "threads")
        job = scheduler.add_job(nothing, next_run_time=FAR, id="work", misfire_grace_time=None)
        with pytest.raises(ConfigError, match="'processes'"):
            scheduler._lookup_executor("processes").submit_job(job, [datetime.now(UTC)])
        failed: list[Any] = []
        scheduler.add_listener(lambda event: failed.append(event.exception), EVENT_JOB_ERROR)
        lead.lost.set("as at a deadline")
        scheduler._lookup_executor("threads").submit_job(job, [datetime.now(UTC)])
        await until_async(lambda: failed, 30)
    assert isinstance(failed[0], LostLease)


async def test_a_second_gate_on_a_scheduler_asks_its_own_leadership(database):
    app = database.app()
    ran: list[int] = []
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.start(paused=True)
    for number in (1, 2):
        async with leader_gate(scheduler, app, f"engine {number}"):
            scheduler.add_job(ran.append, "date", args=[number], misfire_grace_time=None)
            await until_async(lambda number=number: number in ran, 30)
        assert scheduler.state == STATE_PAUSED
    scheduler.shutdown(wait=False)


async def test_a_database_that_is_away_at_the_start_is_said_and_not_waited_for(tmp_path):
    app = App(f"host={tmp_path}", call_timeout=1)
    scheduler = BackgroundScheduler(timezone="UTC")

    def enter() -> None:
        with leader_gate_in_thread(scheduler, app, "engine"):
            pytest.fail("there is no database")

    with pytest.raises(Unavailable):
        await asyncio.to_thread(enter)
    assert scheduler.state == STATE_STOPPED


MOMENT = datetime(2026, 1, 7, 12, tzinfo=UTC)
THREE = CronTrigger(hour=3, timezone="UTC")


@pytest.mark.parametrize(
    ("trigger", "following"),
    [
        (THREE, datetime(2026, 1, 8, 3, tzinfo=UTC)),
        (IntervalTrigger(hours=5, start_date=datetime(2026, 1, 1, tzinfo=UTC), timezone="UTC"),
         datetime(2026, 1, 7, 16, tzinfo=UTC)),
        (CalendarIntervalTrigger(days=1, hour=3, start_date="2026-01-05", timezone="UTC"),
         datetime(2026, 1, 8, 3, tzinfo=UTC)),
        (OrTrigger([DateTrigger(datetime(2026, 1, 5, tzinfo=UTC)), THREE]),
         datetime(2026, 1, 8, 3, tzinfo=UTC)),
        (AndTrigger([CalendarIntervalTrigger(days=1, hour=3, start_date="2026-01-05",
                                             timezone="UTC"), THREE]),
         datetime(2026, 1, 8, 3, tzinfo=UTC)),
        (DateTrigger(datetime(2026, 1, 5, tzinfo=UTC)), None),
    ],
)  # fmt: skip
def test_the_runs_of_another_leader_are_skipped_whatever_the_trigger(trigger, following) -> None:
    due = trigger.get_next_fire_time(None, datetime(2026, 1, 5, tzinfo=UTC))
    assert due < MOMENT
    assert _first_from(trigger, due, MOMENT) == following
