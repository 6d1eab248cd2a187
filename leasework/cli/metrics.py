"""``leasework metrics``: the metrics, alert rules for Prometheus and a Grafana dashboard."""

from __future__ import annotations

from typing import Any

import click

from leasework.cli.asking import ask, database_options


@click.group(invoke_without_command=True)
@database_options
def metrics(**_: Any) -> None:
    """Print the metrics that `leasework web` serves at /metrics. The subcommands print alert rules
    and a dashboard."""
    if click.get_current_context().invoked_subcommand:
        return
    from leasework.app.metrics import Exposition

    click.echo(ask(lambda app: Exposition(app).text()), nl=False)  # bytes: the format is UTF-8


def _check_match(ctx: click.Context, option: click.Parameter, match: str) -> str:
    from leasework.cli import monitoring

    if match and not monitoring.LABELS.fullmatch(match):
        raise click.BadParameter(f"got {match!r}. Give labels as in PromQL: 'job=\"shop\"'")
    return match


_match = click.option(
    "--match", default="", metavar="LABELS", callback=_check_match,
    help="Only series with these labels, such as 'job=\"shop\"', if Prometheus scrapes several "
    "databases.",
)  # fmt: skip


@metrics.command()
@_match
def rules(match: str) -> None:
    """Print alert rules for Prometheus, as YAML."""
    from leasework.cli import monitoring

    click.echo(monitoring.rules(match), nl=False)


@metrics.command()
@_match
def dashboard(match: str) -> None:
    """Print a Grafana dashboard, as JSON to import."""
    from leasework.cli import monitoring

    click.echo(monitoring.dashboard(match), nl=False)
