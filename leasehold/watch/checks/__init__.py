"""What can be wrong: one registry of checks, behind status, dashboard, metrics, alerts and docs.

A check is declared once: its kind, what it means, what helps, and a function that turns the facts
from the database into sentences. Everything else comes from :data:`CHECKS`: the metric
``leasehold_problems`` has a series for each kind, `leasehold metrics rules` an alert, and
docs/reference/checks.md an entry. Checks for an unreachable database have no function: the error
is the finding.
"""

from leasehold.watch.checks import nodes, jobs, schedules, house  # isort: skip  # the order of what people read
from leasehold.watch.checks.nodes import claimants
from leasehold.watch.checks.registry import (
    CHECKS,
    COUNT_CAP,
    Check,
    database_problem,
    problems,
)

KINDS = tuple(CHECKS)
"""Every kind of problem."""

__all__ = [
    "CHECKS", "COUNT_CAP", "KINDS", "Check", "claimants",
    "database_problem", "house", "jobs", "nodes", "problems", "schedules",
]  # fmt: skip
