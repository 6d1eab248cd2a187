"""``leasework bench``: measures leasework on this machine and this database."""

from __future__ import annotations

import click

from leasework.cli.asking import database_options, given


@click.command()
@click.option("--jobs", type=click.IntRange(100, 1_000_000), default=20_000, show_default=True,
              help="Number of jobs in each round.")  # fmt: skip
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of worker processes.",
)
@click.option("--rounds", type=click.IntRange(1, 20), default=3, show_default=True,
              help="Number of rounds; the results are medians.")  # fmt: skip
@click.option(
    "--idle",
    "idle_seconds",
    type=click.FloatRange(1, 600),
    default=15.0,
    show_default=True,
    help="Seconds for which an idle worker is measured.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@database_options
def bench(
    jobs: int, workers: int, rounds: int, idle_seconds: float, as_json: bool, **_: object
) -> None:
    """Measure enqueue and drain rates, latency and idle cost, including the database's CPU time.

    The benchmark creates the schema leasework_bench and drops it at the end. Without --dsn, it uses
    a PostgreSQL server that leasework starts for it. It takes about a minute and writes a lot to
    disk. Do not run it on a production server.
    """
    from leasework_lab.bench.run import Plan, run

    run(given("dsn"), Plan(jobs, workers, rounds, idle_seconds), as_json)
