"""Drain: a loaded queue, and worker processes until it is empty; each job ran exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import click

from bench.command import common, run
from bench.cost import buffers_now, cost_now
from bench.parties import RAW
from bench.process import Contender
from bench.report import Result
from bench.server import Server
from bench.workers import Place, Workers, Wrong, place

COLUMNS = {
    "jobs_per_second": "jobs/s",
    "worker_cpu_us": "worker CPU µs/job",
    "backend_cpu_us": "backend CPU µs/job",
    "server_cpu_us": "server CPU µs/job",
    "wal_bytes": "WAL B/job",
    "buffers": "buffers/job",
    "worker_mb": "worker MB",
}


@dataclass(frozen=True)
class Work:
    """What is to be done: ``jobs`` with ``size`` bytes of text by ``workers`` processes."""

    jobs: int
    workers: int = 1
    size: int = 80
    history: bool = True
    sleep_ms: float = 0.0
    """Each handler sleeps so long."""


def drain(
    server: Server,
    contender: Contender,
    work: Work,
    prepare: Callable[[Place], None] | None = None,
) -> dict[str, float]:
    """One slice, in a database of its own; ``prepare`` sees it before the jobs are loaded."""
    work = replace(work, jobs=max(100, int(work.jobs * contender.share)))
    with place(server, contender) as here:
        if prepare:
            prepare(here)
        loaded = here.call("load", jobs=work.jobs, size=work.size, history=work.history)
        here.watcher.execute("analyze")
        measured = drained(here, work)
        check(here, work)
        return {"load_jobs_per_second": work.jobs / loaded["seconds"], **measured}


def drained(here: Place, work: Work, **more: Any) -> dict[str, float]:
    """The rate counts from the first job seen running to the moment when the database calls none
    unfinished; the costs as well."""
    buffers = buffers_now(here.server, here.dbname)
    options = {"history": work.history, "sleep_ms": work.sleep_ms, **more}
    with here.workers(work.workers, 2 * work.jobs, **options) as workers:
        workers.wait_ran(1, 0.001)
        figures = emptied(here, workers, work.jobs)
        workers.stop()
    if here.contender.redis:
        return figures
    time.sleep(0.05)  # a backend tells its last counts while it ends
    buffers = buffers_now(here.server, here.dbname) - buffers
    return {**figures, "buffers": buffers / work.jobs}


def emptied(
    here: Place, workers: Workers, jobs: int, release: Callable[[], Any] = lambda: None
) -> dict[str, float]:
    """From now on until all ``jobs`` are finished: the rate, and what each job has cost.
    ``release`` is called when it is known what was before."""
    pid = here.watcher.info.backend_pid
    used = workers.cpu_seconds()
    before = cost_now(here.server, here.dbname, pid)
    first = here.ledgers.count
    release()
    start = time.monotonic()
    workers.wait_ran(jobs)
    ran = time.monotonic()
    workers.wait(lambda: not here.unfinished())
    end = time.monotonic()
    spent = cost_now(here.server, here.dbname, pid) - before
    used = workers.cpu_seconds() - used
    counted = max(1, jobs - first)
    figures = {
        "jobs_per_second": counted / (end - start),
        "seconds": end - start,
        "recorded_after_seconds": end - ran,
        "worker_cpu_us": used / counted * 1e6,
        "worker_mb": workers.memory_mb(),
        "jobs": jobs,
    }
    if here.contender.redis:
        return figures  # what the redis has cost is not measured
    return {**figures, **spent.per_job(counted), "wal_fpi": spent.wal_fpi}


def check(here: Place, work: Work) -> None:
    """Each job ran exactly once, and is recorded. Raises Wrong."""
    numbers = here.ledgers.numbers()
    if len(numbers) != work.jobs or set(numbers) != set(range(work.jobs)):
        raise Wrong(f"{work.jobs} jobs, {len(numbers)} runs of {len(set(numbers))} of them")
    finished = here.finished() if work.history else None
    if finished not in (None, work.jobs):
        raise Wrong(f"{work.jobs} jobs, {finished} recorded as finished at the first attempt")


@click.command("drain")
@common()
@click.option(
    "--jobs", default=300_000, help="many: a loop written by hand slows down as its table fills"
)
@click.option("--workers", default=1)
@click.option("--size", default=80, help="bytes of text in each job's payload")
@click.option("--sleep-ms", default=0.0, help="each handler sleeps so long")
@click.option("--history", type=click.Choice(["both", "on", "off"]), default="both")
def command(
    jobs: int, workers: int, size: int, sleep_ms: float, history: str, **options: Any
) -> None:
    """A loaded queue, drained by worker processes; and what it costs the server."""
    with run(**options, always=["raw-overlapped"]) as this:
        for kept in {"both": (True, False), "on": (True,), "off": (False,)}[history]:
            work = Work(jobs, workers, size, kept, sleep_ms)
            title = f"Drain, {workers} worker process{'es' if workers > 1 else ''}, history "
            title += "kept" if kept else "not kept"
            what = f"of {sleep_ms:g} ms" if sleep_ms else "of nothing"
            said = f"{jobs:,} async jobs {what}, {size} bytes of text each"
            result = Result(title, said, COLUMNS, RAW.name)
            # peers keep what has finished, or take no notice of what we ask
            able = this.contenders if kept else [c for c in this.contenders if not c.packages]
            this.interleave(result, lambda c, w=work: drain(this.server, c, w), able)
