"""Latency: from the call that enqueues to the first line of the handler, on an idle worker."""

from __future__ import annotations

import time
from typing import Any

import click

from bench.command import common, run
from bench.parties import RAW
from bench.process import Contender
from bench.report import Result
from bench.server import Server
from bench.workers import Wrong, place

COLUMNS = {"p50_ms": "p50 ms", "p99_ms": "p99 ms", "enqueue_p50_ms": "of it, enqueue p50 ms"}
SETTLE_SECONDS = 3.0


def percentile(values: list[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def latency(server: Server, contender: Contender, jobs: int, gap: float) -> dict[str, float]:
    """One slice: ``jobs`` enqueued one by one, ``gap`` seconds apart plus or minus a half."""
    with place(server, contender) as here, here.workers(1, 2 * jobs + 10, timed=True) as workers:
        here.call("load", jobs=1, size=80)  # it works
        workers.wait_ran(1)
        time.sleep(SETTLE_SECONDS)
        sent = here.call("produce", jobs=jobs, first=1, gap=gap, size=80)
        workers.wait_ran(jobs + 1)
        workers.stop()
        started = dict(here.ledgers.timed())
    if len(started) != jobs + 1:
        raise Wrong(f"{contender.name}: {jobs + 1} jobs, {len(started)} ran")
    waits = [(started[n] - before) / 1e6 for n, before, _ in sent]
    return {
        "p50_ms": percentile(waits, 0.5),
        "p99_ms": percentile(waits, 0.99),
        "enqueue_p50_ms": percentile([(after - before) / 1e6 for _, before, after in sent], 0.5),
    }


@click.command("latency")
@common()
@click.option("--jobs", default=300)
@click.option("--gap", default=0.03, help="seconds between two jobs, plus or minus a half")
def command(jobs: int, gap: float, **options: Any) -> None:
    """From the enqueuing call to the handler, on an idle worker."""
    with run(**options) as this:
        said = f"{jobs} jobs a round, one each {gap:g} s; from before the enqueuing call"
        result = Result("Latency, idle worker", said, COLUMNS, RAW.name)
        this.interleave(result, lambda c: latency(this.server, c, jobs, gap))
