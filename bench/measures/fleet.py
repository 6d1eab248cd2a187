"""Fleets: the same backlog, drained by few and by many worker processes, which are all idle when it
comes; beside a held snapshot as well."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any, NamedTuple

import click

from bench.command import Run, common, run
from bench.measures.drain import Work, check, emptied
from bench.measures.held import open_transaction
from bench.parties import RAW
from bench.process import Contender
from bench.report import Result
from bench.server import Server
from bench.workers import place, queries_of

_LIMIT_SECONDS = 600.0
_TABLES = {
    "jobs_per_second": "jobs/s",
    "server_cpu_us": "server CPU µs/job",
    "growth": "server CPU/job, times that of the first column",
    "wal_bytes": "WAL B/job",
}


class Case(NamedTuple):
    workers: int
    held: bool = False
    """A reading transaction in another session keeps the snapshot that it took before the jobs."""

    def __str__(self) -> str:
        return f"{self.workers} worker{'s'[: self.workers > 1]}{', snapshot held' * self.held}"


def fleet(
    server: Server, contender: Contender, case: Case, jobs: int, settle: float
) -> dict[str, float]:
    """One slice. The workers have started and sleep when all jobs appear in one commit, so that no
    part of their start is counted."""
    work = Work(max(100, int(jobs * contender.share)), case.workers)
    with ExitStack() as stack:
        here = stack.enter_context(place(server, contender))
        if case.held:
            stack.enter_context(open_transaction(here.database, writes=False))
        limit = settle + _LIMIT_SECONDS
        workers = stack.enter_context(here.workers(case.workers, 2 * work.jobs, limit))
        time.sleep(settle)
        here.watcher.execute("begin")
        here.queries.fill_ready(here.watcher, work.jobs)
        here.watcher.execute("analyze")
        here.queries.wake(here.watcher)
        figures = emptied(here, workers, work.jobs, lambda: here.watcher.execute("commit"))
        workers.stop()
        check(here, work)
    return figures


def _compare(this: Run, cases: list[Case], jobs: int, settle: float) -> None:
    able = [c for c in this.contenders if hasattr(queries_of(c), "fill_ready")]
    columns = {str(case): str(case) for case in cases}
    said = f"{jobs:,} no-op jobs, 80 bytes of text each, come at once to idle worker processes"
    results = {
        key: Result(f"Fleets, {heading}", said, columns, RAW.name)
        for key, heading in _TABLES.items()
    }
    this.results += results.values()
    for turn in range(this.rounds):
        slices: dict[str, dict[str, dict[str, float]]] = {c.name: {} for c in able}
        for case in cases:
            for contender in able if turn % 2 == 0 else able[::-1]:
                figures = fleet(this.server, contender, case, jobs, settle)
                slices[contender.name][str(case)] = figures
                click.echo(f"round {turn + 1} {contender.name}, {case}: {figures}", err=True)
        for name, of in slices.items():
            first = of[str(cases[0])]["server_cpu_us"]
            for figures in of.values():
                figures["growth"] = figures["server_cpu_us"] / (first or float("nan"))
            for key, result in results.items():
                result.add(name, {case: figures[key] for case, figures in of.items()})


@click.command("fleet")
@common()
@click.option("--jobs", default=300_000)
@click.option("--workers", multiple=True, default=(1, 4, 16, 32), help="again for each number")
@click.option("--held", multiple=True, type=int, help="workers beside a held snapshot, as well")
@click.option("--settle", default=15.0, help="seconds for all workers to start")
def command(
    jobs: int, workers: tuple[int, ...], held: tuple[int, ...], settle: float, **options: Any
) -> None:
    """Few and many worker processes: what the server pays for a job."""
    cases = [*(Case(count) for count in workers), *(Case(count, held=True) for count in held)]
    with run(**options, always=["raw-overlapped"]) as this:
        _compare(this, cases, jobs, settle)
