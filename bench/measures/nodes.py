"""Many idle worker processes: their connections and statements, and what the server pays."""

from __future__ import annotations

from typing import Any

import click

from bench.command import common, run
from bench.measures.idle import beside_a_leader, quiet
from bench.parties import RAW
from bench.process import Contender
from bench.report import Result
from bench.server import Server

COLUMNS = {
    "connections": "connections",
    "core_percent": "server CPU, % of a core",
    "statements": "statements/s, all",
    "leader_statements": "... of the first, which leads",
    "follower_statements": "... of each other one",
}


def nodes(
    server: Server, contender: Contender, workers: int, seconds: float, settle: float
) -> dict[str, float]:
    """One slice."""
    with beside_a_leader(server, contender, workers - 1, settle) as (here, leaders, others, _):
        core_percent, statements = quiet(server, here, seconds)
    rate = statements.total() / seconds
    followers = sum(statements[pid] for pid in others) / seconds
    return {
        "connections": len(leaders) + len(others),
        "core_percent": core_percent,
        "statements": rate,
        "leader_statements": rate - followers,
        "follower_statements": followers / max(1, workers - 1),
    }


@click.command("nodes")
@common()
@click.option("--workers", default=50)
@click.option("--seconds", default=30.0, help="for the CPU, and again for the statements")
@click.option("--settle", default=20.0, help="seconds for the first to lead, and for the others")
def command(workers: int, seconds: float, settle: float, **options: Any) -> None:
    """Many worker processes with nothing to do."""
    with run(**options) as this:
        said = f"{workers} worker processes, {seconds:g} s"
        result = Result("Idle worker processes", said, COLUMNS, RAW.name)
        this.interleave(result, lambda c: nodes(this.server, c, workers, seconds, settle))
