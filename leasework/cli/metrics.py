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


@metrics.command()
def rules() -> None:
    """Print alert rules for Prometheus, as YAML."""
    from leasework.cli import monitoring

    click.echo(monitoring.rules(), nl=False)


@metrics.command()
def dashboard() -> None:
    """Print a Grafana dashboard, as JSON to import."""
    from leasework.cli import monitoring

    click.echo(monitoring.dashboard(), nl=False)
