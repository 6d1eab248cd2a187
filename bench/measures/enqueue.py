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

COLUMNS = {"each_per_second": "one by one/s", "bulk_per_second": "bulk/s"}


def enqueue(server: Server, contender: Contender, jobs: int, bulk: int) -> dict[str, float]:
    """One slice: both, in one database."""
    with place(server, contender) as here:
        each = here.call("each", jobs=jobs, size=80)
        many = here.call("load", jobs=bulk, size=80)
    return {
        "each_per_second": jobs / each["seconds"],
        "bulk_per_second": bulk / many["seconds"],
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
