"""Alert rules for Prometheus and a dashboard for Grafana."""

from __future__ import annotations

import json
from importlib.resources import files

from leasework.watch.checks import CHECKS, KINDS, Check
from leasework.watch.finding import NOTE


def rules() -> str:
    """The alert rules as YAML: one for each check, and those of rules.yml for trends, which a
    single reading cannot show."""
    checks = [CHECKS[kind] for kind in KINDS if CHECKS[kind].level != NOTE]
    return _shipped("rules.yml") + "".join(map(_rule, checks))


def dashboard() -> str:
    """The dashboard's JSON. Grafana asks for the data source on import."""
    return _shipped("dashboard.json")


def alert_name(kind: str) -> str:
    """``queue_overdue`` has the alert ``LeaseworkQueueOverdue``."""
    return "Leasework" + kind.title().replace("_", "")


def _shipped(name: str) -> str:
    return files(__name__).joinpath(name).read_text("utf-8")


def _rule(check: Check) -> str:
    problems = f'leasework_problems{{cause="",kind="{check.kind}"}}'
    details = "{{ $labels.subject }} leasework status has the details. "
    lines = [
        f"- alert: {alert_name(check.kind)}",
        f"  expr: max by (kind, subject) ({problems}) > 0",
        *([f"  for: {check.alert_after}"] if check.alert_after != "0s" else []),
        f"  labels: {{severity: {check.alert}}}",
        "  annotations:",
        f"    summary: {json.dumps(check.meaning)}",
        f"    description: {json.dumps(details + check.advice)}",
        f"    docs: {json.dumps(check.docs)}",
    ]
    return "".join(f"      {line}\n" for line in lines)
