"""Many things of which some come due at one moment: what a leader costs that waits for it, and when
all that is due has run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from bench.command import common, run
from bench.cost import cpu_seconds
from bench.parties import LEASEWORK
from bench.report import Result
from bench.server import Server
from bench.workers import Wrong, place

COLUMNS = {
    "late_p50": "late, p50 s",
    "late_p99": "late, p99 s",
    "late_max": "late, max s",
    "ran_late": "all ran after s",
    "idle_core_percent": "idle leader, % of a core (worker)",
    "idle_backends_percent": "... (its backends)",
}

Samples = Callable[[str, datetime, datetime], Coroutine[Any, Any, None]]
"""Of a DSN and two moments: makes one by the public way for each, named ``due`` and ``later``."""

_count = click.option("--count", default=100_000)
_due = click.option("--due", default=10_000, help="of them in this run")
_spread = click.option("--spread", default=0.0, help="seconds over which their moments are spread")
_idle = click.option("--idle", default=15.0, help="seconds to watch before that")
_lead = click.option("--lead", default=25.0, help="seconds for the start")


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Of a command that calls ``measured``."""
    for option in (_lead, _idle, _spread, _due, _count, common(rounds=1)):
        command = option(command)
    return command


def measured(
    table: str, title: str, said: str, samples: Samples, rows: tuple[int, int], **how: Any
) -> None:
    """``rows`` of ``table``: all, and those that come due; ``how``: the options."""
    idle, lead, spread = how.pop("idle"), how.pop("lead"), how.pop("spread")
    with run(**how) as this:
        result = Result(title, said, COLUMNS, LEASEWORK.name)
        this.results.append(result)
        for _ in range(this.rounds):
            figures = in_a_run(this.server, table, samples, rows, idle, lead, spread)
            result.add(LEASEWORK.name, figures)


def when(spread: float) -> str:
    """Of the moments, for people."""
    return f"with moments spread over {spread:g} s" if spread else "at one moment"


def in_a_run(
    server: Server,
    table: str,
    samples: Samples,
    rows: tuple[int, int],
    idle_seconds: float,
    lead: float,
    spread: float,
) -> dict[str, float]:
    """One slice."""
    count, due = rows
    with place(server, LEASEWORK) as here:
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=lead + idle_seconds + 5)
        asyncio.run(samples(here.dsn, at, at + timedelta(hours=12)))
        here.queries.multiply(here.watcher, table, due, count - due, spread)
        with here.workers(
            1, 2 * due + 100, limit_seconds=170.0 + lead + idle_seconds + spread
        ) as workers:
            time.sleep(lead / 2)
            backends = server.backends(here.dbname) - {here.watcher.info.backend_pid}
            ours, theirs = workers.cpu_seconds(), sum(map(cpu_seconds, backends))
            time.sleep(idle_seconds)
            ours = workers.cpu_seconds() - ours
            theirs = sum(map(cpu_seconds, backends)) - theirs
            if datetime.now(UTC) >= at:
                raise Wrong("the machine was too slow: a longer --lead, please")
            workers.wait_ran(due)
            ran = (datetime.now(UTC) - at).total_seconds() - spread
            workers.wait(lambda: not here.unfinished())
            workers.stop()
        came, late = here.queries.lateness(here.watcher, table)
        runs = here.ledgers.count
        if not came == runs == len(set(here.ledgers.numbers())) == due:
            raise Wrong(f"{due} were due, {came} were seen, and {runs} jobs ran")
        return {
            **late,
            "ran_late": ran,
            "idle_core_percent": ours / idle_seconds * 100,
            "idle_backends_percent": theirs / idle_seconds * 100,
        }
