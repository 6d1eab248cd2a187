"""Alert rules for Prometheus and a dashboard for Grafana."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from zlib import crc32

from leasework.watch.checks import CHECKS, KINDS, Check
from leasework.watch.finding import NOTE

_LABEL = r'[a-zA-Z_]\w*(=|!=|=~|!~)"[^"{}]*"'
LABELS = re.compile(f"{_LABEL}(,\\s*{_LABEL})*")
"""Label matchers of PromQL."""
_METRIC = re.compile(r"\b(leasework_\w+)(?:\{([^}]*)\})?")


def rules(match: str = "") -> str:
    """The alert rules as YAML: one for each check, and those of rules.yml for trends, which a
    single reading cannot show. ``match``: see :func:`matching`."""
    trends = _shipped("rules.yml")
    checks = [CHECKS[kind] for kind in KINDS if CHECKS[kind].level != NOTE]
    return matching(trends, match) + "".join(_rule(check, match) for check in checks)


def dashboard(match: str = "") -> str:
    """The dashboard's JSON. Grafana asks for the data source on import. ``match``: see
    :func:`matching`."""
    if not match:
        return _shipped("dashboard.json")
    board = json.loads(_shipped("dashboard.json"))
    # a title and an id of its own, beside those of other databases
    board |= {"title": f"leasework {match}", "uid": f"leasework-{crc32(match.encode()):x}"}
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            target["expr"] = matching(target["expr"], match)
    return json.dumps(board, indent=1) + "\n"


def matching(text: str, match: str) -> str:
    """Restrict each metric in the text to series with these labels, such as ``job="shop"``."""
    if not match:
        return text
    return _METRIC.sub(lambda m: f"{m[1]}{{{', '.join(filter(None, (m[2], match)))}}}", text)


def alert_name(kind: str) -> str:
    """``queue_overdue`` has the alert ``LeaseworkQueueOverdue``."""
    return "Leasework" + kind.title().replace("_", "")


def _shipped(name: str) -> str:
    return files(__name__).joinpath(name).read_text("utf-8")


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
