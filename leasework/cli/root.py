"""The root of the command line, and its error handling."""

from __future__ import annotations

from typing import Any

import click

from leasework.cli.agents import mcp
from leasework.cli.deadlines import deadlines
from leasework.cli.flow import limits, queues
from leasework.cli.jobs import jobs
from leasework.cli.lock import lock
from leasework.cli.metrics import metrics
from leasework.cli.operate import (
    doctor,
    events,
    failures,
    leaders,
    locks,
    nodes,
    schedules,
    silence,
    status,
)
from leasework.cli.output import output_errors, prepare_streams, text
from leasework.cli.schema import schema
from leasework.cli.web import web
from leasework.cli.work.run import worker
from leasework.errors import LeaseworkError
from leasework.version import VERSION

_EPILOG = """\
--dsn or LEASEWORK_DSN names the database: postgresql://…, or embedded for a local PostgreSQL that
leasework starts itself. Exit status: 0 success, 1 problem or failure, 2 wrong usage, 141 the reader
of the output has gone."""


LAB = ("bench", "chaos", "demo", "sim")
"""The commands of the distribution leasework-lab, which may not be installed."""
_PLUGINS = "leasework.commands"
"""The group of entry points through which other distributions add commands."""


def _plugins(**wanted: Any) -> Any:
    from importlib.metadata import entry_points  # imported late: it takes as long as all the rest

    return entry_points(group=_PLUGINS, **wanted)


class Root(click.Group):
    """Includes the commands of other distributions. Turns leasework's errors into one line and exit
    status 1."""

    @output_errors()
    def main(self, *args: Any, **kwargs: Any) -> Any:
        prepare_streams()
        return super().main(*args, **kwargs)

    @output_errors()  # before click, which exits with 1 if the reader has gone
    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        return super().make_context(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_plugins().names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if command := super().get_command(ctx, cmd_name):
            return command
        for plugin in _plugins(name=cmd_name):
            found: click.Command = plugin.load()
            return found
        if cmd_name in LAB:
            raise click.UsageError(
                f"'leasework {cmd_name}' comes with leasework-lab. Install it",
                ctx,
            )
        return None

    @output_errors()
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LeaseworkError as error:
            click.echo(text(f"leasework: {' '.join(str(error).split())}"), err=True)
            ctx.exit(1)


@click.group(
    cls=Root,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, prog_name="leasework", message="%(prog)s %(version)s")
def root() -> None:
    """Run scheduled tasks and background jobs once across all your processes, on PostgreSQL."""


for command in (
    worker, status, jobs, failures, queues, limits, schedules, leaders, lock, locks, deadlines,
    nodes, events, metrics, schema, doctor, silence, mcp, web,
):  # fmt: skip
    root.add_command(command)
