"""The root of the command line, and how its errors end."""

from __future__ import annotations

from typing import Any

import click

from leasehold import __version__
from leasehold.cli.asking import Group
from leasehold.cli.bench import bench
from leasehold.cli.chaos import chaos
from leasehold.cli.deadlines import deadlines
from leasehold.cli.doctor import doctor
from leasehold.cli.jobs import jobs
from leasehold.cli.lock import lock
from leasehold.cli.metrics import metrics
from leasehold.cli.operate import events, leaders, locks, nodes, schedules, status
from leasehold.cli.run import demo, worker
from leasehold.cli.schema import schema
from leasehold.cli.sim import sim
from leasehold.cli.web import web
from leasehold.errors import LeaseholdError

_EPILOG = """\
The database is --dsn or LEASEHOLD_DSN: postgresql://…, or embedded for a PostgreSQL that leasehold
starts by itself. Exit status: 0 well, 1 something is wrong, 2 wrong usage."""


class Root(Group):
    """Turns leasehold's errors into one line and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LeaseholdError as error:
            click.echo(f"leasehold: {' '.join(str(error).split())}", err=True)
            ctx.exit(1)


@click.group(
    cls=Root,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="leasehold", message="%(prog)s %(version)s")
def root() -> None:
    """Scheduled tasks and background jobs, once across all your processes, on Postgres."""


for command in (
    demo,
    bench,
    worker,
    status,
    jobs,
    schedules,
    leaders,
    lock,
    locks,
    deadlines,
    nodes,
    events,
    metrics,
    schema,
    doctor,
    chaos,
    sim,
    web,
):
    root.add_command(command)
