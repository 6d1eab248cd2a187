"""Flatness: the same drain on a small table, with many jobs ready, with many jobs waiting."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import click

from bench.command import common, run
from bench.cost import cost_now
from bench.parties import LEASEWORK, RAW
from bench.process import Contender
from bench.report import Result
from bench.workers import Place, Wrong, place

COLUMNS = {
    "jobs_per_second": "jobs/s",
    "worker_cpu_us": "worker CPU µs/job",
    "backend_cpu_us": "backend CPU µs/job",
    "wal_bytes": "WAL B/job",
}


@dataclass(frozen=True)
class Case:
    """``ready``: this many jobs can run, and only some of them do; ``waiting``: this many are due
    tomorrow."""

    name: str
    ready: int = 0
    waiting: int = 0

    def prepare(self, here: Place) -> None:
        if self.ready:
            here.queries.fill_ready(here.watcher, self.ready)
        if self.waiting:
            here.queries.fill_waiting(here.watcher, self.waiting)
        here.watcher.execute("analyze")


def some_of(here: Place, case: Case, jobs: int) -> dict[str, float]:
    """One slice: ``jobs`` jobs run; the rate counts their starts, since a backlog goes on. All
    begin alike: jobs whose pages are written anew whole, and no vacuum that another slice left."""
    here.fresh_ledgers()
    here.queries.settle(here.watcher)
    if not case.ready:
        here.call("load", jobs=jobs, size=80)
    here.watcher.execute("vacuum (analyze)")
    here.server.checkpoint()
    pid = here.watcher.info.backend_pid
    with here.workers(1, 3 * jobs + 20_000) as workers:
        workers.wait_ran(1, 0.001)
        before, used = cost_now(here.server, here.dbname, pid), workers.cpu_seconds()
        first, start = here.ledgers.count, time.monotonic()
        workers.wait_ran(jobs)
        count, end = here.ledgers.count, time.monotonic()
        spent = cost_now(here.server, here.dbname, pid) - before
        used = workers.cpu_seconds() - used
        if not case.ready:
            workers.wait(lambda: not _work_left(here))
        workers.stop()
    here.watcher.execute("vacuum")
    numbers = here.ledgers.numbers()
    if len(numbers) != len(set(numbers)):
        raise Wrong(f"{case.name}: {len(numbers)} runs of {len(set(numbers))} jobs")
    done = max(1, count - first)
    return {
        "jobs_per_second": done / (end - start),
        "worker_cpu_us": used / done * 1e6,
        **spent.per_job(done),
    }


def _work_left(here: Place) -> bool:
    return bool(here.queries.ready_left(here.watcher))


@click.command("backlog")
@common()
@click.option("--jobs", default=50_000, help="that run in each slice")
@click.option("--ready", default=1_000_000, help="0: leave this case out")
@click.option("--waiting", default=10_000_000, help="0: leave this case out")
@click.option("--raw", is_flag=True, help="the raw loop as well")
def command(jobs: int, ready: int, waiting: int, raw: bool, **options: Any) -> None:
    """A small table, many jobs ready, many jobs waiting: the same speed?"""
    cases = [Case("small table")]
    cases += [Case(f"{ready:,} ready", ready=ready)] if ready else []
    cases += [Case(f"{waiting:,} waiting", waiting=waiting)] if waiting else []
    with run(**options) as this:
        for contender in (LEASEWORK, RAW) if raw else (LEASEWORK,):
            _compare(this, contender, cases, jobs)


def _compare(this: Any, contender: Contender, cases: list[Case], jobs: int) -> None:
    result = Result(f"Flatness, {contender.name}", f"{jobs:,} jobs a slice", COLUMNS, cases[0].name)
    this.results.append(result)
    with ExitStack() as stack:
        places = []
        for case in cases:
            here = stack.enter_context(place(this.server, contender))
            start = time.monotonic()
            case.prepare(here)
            click.echo(f"{case.name}: loaded in {time.monotonic() - start:.0f} s", err=True)
            places.append((case, here))
        this.server.checkpoint()
        for turn in range(this.rounds):
            for case, here in places if turn % 2 == 0 else places[::-1]:
                figures = some_of(here, case, jobs)
                result.add(case.name, figures)
                click.echo(f"round {turn + 1} {case.name}: {figures}", err=True)
