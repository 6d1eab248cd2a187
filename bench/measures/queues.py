"""Many queues: one worker process of one queue and of many, idle, and with the same jobs in one
queue and spread over all of them."""

from __future__ import annotations

import time
from typing import Any

import click

from bench.command import common, run
from bench.measures import drain
from bench.measures.drain import Work, check, drained
from bench.measures.idle import quiet
from bench.parties import LEASEWORK
from bench.report import Result
from bench.server import Server
from bench.workers import place

COLUMNS = {
    "idle_statements": "idle: statements/s",
    "idle_core_percent": "idle: server CPU, % of a core",
    **drain.COLUMNS,
}


def spread(
    server: Server, work: Work, queues: int, seconds: float, settle: float
) -> dict[str, float]:
    """One slice: a worker that is idle for ``seconds``, then one that drains the jobs, which lie in
    ``queues`` queues in turn."""
    with place(server, LEASEWORK) as here:
        with here.workers(1, 10, queues=queues) as workers:
            time.sleep(settle)
            core_percent, statements = quiet(server, here, seconds)
            workers.stop()
        here.call("load", jobs=work.jobs, size=work.size, queues=queues)
        here.watcher.execute("analyze")
        figures = drained(here, work, queues=queues)
        check(here, work)
    idle = {"idle_statements": statements.total() / seconds, "idle_core_percent": core_percent}
    return {**idle, **figures}


@click.command("queues")
@common()
@click.option("--jobs", default=50_000)
@click.option("--queues", default=500)
@click.option("--seconds", default=30.0, help="idle, for the CPU and again for the statements")
@click.option("--settle", default=10.0, help="seconds before, for elections and first polls")
def command(jobs: int, queues: int, seconds: float, settle: float, **options: Any) -> None:
    """One queue, and many."""
    with run(**options) as this:
        said = f"{jobs:,} no-op jobs, one worker process that works all the queues"
        said += f"; idle for {seconds:g} s"
        result = Result("Many queues, leasework", said, COLUMNS, "1 queue")
        this.results.append(result)
        for turn in range(this.rounds):
            for count in (1, queues) if turn % 2 == 0 else (queues, 1):
                name = f"{count} queue{'s' if count > 1 else ''}"
                result.add(name, figures := spread(this.server, Work(jobs), count, seconds, settle))
                click.echo(f"round {turn + 1} {name}: {figures}", err=True)
