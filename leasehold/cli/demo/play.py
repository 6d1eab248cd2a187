"""The course of the demo: four processes, a steady stream of jobs, a kill, and the count."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from leasehold.app.certify import Certifier
from leasehold.cli.demo.app import NAME, SCHEDULE, SPEC, DemoApp
from leasehold.cli.demo.fleet import Fleet
from leasehold.cli.demo.kill import kill_leaders
from leasehold.cli.demo.scorecard import Evidence, Scorecard, score
from leasehold.cli.demo.show import Screen
from leasehold.cli.demo.stage import Stage
from leasehold.cli.demo.watch import Watcher
from leasehold.errors import Unavailable
from leasehold.pg.demo import make_anew

PROCESSES = 4
MAX_SECONDS = 3600
"""Also of a run without ``--seconds``: the evidence is counted in memory."""

_JOIN_SECONDS = 60.0
_LEAST_STREAM_SECONDS = 4.0
"""However long the start took."""
_FIRST_KILL_SECONDS = 6.0
"""... after all have joined, in a run without end."""
_BEAT_SECONDS = 0.1
_QUICK_A_BEAT = 3
_SLOW_EVERY_BEATS = 3
_LAST_SLOW_SECONDS = 2.0
"""No slow job is enqueued so shortly before the end: the drain is short then."""
_KILL_SECONDS = 60.0
_DRAIN_SECONDS = 30.0


async def perform(
    dsn: str,
    logs: Path,
    started_at: float,
    seconds: int | None,
    stop: asyncio.Event,
    screen: Screen,
) -> tuple[Scorecard, float | None]:
    """Set the stage, play, and clear it away; the scorecard, and the seconds from ``started_at``
    (CLOCK_BOOTTIME) to the first job."""
    demo = DemoApp(dsn)
    settings = demo.app.settings
    try:
        await make_anew(settings)
        certifier = await Certifier.begin(settings)
        fleet = Fleet(settings, demo.app.env, certifier, logs)
        play = Play(Stage(demo, fleet, started_at, stop), screen)
        try:
            return await play.run(seconds), play.first_job_seconds
        finally:
            await fleet.end()
            await certifier.finish(settings.call_timeout)
    finally:
        await demo.close()


class Play:
    """One run on a stage that is set."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self._stage = stage
        self._watcher = Watcher(stage, screen)
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        self._end = float(MAX_SECONDS)

    @property
    def first_job_seconds(self) -> float | None:
        return self._watcher.first_job_seconds

    async def run(self, seconds: int | None) -> Scorecard:
        """Until ``seconds`` after the start, or until the stage's ``stop``."""
        stage = self._stage
        try:
            for _ in range(PROCESSES):
                await stage.fleet.spawn()
            self._go(self._watcher.run())
            until = await self._stream(seconds)
            await self._drain(until)
            with suppress(Unavailable):
                await self._watcher.see()
            self._phase("stopping the processes")
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in await stage.fleet.stop():
            stage.troubles.append(f"pid {worker.pid} did not stop when told to")
        return await self._count(until)

    def _go(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it beside; its failure ends the run."""

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
        """Enqueue and kill; the database's time at the end of it."""
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
            killer = self._go(kill_leaders(stage, first_kill, again=seconds is None))
            await stage.pause(self._end - stage.seconds)
            if seconds is None:
                stage.stop.set()
            # a kill that has begun comes to its end; the stream goes on for it
            await asyncio.wait([killer], timeout=_KILL_SECONDS)
        stage.stop.set()
        await asyncio.wait([enqueuer])
        if self._failure:
            raise self._failure
        return await stage.database_now()

    async def _all_joined(self) -> bool:
        """False when the run ends before."""
        stage = self._stage
        joined = asyncio.create_task(self._watcher.joined.wait())
        stopped = asyncio.create_task(stage.stop.wait())
        done, _ = await asyncio.wait(
            [joined, stopped], timeout=_JOIN_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (joined, stopped):
            task.cancel()
        if not done:
            stage.troubles.append(f"not all processes took part within {_JOIN_SECONDS:g} s")
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
                stage.troubles.append(f"jobs could not be enqueued: {error}")
            beat += 1
            await stage.pause(_BEAT_SECONDS)

    # -- the end ---------------------------------------------------------------------------------
    async def _drain(self, until: datetime) -> None:
        """Until each moment before the end is decided, and each job has finished."""
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
        return score(
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
            )
        )
