"""What can be wrong: one registry of checks, behind status, doctor, dashboard, metrics and alerts.

A check is declared once (ADR 30). The doctor makes all checks; those of the set-up are its alone
and have no metric. Those for an unreachable database have no function: the error is the finding.
"""

from leasework.watch.checks import nodes, jobs, limits, durable, schedules, house, setup  # isort: skip  # the order of what people read
from leasework.watch.checks.nodes import claimants
from leasework.watch.checks.registry import (
    CHECKS,
    COUNT_CAP,
    Check,
    database_problem,
    database_problems,
    problems,
    ranked,
    setup_problems,
)

KINDS = tuple(kind for kind, one in CHECKS.items() if not one.setup)
"""The kinds of problems of a running application."""

__all__ = [
    "CHECKS", "COUNT_CAP", "KINDS", "Check", "claimants", "database_problem", "database_problems",
    "durable", "house", "jobs", "limits", "nodes", "problems", "ranked", "schedules", "setup",
    "setup_problems",
]  # fmt: skip
