"""Checks of suspended jobs, signals and batches."""

from __future__ import annotations

from collections.abc import Iterator

from leasework.model.moments import duration
from leasework.watch.checks.registry import Said, check, count
from leasework.watch.facts import Facts

UNTAKEN_SECONDS = 3600.0
"""How long a signal may wait for its handler."""


@check(
    f"A signal has waited for more than {duration(UNTAKEN_SECONDS)}: the job's handler does not "
    "take it.",
    "leasework jobs steps {job} shows what the job waits for. The name that the sender gives must "
    "be that of ctx.event",
    page="jobs", shared=True,
)  # fmt: skip
def _signal_untaken(facts: Facts) -> Iterator[str | Said]:
    found = facts.durable
    if found and (found.signal_seconds or 0.0) > UNTAKEN_SECONDS:
        since = duration(found.signal_seconds or 0.0)
        yield Said(
            f"{found.signals:,} signals wait to be taken, the oldest for {since}",
            {"job": found.signal_job},
        )


@check(
    "Suspended jobs should have resumed more than a minute ago.",
    "Look for a live node that leads: leasework nodes",
    page="jobs", shared=True,
)  # fmt: skip
def _suspended_overdue(facts: Facts) -> Iterator[str | Said]:
    if facts.durable and facts.durable.overdue:
        yield f"{count(facts.durable.overdue)} suspended, although their time is over"


@check(
    "A batch cannot end: no live node knows the tasks of the jobs that are left of it.",
    "Start a worker of a release that knows them, or cancel the jobs. The batch is {batch}",
    page="jobs", shared=True,
)  # fmt: skip
def _batch_stuck(facts: Facts) -> Iterator[str | Said]:
    if facts.durable and (batch := facts.durable.stuck_batch):
        yield Said("A batch cannot end, because nobody can run its last jobs", {"batch": batch})
