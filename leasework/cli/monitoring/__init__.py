"""Alert rules for Prometheus and a dashboard for Grafana."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from leasework.watch.checks import CHECKS, KINDS, Check
from leasework.watch.finding import NOTE

_LABEL = r'[a-zA-Z_]\w*(=|!=|=~|!~)"[^"{}]*"'
LABELS = re.compile(f"{_LABEL}(,\\s*{_LABEL})*")
"""Label matchers of PromQL."""
_METRIC = re.compile(r"\b(leasework_\w+)(?:\{([^}]*)\})?")


def rules(match: str = "") -> str:
    """The alert rules as YAML: one for each check, and those of rules.yml for trends, which a
    single reading cannot show. ``match``: see :func:`matching`."""
    trends = files("leasework.cli.monitoring").joinpath("rules.yml").read_text("utf-8")
    checks = [CHECKS[kind] for kind in KINDS if CHECKS[kind].level != NOTE]
    return matching(trends, match) + "".join(_rule(check, match) for check in checks)


def matching(text: str, match: str) -> str:
    """Restrict each metric in the text to series with these labels, such as ``job="shop"``."""
    if not match:
        return text
    return _METRIC.sub(lambda m: f"{m[1]}{{{', '.join(filter(None, (m[2], match)))}}}", text)


def alert_name(kind: str) -> str:
    """``queue_overdue`` has the alert ``LeaseworkQueueOverdue``."""
    return "Leasework" + kind.title().replace("_", "")


def _rule(check: Check, match: str) -> str:
    problems = matching(f'leasework_problems{{kind="{check.kind}"}}', match)
    lines = [
        f"- alert: {alert_name(check.kind)}",
        f"  expr: max by (kind) ({problems}) > 0",
        *([f"  for: {check.alert_after}"] if check.alert_after != "0s" else []),
        f"  labels: {{severity: {check.alert}}}",
        "  annotations:",
        f"    summary: {json.dumps(check.meaning)}",
        f"    description: {json.dumps('leasework status has the details. ' + check.advice)}",
        f"    docs: {json.dumps(check.docs)}",
    ]
    return "".join(f"      {line}\n" for line in lines)
