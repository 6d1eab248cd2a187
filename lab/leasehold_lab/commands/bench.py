"""``leasehold bench``: what leasehold does on this machine and this database."""

from __future__ import annotations

import click

from leasehold.cli.asking import database_options, given


@click.command()
@click.option("--jobs", type=click.IntRange(100, 1_000_000), default=20_000, show_default=True)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes."
)
@click.option("--rounds", type=click.IntRange(1, 20), default=3, show_default=True)
@click.option(
    "--idle",
    "idle_seconds",
    type=click.FloatRange(1, 600),
    default=15.0,
    show_default=True,
    help="Seconds to watch a worker that has nothing to do.",
)
@click.option("--json", "as_json", is_flag=True, help="For tools.")
@database_options
def bench(
    jobs: int, workers: int, rounds: int, idle_seconds: float, as_json: bool, **_: object
) -> None:
    """Measure enqueue, drain, latency and idle cost, and what they cost the database.

    Works in a schema of its own, leasehold_bench, which it makes and drops; without --dsn on the
    PostgreSQL that leasehold starts by itself. Takes about a minute and writes the disk: keep
    away from a production server.
    """
    from leasehold_lab.bench.run import Plan, run

    run(given("dsn"), Plan(jobs, workers, rounds, idle_seconds), as_json)
