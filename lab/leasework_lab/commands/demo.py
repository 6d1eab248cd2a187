"""``leasework demo``."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.option(
    "--seconds", type=click.IntRange(1), help="Stop after this many seconds. [default: at Ctrl-C]"
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the scorecard to this file, as HTML (.html) or JSON. Repeatable.",
)
@click.option(
    "--web/--no-web",
    default=None,
    help="Serve a dashboard with buttons that inject faults. [default: on without --seconds]",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port of the dashboard. [default: any free port]"
)
@click.option(
    "--no-browser", is_flag=True, help="Print the dashboard's address without opening a browser."
)
def demo(
    seconds: int | None,
    reports: tuple[Path, ...],
    web: bool | None,
    port: int | None,
    no_browser: bool,
) -> None:
    """Watch four processes share one schedule and one queue, and break them.

    You can kill the leader, freeze a worker, disconnect a node, crash PostgreSQL and deploy a new
    release."""
    from leasework_lab.demo import run

    sys.exit(run(seconds, reports, web=web, port=port, browse=not no_browser))
