"""Alert rules for Prometheus and a dashboard for Grafana."""

from __future__ import annotations

import json
from importlib.resources import files

from leasehold.watch.checks import CHECKS, KINDS, Check
from leasehold.watch.finding import NOTE


def rules() -> str:
    """The alert rules as YAML: one for each check, and those of rules.yml for trends, which a
    single reading cannot show."""
    trends = files("leasehold.cli.monitoring").joinpath("rules.yml").read_text("utf-8")
    return trends + "".join(_rule(CHECKS[kind]) for kind in KINDS if CHECKS[kind].level != NOTE)


def alert_name(kind: str) -> str:
    """``queue_overdue`` has the alert ``LeaseholdQueueOverdue``."""
    return "Leasehold" + kind.title().replace("_", "")


def _rule(check: Check) -> str:
    lines = [
        f"- alert: {alert_name(check.kind)}",
        f'  expr: max by (kind) (leasehold_problems{{kind="{check.kind}"}}) > 0',
        *([f"  for: {check.alert_after}"] if check.alert_after != "0s" else []),
        f"  labels: {{severity: {check.alert}}}",
        "  annotations:",
        f"    summary: {json.dumps(check.meaning)}",
        f"    description: {json.dumps('leasehold status has the details. ' + check.advice)}",
        f"    docs: {json.dumps(check.docs)}",
    ]
    return "".join(f"      {line}\n" for line in lines)
