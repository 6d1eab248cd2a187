"""``leasehold metrics``: the metrics, alert rules for Prometheus and a Grafana dashboard."""

from __future__ import annotations

from typing import Any

import click

from leasehold.cli.asking import Group, ask, database_options


@click.group(cls=Group, invoke_without_command=True)
@database_options
def metrics(**_: Any) -> None:
    """Print the metrics that `leasehold web` serves at /metrics. The subcommands print alert rules
    and a dashboard."""
    if click.get_current_context().invoked_subcommand:
        return
    from leasehold.app.metrics import Exposition

    click.echo(ask(lambda app: Exposition(app).text()).decode(), nl=False)


@metrics.command()
def rules() -> None:
    """Print alert rules for Prometheus, as YAML."""
    from leasehold.cli import monitoring

    click.echo(monitoring.rules(), nl=False)


@metrics.command()
def dashboard() -> None:
    """Print a Grafana dashboard, as JSON to import."""
    from leasehold.cli.monitoring.board import board

    click.echo(board())
