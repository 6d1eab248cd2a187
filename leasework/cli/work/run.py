"""``leasework worker``."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from leasework.cli.asking import ask, database, database_options

MOST_PROCESSES = 1000


def _queues(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Any:
    """Parse ``name=slots`` options into a dictionary; None if there are none."""
    if not values:
        return None
    from leasework.config import Limits
    from leasework.errors import shorten

    queues: dict[str, int] = {}
    for value in values:
        name, _, slots = value.rpartition("=")
        digits = slots.isascii() and slots.isdigit() and len(slots) < 10
        if not name or not digits or not 1 <= int(slots) <= Limits.concurrency:
            raise click.BadParameter(
                f"{shorten(ascii(value))} is not name=slots, such as default=20, with 1 to "
                f"{Limits.concurrency} slots"
            )
        if name in queues:
            raise click.BadParameter(f"queue {name!r} is given twice")
        queues[name] = int(slots)
    return queues


def _target(value: str) -> str:
    module, _, name = value.partition(":")
    if not module or not name:
        example = module.removesuffix(".py").replace("/", ".") or "myproject.jobs"
        raise click.BadParameter(f"{value!r} is not MODULE:APP, such as {example}:app")
    return value


@click.command()
@click.argument("target", metavar="MODULE:APP", type=_target)
@click.option(
    "--queue",
    "-q",
    "queues",
    multiple=True,
    metavar="NAME=SLOTS",
    callback=_queues,
    help="Queue to work on, and maximum number of concurrent jobs. [default: all queues, 100 each]",
)
@click.option(
    "--processes",
    "-p",
    type=click.IntRange(1, MOST_PROCESSES),
    default=1,
    show_default=True,
    help="Number of supervised worker processes.",
)
@click.option(
    "--no-execute", is_flag=True, help="Take part in elections and scheduling, but run no jobs."
)
@click.option("--drain", is_flag=True, help="Drain the running workers and wait until they exit.")
@click.option("--log", type=click.Choice(["text", "json"]), help="Log format. [env: LEASEWORK_LOG]")
@database_options
def worker(
    target: str,
    queues: dict[str, int] | None,
    processes: int,
    no_execute: bool,
    drain: bool,
    log: str | None,
    **_: Any,
) -> None:
    """Run the schedules and jobs of an application.

    MODULE:APP names an App, or a function without parameters that returns one, for example
    myproject.jobs:app. SIGTERM, SIGINT or SIGHUP stops the worker cleanly. A second SIGTERM or
    SIGINT stops it at once; with --processes, only a second Ctrl-C does that. --drain runs nothing:
    it asks the running workers of the application to finish their jobs and exit.
    """
    if no_execute and queues:
        raise click.UsageError("--no-execute runs no jobs: leave --queue out")
    from leasework.env import GIVEN_DSN

    handed_on = os.environ.pop(GIVEN_DSN, None)  # from a supervisor; our children must not see it
    options = {
        **({"dsn": handed_on} if handed_on else {}),
        **database(),
        **({"log": log} if log else {}),
    }
    if drain:
        from leasework.cli.work.drain import drain_all

        sys.exit(ask(drain_all, target))
    if processes == 1:
        from leasework.cli.work.worker import run_worker

        if os.getpid() == 1:
            note = "leasework: this worker is process 1 of its container, so its watchdog cannot "
            click.echo(
                note + "end it if it hangs: run it under an init (docker run --init)", err=True
            )
        run_worker(target, options, queues, execute=not no_execute)
    from leasework.cli.work.supervisor import run_supervisor

    arguments = [f"--queue={name}={slots}" for name, slots in (queues or {}).items()]
    arguments += ["--no-execute"] if no_execute else []
    sys.exit(run_supervisor(target, processes, options, arguments))
