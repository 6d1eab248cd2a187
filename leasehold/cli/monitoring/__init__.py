"""What Prometheus and Grafana load: alert rules and a dashboard."""

from __future__ import annotations

from importlib.resources import files


def rules() -> str:
    """The alert rules, YAML."""
    return files("leasehold.cli.monitoring").joinpath("rules.yml").read_text("utf-8")
