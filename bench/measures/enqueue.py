"""Enqueue: one job a commit, and in bulk."""

from __future__ import annotations

from typing import Any

import click

from bench.command import common, run
from bench.parties import RAW
from bench.process import Contender
from bench.report import Result
from bench.server import Server
from bench.workers import place

COLUMNS = {
    "each_per_second": "one by one/s",
    "each_cpu_us": "client CPU µs/job",
    "bulk_per_second": "bulk/s",
    "bulk_cpu_us": "client CPU µs/job, bulk",
}


def enqueue(server: Server, contender: Contender, jobs: int, bulk: int) -> dict[str, float]:
    """One slice: both, in one database."""
    with place(server, contender) as here:
        each = here.call("each", jobs=jobs, size=80, costed=True)
        many = here.call("load", jobs=bulk, size=80, costed=True)
    return {
        "each_per_second": jobs / each["seconds"],
        "each_cpu_us": each["cpu_seconds"] / jobs * 1e6,
        "bulk_per_second": bulk / many["seconds"],
        "bulk_cpu_us": many["cpu_seconds"] / bulk * 1e6,
    }


@click.command("enqueue")
@common(rounds=5)
@click.option("--jobs", default=2000, help="one by one")
@click.option("--bulk", default=50_000, help="in bulk")
def command(jobs: int, bulk: int, **options: Any) -> None:
    """One job a commit, and in bulk; nobody works meanwhile."""
    with run(**options) as this:
        said = f"{jobs:,} jobs one by one, each with its commit; {bulk:,} in bulk, 10,000 a call"
        result = Result("Enqueue", said, COLUMNS, RAW.name)
        this.interleave(result, lambda c: enqueue(this.server, c, jobs, bulk))
