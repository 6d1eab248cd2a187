"""``leasehold demo``."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.option("--seconds", type=click.IntRange(1), help="End by itself. [default: at Ctrl-C]")
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Keep the scorecard: a page (.html) or JSON. May be given twice.",
)
@click.option(
    "--web/--no-web",
    default=None,
    help="With a dashboard whose buttons break things. [default: unless --seconds]",
)
@click.option("--port", type=click.IntRange(0, 65535), help="The dashboard's. [default: any free]")
@click.option("--no-browser", is_flag=True, help="Print the dashboard's address only.")
def demo(
    seconds: int | None,
    reports: tuple[Path, ...],
    web: bool | None,
    port: int | None,
    no_browser: bool,
) -> None:
    """Watch four processes share one schedule and one queue, and break them: kill the leader,
    freeze a worker, cut off a node, crash PostgreSQL, deploy."""
    from leasehold_lab.demo import run

    sys.exit(run(seconds, reports, web=web, port=port, browse=not no_browser))
