"""Many queues: the same jobs in one queue, and spread over many, by one worker process."""

from __future__ import annotations

from typing import Any

import click

from bench.command import common, run
from bench.measures.drain import COLUMNS, Work, check, drained
from bench.parties import LEASEHOLD
from bench.report import Result
from bench.server import Server
from bench.workers import place


def spread(server: Server, work: Work, queues: int) -> dict[str, float]:
    """One slice: the jobs lie in ``queues`` queues in turn."""
    with place(server, LEASEHOLD) as here:
        here.call("load", jobs=work.jobs, size=work.size, queues=queues)
        here.watcher.execute("analyze")
        figures = drained(here, work, queues=queues)
        check(here, work)
    return figures


@click.command("queues")
@common()
@click.option("--jobs", default=50_000)
@click.option("--queues", default=200)
def command(jobs: int, queues: int, **options: Any) -> None:
    """One queue, and many."""
    with run(**options) as this:
        said = f"{jobs:,} no-op jobs, one worker process that works all the queues"
        result = Result("Many queues, leasehold", said, COLUMNS, "1 queue")
        this.results.append(result)
        for turn in range(this.rounds):
            for count in (1, queues) if turn % 2 == 0 else (queues, 1):
                name = f"{count} queue{'s' if count > 1 else ''}"
                result.add(name, figures := spread(this.server, Work(jobs), count))
                click.echo(f"round {turn + 1} {name}: {figures}", err=True)
