"""Many schedules: what a leader that has nothing to fire costs, and many ticks due at once."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from bench.command import common, run
from bench.cost import cpu_seconds
from bench.parties import LEASEHOLD
from bench.report import Result
from bench.server import Server
from bench.workers import Place, Wrong, place
from leasehold import App

COLUMNS = {
    "late_p50": "enqueued late, p50 s",
    "late_max": "enqueued late, max s",
    "ran_late": "all ran after s",
    "idle_core_percent": "idle leader, % of a core (worker)",
    "idle_backends_percent": "... (its backends)",
}


def schedules(
    server: Server, count: int, due: int, idle_seconds: float, lead: float
) -> dict[str, float]:
    """One slice: ``count`` daily schedules, ``due`` of them at one moment soon."""
    with place(server, LEASEHOLD) as here:
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=lead + idle_seconds + 5)
        later = at + timedelta(hours=12)
        asyncio.run(_samples(here.dsn, at, later))
        here.queries.multiply_schedules(here.watcher, due, count - due)
        here.watcher.execute("vacuum analyze leasehold.schedule")
        with here.workers(1, 2 * due + 100) as workers:
            time.sleep(lead / 2)
            backends = server.backends(here.dbname) - {here.watcher.info.backend_pid}
            ours, theirs = workers.cpu_seconds(), sum(map(cpu_seconds, backends))
            time.sleep(idle_seconds)
            ours = workers.cpu_seconds() - ours
            theirs = sum(map(cpu_seconds, backends)) - theirs
            if datetime.now(UTC) >= at:
                raise Wrong("the machine was too slow: a longer --lead, please")
            workers.wait_ran(due)
            ran = (datetime.now(UTC) - at).total_seconds()
            workers.wait(lambda: not here.unfinished())
            workers.stop()
        return {
            **_lateness(here, due),
            "ran_late": ran,
            "idle_core_percent": ours / idle_seconds * 100,
            "idle_backends_percent": theirs / idle_seconds * 100,
        }


async def _samples(dsn: str, at: datetime, later: datetime) -> None:
    """One schedule of each kind by the public way; the others are copies of their rows."""
    app = App(dsn, name="bench", release="bench")
    for name, anchor in (("due", at), ("later", later)):
        task = app.task(_noop, name=f"{name}-noop")
        options = {"name": name, "arguments": {"n": 0, "text": ""}}
        app.every(seconds=86400, anchor=anchor, **options)(task)
    async with app.node(execute=False) as _:
        for _ in range(600):
            if len(await (await app.inspect()).schedules()) == 2:
                break
            await asyncio.sleep(0.05)
    await app.close()


async def _noop(n: int, text: str) -> None:
    """Stands for the worker's task of the same arguments."""


def _lateness(here: Place, due: int) -> dict[str, float]:
    jobs, distinct, middle, most = here.queries.lateness(here.watcher)
    if (jobs, distinct) != (due, due):
        raise Wrong(f"{due} ticks were due, {jobs} jobs of {distinct} schedules were made")
    if len(set(here.ledgers.numbers())) != due or here.ledgers.count != due:
        raise Wrong(f"{due} ticks were due, {here.ledgers.count} runs")
    return {"late_p50": middle, "late_max": most}


@click.command("schedules")
@common(rounds=1)
@click.option("--count", default=100_000)
@click.option("--due", default=10_000, help="of them in one second")
@click.option("--idle", default=15.0, help="seconds to watch before that")
@click.option("--lead", default=25.0, help="seconds for the start")
def command(count: int, due: int, idle: float, lead: float, **options: Any) -> None:
    """Many schedules, many of them due in one second."""
    with run(**options) as this:
        said = f"{count:,} daily schedules, {due:,} of them due at one moment, each once"
        result = Result("Schedules, leasehold", said, COLUMNS, LEASEHOLD.name)
        this.results.append(result)
        for _ in range(this.rounds):
            result.add(LEASEHOLD.name, schedules(this.server, count, due, idle, lead))
