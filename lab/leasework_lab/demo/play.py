"""The course of the demo: four processes, a steady stream of jobs, a kill, and the scorecard."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leasework.app.certify import Certifier
from leasework.errors import Unavailable
from leasework_lab.demo.app import NAME, SCHEDULE, SPEC, DemoApp
from leasework_lab.demo.breaker import Breaker
from leasework_lab.demo.database import DemoDatabase
from leasework_lab.demo.fleet import Fleet
from leasework_lab.demo.kill import kill_leaders
from leasework_lab.demo.recording import Recording
from leasework_lab.demo.scorecard import Evidence, Scorecard, score
from leasework_lab.demo.show import STOPPING, Screen, print_scorecard
from leasework_lab.demo.stage import Stage
from leasework_lab.demo.tables import make_anew
from leasework_lab.demo.watch import Watcher

if TYPE_CHECKING:
    from leasework_lab.demo.front import Front

PROCESSES = 4
FIRST_RELEASE = "blue-1"
MAX_SECONDS = 3600
"""Also the limit of a run without ``--seconds``, because the evidence is counted in memory."""

_JOIN_SECONDS = 60.0
_LEAST_STREAM_SECONDS = 4.0
"""The shortest stream, however long the start took."""
_FIRST_KILL_SECONDS = 6.0
"""Seconds after all have joined, in a run without a fixed end."""
_BEAT_SECONDS = 0.1
_QUICK_A_BEAT = 3
_SLOW_EVERY_BEATS = 3
_LAST_SLOW_SECONDS = 2.0
"""No slow job is enqueued this shortly before the end, to keep the drain short."""
_KILL_SECONDS = 60.0
_DRAIN_SECONDS = 30.0


@dataclass(frozen=True)
class Ending:
    card: Scorecard
    first_job_seconds: float | None
    """Seconds from the start."""
    recording: Recording
    """The recording for the report."""


@dataclass(frozen=True)
class Wishes:
    """``seconds``: from the start to the end of the stream (None: until ``stop``). ``web``: serve a
    dashboard. ``port`` 0: any. ``browse``: open it in a browser. ``quit`` also ends the dashboard,
    which otherwise stays for as long as somebody reads the scorecard."""

    seconds: int | None
    stop: asyncio.Event
    quit: asyncio.Event
    web: bool = False
    port: int = 0
    browse: bool = False


async def perform(
    database: DemoDatabase, logs: Path, started_at: float, wishes: Wishes, screen: Screen
) -> Ending:
    """Set the stage, play, and clean up. ``started_at``: CLOCK_BOOTTIME."""
    demo = DemoApp(database.dsn)
    settings = demo.app.settings
    front: Front | None = None
    try:
        await make_anew(settings)
        certifier = await Certifier.begin(settings)
        fleet = Fleet(settings, demo.app.env, certifier, logs, wishes.web and database.can_cut)
        stage = Stage(demo, fleet, started_at, wishes.stop)
        play = Play(stage, screen, database if wishes.web else None)
        try:
            if play.breaker:
                from leasework_lab.demo.front import Front

                front = await Front.open(stage, play.breaker, wishes.port)
                screen.say(f"The show: {front.url}")
                if wishes.browse:
                    await front.browse()
            card = await play.run(wishes.seconds)
            screen.close()
            print_scorecard(card, play.first_job_seconds)
            ending = Ending(card, play.first_job_seconds, await Recording.of(stage))
            if front and wishes.seconds is None and not wishes.quit.is_set():
                screen.say(f"The scorecard: {front.url}   Ctrl-C ends it")
                await wishes.quit.wait()
            return ending
        finally:
            if front:
                await front.close()
            await fleet.end()
            await certifier.finish(settings.call_timeout)
    finally:
        await demo.close()


class Play:
    """One run on a stage that has been set."""

    def __init__(self, stage: Stage, screen: Screen, breakable: DemoDatabase | None = None) -> None:
        """``breakable``: people may cause faults, also in this database."""
        self._stage = stage
        self.breaker = Breaker(stage, breakable, self._go) if breakable else None
        self._watcher = Watcher(stage, screen)
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        self._end = float(MAX_SECONDS)

    @property
    def first_job_seconds(self) -> float | None:
        return self._watcher.first_job_seconds

    async def run(self, seconds: int | None) -> Scorecard:
        """Run until ``seconds`` after the start, or until the stage's ``stop``."""
        stage = self._stage
        try:
            stage.release = FIRST_RELEASE if self.breaker else ""
            stage.clock = (await stage.database_now(), stage.seconds)
            for _ in range(PROCESSES):
                await stage.fleet.spawn(stage.release)
            self._go(self._watcher.run())
            until = await self._stream(seconds)
            await self._drain(until)
            with suppress(Unavailable):
                await self._watcher.see()
            self._phase(STOPPING)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in await stage.fleet.stop():
            stage.troubles.append(f"pid {worker.pid} did not stop when told to")
        return await self._count(until)

    def _go(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it in the background; its failure ends the run."""

        def ended(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error:
                self._failure = self._failure or error
                self._stage.stop.set()

        task = asyncio.create_task(work)
        task.add_done_callback(ended)
        self._tasks.append(task)
        return task

    def _phase(self, phase: str) -> None:
        self._stage.picture.phase = phase
        self._watcher.refresh()

    # -- the stream ------------------------------------------------------------------------------
    async def _stream(self, seconds: int | None) -> datetime:
        """Enqueue jobs and kill leaders. Returns the database's time at the end."""
        stage = self._stage
        enqueuer = self._go(self._enqueue())
        if await self._all_joined():
            ready = stage.seconds
            first_kill = ready + _FIRST_KILL_SECONDS
            if seconds is not None:
                self._end = max(seconds, ready + _LEAST_STREAM_SECONDS)
                stage.picture.end_seconds = self._end
                first_kill = ready + (self._end - ready) / 3
            self._phase("running")
            again = seconds is None
            killing = (
                self.breaker.begin(first_kill)
                if self.breaker
                else kill_leaders(stage, first_kill, again=again)
            )
            killer = self._go(killing)
            await stage.pause(self._end - stage.seconds)
            if again:
                stage.stop.set()
            # a kill in progress is completed, and the stream continues for it
            await asyncio.wait([killer], timeout=_KILL_SECONDS)
            if self.breaker:
                self._phase("waiting for recovery")
                await self.breaker.finish()
        stage.stop.set()
        await asyncio.wait([enqueuer])
        if self._failure:
            raise self._failure
        return await stage.database_now()

    async def _all_joined(self) -> bool:
        """False if the run ends before that."""
        stage = self._stage
        joined = asyncio.create_task(self._watcher.joined.wait())
        stopped = asyncio.create_task(stage.stop.wait())
        done, _ = await asyncio.wait(
            [joined, stopped], timeout=_JOIN_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (joined, stopped):
            task.cancel()
        if not done:
            stage.troubles.append(f"not all processes joined within {_JOIN_SECONDS:g} s")
        return joined in done and not stage.stop.is_set()

    async def _enqueue(self) -> None:
        stage, beat = self._stage, 0
        demo, rng = stage.demo, stage.demo.app.env.rng
        while not stage.stop.is_set():
            jobs = [
                demo.quick.job(seconds=round(rng.uniform(0.01, 0.05), 3))
                for _ in range(_QUICK_A_BEAT)
            ]
            slow_in_time = stage.seconds < self._end - _LAST_SLOW_SECONDS
            if stage.hunting or (beat % _SLOW_EVERY_BEATS == 0 and slow_in_time):
                jobs.append(demo.slow.job(seconds=round(rng.uniform(2.0, 3.0), 2)))
            try:
                stage.enqueued.update(job.id for job in await demo.app.enqueue_many(jobs))
            except Unavailable as error:
                if not stage.database_away:  # otherwise nobody was told that these are accepted
                    stage.troubles.append(f"jobs could not be enqueued: {error}")
            beat += 1
            await stage.pause(_BEAT_SECONDS)

    # -- the end ---------------------------------------------------------------------------------
    async def _drain(self, until: datetime) -> None:
        """Wait until each moment before the end is decided and each job has finished."""
        self._phase("draining: no new jobs")
        stage = self._stage
        app, evidence = stage.demo.app, stage.demo.evidence

        async def all_decided() -> bool:
            _, last = await evidence.decided(NAME, SCHEDULE)
            following = SPEC.next_after(last) if last else None
            return following is not None and following >= until

        async def all_finished() -> bool:
            return (await evidence.look(1)).open_jobs == 0

        await stage.until(app.settings.recover_within, all_decided)
        with suppress(Unavailable):
            await (await app.store()).pause_schedule(NAME, SCHEDULE, True)
        await stage.until(_DRAIN_SECONDS, all_finished)

    async def _count(self, until: datetime) -> Scorecard:
        stage = self._stage
        evidence = stage.demo.evidence
        look = await evidence.look(1)
        stage.card = score(
            Evidence(
                spec=SPEC,
                decided=await evidence.decided(NAME, SCHEDULE),
                until=until,
                enqueued=stage.enqueued,
                runs=await evidence.runs(),
                deaths=stage.deaths,
                limit_seconds=stage.demo.app.settings.recover_within,
                open_jobs=look.open_jobs,
                bad_jobs=look.bad_jobs,
                troubles=stage.troubles,
                acts=stage.acts,
            )
        )
        self._phase("ended")
        return stage.card
