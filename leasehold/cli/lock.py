"""``leasehold lock``: a command that runs in one place at a time."""

from __future__ import annotations

import sys
from typing import Any

import click

from leasehold.cli.asking import database, database_options


@click.command()
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--wait",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Wait so long for it; 0: try once.",
)
@click.option("--fail", is_flag=True, help="Exit status 1, not 0, when another holds it.")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Between SIGTERM and SIGKILL, when the lock is lost. [default: 0.5]",
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
    """Run COMMAND while holding the lock NAME, in one place at a time.

    For cron, systemd timers and deploy pipelines: leasehold lock nightly -- ./report.sh. If
    another holds it, the command is not run, and the exit status is 0. Otherwise it is the
    command's. The lock of a machine that died is taken over after its lease. The command gets
    LEASEHOLD_LOCK_TOKEN, a number that grows with each run.
    """
    from leasehold.app import App
    from leasehold.cli.locking import run_locked

    sys.exit(run_locked(App(**database()), name, command, wait, grace, 1 if fail else 0))
