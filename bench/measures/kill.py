"""kill -9 in the middle of a drain: what had run and was not recorded (it runs again), and how
long until another worker runs the dead one's jobs."""

from __future__ import annotations

import random
import signal
import time
from typing import Any

import click

from bench.command import common, run
from bench.process import Contender
from bench.report import Result, median
from bench.server import Server
from bench.workers import Wrong, place

COLUMNS = {
    "unrecorded": "ran, not recorded: no-op",
    "unrecorded_most": "most of all",
    "unrecorded_1ms": "... 1 ms a job",
    "unrecorded_1ms_most": "most of all",
    "recovery_seconds": "runs again after s",
}


def unrecorded(server: Server, contender: Contender, jobs: int, sleep_ms: float) -> int:
    """Runs that the database does not know of, at a kill in mid-drain."""
    with place(server, contender) as here:
        here.call("load", jobs=jobs, size=80)
        with here.workers(1, 2 * jobs, sleep_ms=sleep_ms) as workers:
            workers.wait_ran(jobs // 2, 0.001)
            time.sleep(random.random() * 0.02)  # at any moment of its loop
            for side in workers.sides:
                side.stop(signal.SIGKILL)
        _wait_for_backends(server, here.dbname)
        finished = here.finished()
        if finished is None:
            raise Wrong(f"{contender.name} keeps no record of what finished")
        return here.ledgers.count - finished


def _wait_for_backends(server: Server, dbname: str) -> None:
    """Statements that were sent are carried out before their backend sees that nobody is there."""
    limit = time.monotonic() + 10
    while len(server.backends(dbname)) > 1 and time.monotonic() < limit:
        time.sleep(0.01)


def recovery(server: Server, contender: Contender, jobs: int, most: float) -> float | None:
    """Seconds from the kill of the worker that runs ``jobs`` to their second start, by another
    one that lives; None if they do not in ``most``."""
    with place(server, contender) as here:
        here.call("load", jobs=jobs, size=80)
        with here.workers(1, 4 * jobs, sleep_ms=600_000.0, limit_seconds=most + 60) as first:
            first.wait_ran(jobs)
            with here.workers(1, 4 * jobs, limit_seconds=most + 60) as second:
                time.sleep(8.0)  # it has joined, and seen the other one alive
                for side in first.sides:
                    side.stop(signal.SIGKILL)
                start = time.monotonic()
                try:
                    second.wait(
                        lambda: here.ledgers.count >= 2 * jobs or time.monotonic() > start + most,
                        0.01,
                    )
                finally:
                    seconds = time.monotonic() - start
                for side in second.sides:
                    side.stop(signal.SIGKILL)
    return seconds if seconds < most else None


@click.command("kill")
@common()
@click.option("--jobs", default=20_000)
@click.option("--kills", default=5, help="of each kind in a round")
@click.option("--most", default=40.0, help="seconds to wait for the recovery")
def command(jobs: int, kills: int, most: float, **options: Any) -> None:
    """kill -9: what was not recorded, and when it runs again."""

    def measure(contender: Contender) -> dict[str, float]:
        few = max(1000, int(jobs * contender.share))
        figures = {}
        for key, sleep_ms in ("unrecorded", 0.0), ("unrecorded_1ms", 1.0):
            lost = [unrecorded(this.server, contender, few, sleep_ms) for _ in range(kills)]
            figures |= {key: median(lost), f"{key}_most": max(lost)}
        seconds = recovery(this.server, contender, 10, most)
        return figures | ({"recovery_seconds": seconds} if seconds is not None else {})

    with run(**options) as this:
        said = f"{jobs:,} jobs, {kills} times killed when half had run; recovery of 10 jobs, "
        said += f"at most {most:g} s"
        this.interleave(Result("kill -9", said, COLUMNS, ""), measure)
