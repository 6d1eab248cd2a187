"""Runs the measurements one after the other and shows the results."""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from leasework import __version__
from leasework.app import App, Task
from leasework.cli.output import show_json, show_pairs
from leasework.config import Settings
from leasework_lab.bench import tables as database
from leasework_lab.bench.processes import MeasurementFailed, Worker, cpu_seconds, workers
from leasework_lab.bench.tables import BenchStore
from leasework_lab.bench.worker import make_app_and_task

_TEXT = "x" * 80
_BULK = 10_000
_EACH = 500
_WAITS = 200
_GAP_SECONDS = 0.03
_LOOK_SECONDS = 0.02
_SETTLE_SECONDS = 8.0
_DRAIN_SECONDS = 600.0
_BACKEND = "postgres:"


@dataclass(frozen=True)
class Plan:
    """``jobs`` for each of ``rounds`` drains by ``workers`` processes; then one worker is observed
    for ``idle_seconds``."""

    jobs: int
    workers: int
    rounds: int
    idle_seconds: float


def run(dsn: str | None, plan: Plan, as_json: bool) -> None:
    """Raises MeasurementFailed, or the database's error if it cannot be used."""
    figures = asyncio.run(_run(dsn, plan))
    if as_json:
        show_json(figures)
    else:
        for title, pairs in figures.items():
            click.echo(f"\n{title}")
            show_pairs({f"  {name}": _shown(value) for name, value in pairs.items()})


def _shown(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


async def _run(dsn: str | None, plan: Plan) -> dict[str, dict[str, Any]]:
    wanted = dsn or os.environ.get("LEASEWORK_DSN") or "embedded"
    app, noop = make_app_and_task(wanted)
    settings = (
        app.settings
        if wanted != "embedded"
        else Settings.load({**vars(app.settings), "dsn": await app.dsn()})
    )
    with tempfile.TemporaryDirectory(prefix="leasework-bench-") as folder:
        bench = _Bench(app, noop, settings, plan, Path(folder))
        try:
            return await bench.all()
        finally:
            await app.close()
            await database.drop(settings)


class _Bench:
    def __init__(
        self, app: App, noop: Task[Any, Any], settings: Settings, plan: Plan, folder: Path
    ) -> None:
        self._app = app
        self._noop = noop
        self._settings = settings
        self._plan = plan
        self._folder = folder
        self._store = BenchStore(settings)
        self._boot_now = app.env.boot_now

    async def all(self) -> dict[str, dict[str, Any]]:
        try:
            rounds = [await self._round(number) for number in range(self._plan.rounds)]
            self._say("latency and idle cost")
            await database.make_anew(self._settings)
            quiet = await self._quiet()
            server = await self._store.server()
        finally:
            await self._store.close()
        split = [(name, _median([figures[name] for figures in rounds])) for name in rounds[0]]
        return {
            "Enqueue": dict(split[:2]),
            f"Drain, {self._plan.workers} worker process(es), each job exactly once": dict(
                split[2:]
            ),
            "One worker": quiet,
            "Measured with": {
                "leasework": __version__,
                "work": f"{self._plan.jobs} no-op jobs; medians of {self._plan.rounds} rounds",
                "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
                f"Python {platform.python_version()}",
                **server,
            },
        }

    def _say(self, words: str) -> None:
        click.echo(f"measuring {words} ...", err=True)

    # -- enqueue and drain -----------------------------------------------------------------------
    async def _round(self, number: int) -> dict[str, float | None]:
        self._say(f"enqueue and drain, round {number + 1} of {self._plan.rounds}")
        await database.make_anew(self._settings)
        each, many = await self._enqueue_each(), await self._enqueue_many()
        await self._app.close()
        before = await self._store.counters()
        running = workers(
            self._settings.dsn, self._plan.workers, self._folder, self._settings.grace + 10
        )
        async with running as started:
            await self._drained(started)
            after = await self._store.counters()
            theirs = cpu_seconds(after.backends - before.backends, _BACKEND)
            ours = cpu_seconds(worker.pid for worker in started)
        buffers = (await self._store.counters()).buffers - before.buffers
        span = await self._store.span()
        jobs = self._plan.jobs + _EACH
        if (span.runs, span.jobs) != (jobs, jobs):
            raise MeasurementFailed(
                f"{jobs} jobs were enqueued, but {span.runs} rows of {span.jobs} jobs are recorded "
                "as completed at the first attempt",
                do="Please report this: it must not happen",
            )
        return {
            "one by one, jobs/s": each,
            "in bulk, jobs/s": many,
            "jobs/s": jobs / span.seconds if span.seconds else None,
            "worker CPU us/job, with its start": _each(ours, jobs),
            "backends' CPU us/job": _each(theirs, jobs),
            "WAL bytes/job": (after.wal_bytes - before.wal_bytes) / jobs,
            "buffers/job": buffers / jobs,
        }

    async def _enqueue_each(self) -> float:
        await self._noop.enqueue(text=_TEXT)  # opens the connection
        start = self._boot_now()
        for _ in range(_EACH - 1):
            await self._noop.enqueue(text=_TEXT)
        return (_EACH - 1) / (self._boot_now() - start)

    async def _enqueue_many(self) -> float:
        start = self._boot_now()
        for first in range(0, self._plan.jobs, _BULK):
            count = min(_BULK, self._plan.jobs - first)
            await self._app.enqueue_many([self._noop.job(text=_TEXT) for _ in range(count)])
        return self._plan.jobs / (self._boot_now() - start)

    async def _drained(self, started: list[Worker]) -> None:
        give_up_at = self._boot_now() + _DRAIN_SECONDS
        while await self._store.left():
            for worker in started:
                worker.check()
            if self._boot_now() > give_up_at:
                raise MeasurementFailed(f"the queue is not empty after {_DRAIN_SECONDS:g} s")
            await asyncio.sleep(_LOOK_SECONDS)

    # -- one worker with little or nothing to do -------------------------------------------------
    async def _quiet(self) -> dict[str, float | None]:
        grace = self._settings.grace + 10
        await self._noop.enqueue(text=_TEXT)
        async with workers(self._settings.dsn, 1, self._folder, grace) as started:
            await self._drained(started)
            await asyncio.sleep(1.0)
            for _ in range(_WAITS):
                await asyncio.sleep(self._app.env.jitter(_GAP_SECONDS, 0.5))
                await self._noop.enqueue(text=_TEXT, sent=self._boot_now())
            await self._drained(started)
            waits = sorted(await self._store.waits())
            await self._app.close()
            await asyncio.sleep(min(_SETTLE_SECONDS, self._plan.idle_seconds))
            idle = await self._idle(started)
        return {
            "enqueue to start, p50 ms": _percentile(waits, 0.5) * 1000,
            "enqueue to start, p99 ms": _percentile(waits, 0.99) * 1000,
            **idle,
        }

    async def _idle(self, started: list[Worker]) -> dict[str, float | None]:
        pids = [worker.pid for worker in started]
        before = await self._store.counters()
        theirs, ours = cpu_seconds(before.backends, _BACKEND), cpu_seconds(pids)
        await asyncio.sleep(self._plan.idle_seconds)
        theirs_after, ours_after = cpu_seconds(before.backends, _BACKEND), cpu_seconds(pids)
        after = await self._store.counters()
        seconds = self._plan.idle_seconds
        return {
            "idle leader, transactions/s": max(
                0.0, (after.transactions - before.transactions - 1) / seconds
            ),
            "idle leader, worker CPU s in 30 s": _share(ours, ours_after, seconds),
            "idle leader, backends' CPU s in 30 s": _share(theirs, theirs_after, seconds),
            "connections": len(before.backends),
        }


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _each(seconds: float | None, jobs: int) -> float | None:
    return None if seconds is None else seconds / jobs * 1e6


def _share(before: float | None, after: float | None, seconds: float) -> float | None:
    return None if before is None or after is None else (after - before) * 30 / seconds


def _percentile(ordered: list[float], share: float) -> float:
    """Nearest rank."""
    if not ordered:
        raise MeasurementFailed("no job reported how long it waited")
    return ordered[round(share * (len(ordered) - 1))]
