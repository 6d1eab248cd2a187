"""``leasework lock``: runs a command on one machine at a time."""

from __future__ import annotations

import sys
from typing import Any

import click

from leasework.cli.asking import chosen, database_options


@click.command()
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--wait",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Maximum time to wait; 0: try once. [default: until it is known that the holder is alive]",
)
@click.option(
    "--fail", is_flag=True, help="Exit with status 1, not 0, if another process holds the lock."
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Time between SIGTERM and SIGKILL if the lock is lost, or after a signal. [default: 0.5]",
)
@database_options
def lock(
    name: str,
    command: tuple[str, ...],
    wait: float | None,
    fail: bool,
    grace: float | None,
    **_: Any,
) -> None:
    """Run COMMAND while holding the lock NAME, on one machine at a time.

    For cron, systemd timers and deploy pipelines: leasework lock nightly -- ./report.sh. If
    another process holds the lock, COMMAND does not run and the exit status is 0. Otherwise the
    exit status is that of COMMAND. If the holder's machine dies, the lock becomes free when its
    lease expires. COMMAND gets LEASEWORK_LOCK_TOKEN, a number that grows with each run.
    """
    import asyncio

    from leasework.cli.locking import Runner

    app = chosen(None)
    runner = Runner(app, name, command, app.settings.timings.grace if grace is None else grace)
    sys.exit(asyncio.run(runner.run(wait, 1 if fail else 0)))
