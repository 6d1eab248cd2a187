"""Recovery: the host of a worker is lost, while few or many jobs wait in the same queue. How long
until another worker has run the lost worker's jobs?"""

from __future__ import annotations

import signal
import time
from typing import Any

import click

from bench.command import common, run
from bench.parties import LEASEWORK
from bench.report import Result
from bench.server import Server
from bench.workers import Wrong, place

COLUMNS = {"recovery_seconds": "finished after s"}
_JOBS = 10
_LIMIT_SECONDS = 600.0


def recovery(server: Server, ready: int, most: float) -> dict[str, float]:
    """One slice: seconds from the kill until the database has the ends of all lost jobs, which
    another worker runs beside ``ready`` jobs that wait."""
    with place(server, LEASEWORK) as here:
        here.call("load", jobs=_JOBS, size=80)
        long: dict[str, Any] = {"sleep_ms": 86_400_000.0, "slots": _JOBS}
        with here.workers(1, 4 * _JOBS, _LIMIT_SECONDS, **long) as lost:
            lost.wait_ran(_JOBS)
            jobs = here.queries.running(here.watcher)
            here.queries.fill_ready(here.watcher, ready)
            here.watcher.execute("vacuum analyze leasework.job")
            with here.workers(1, ready + 4 * _JOBS, _LIMIT_SECONDS) as other:
                time.sleep(8.0)  # it has joined, and seen the other one alive
                for side in lost.sides:
                    side.stop(signal.SIGKILL)
                start = time.monotonic()
                while here.queries.done(here.watcher, jobs) < _JOBS:
                    if (seconds := time.monotonic() - start) > most:
                        raise Wrong(f"the jobs have not finished within {seconds:.0f} s")
                    time.sleep(0.01)
                seconds = time.monotonic() - start
                left = here.queries.ready_left(here.watcher)
                for side in other.sides:
                    side.stop(signal.SIGKILL)
    if ready and not left:
        raise Wrong(f"all {ready:,} jobs had run before the lost ones: choose more")
    return {"recovery_seconds": seconds}


@click.command("recovery")
@common()
@click.option("--ready", multiple=True, type=int, default=(0, 10_000_000), help="again for each")
@click.option("--most", default=60.0, help="seconds to wait for the recovery")
def command(ready: tuple[int, ...], most: float, **options: Any) -> None:
    """A lost worker's jobs, beside few and many jobs that wait."""
    with run(**options) as this:
        cases = {f"{count:,} waiting": count for count in ready}
        said = f"{_JOBS} jobs of a killed worker, beside jobs that wait in the same queue"
        result = Result("Recovery, leasework", said, COLUMNS, next(iter(cases)))
        this.results.append(result)
        for turn in range(this.rounds):
            for name, count in list(cases.items())[:: 1 if turn % 2 == 0 else -1]:
                result.add(name, figures := recovery(this.server, count, most))
                click.echo(f"round {turn + 1} {name}: {figures}", err=True)
