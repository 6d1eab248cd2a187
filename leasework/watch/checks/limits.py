"""Checks of limits and pauses."""

from __future__ import annotations

from collections.abc import Iterator

from leasework.model.moments import duration
from leasework.watch.checks.registry import Said, check, count
from leasework.watch.facts import Facts
from leasework.watch.finding import NOTE, WRONG

BLOCKED_SECONDS = 3600.0
"""How long a job may wait for its limits."""
FORGOTTEN_SECONDS = 86400.0
"""How long a pause is only worth a note."""


@check(
    "Jobs name a limit that no application has defined. They wait until one does.",
    "Start a worker of a release that has app.limit({limit!r}, …), or cancel the jobs",
    page="limits", shared=True,
)  # fmt: skip
def _limit_unknown(facts: Facts) -> Iterator[str | Said]:
    for row in facts.limits:
        if not row.defined and row.waiting:
            yield Said(
                f"{count(row.waiting)} waiting for the limit {row.name!r}, which no application "
                "has defined",
                subject=f"limit:{row.name}",
            )


@check(
    f"A job has waited for a limit for more than {duration(BLOCKED_SECONDS)} since it was due.",
    "leasework limits keys {limit} shows the busiest keys; to let more run: "
    "leasework limits set {limit} --concurrency N",
    page="limits", shared=True,
)  # fmt: skip
def _limit_blocked(facts: Facts) -> Iterator[str | Said]:
    for row in facts.limits:
        waited = row.oldest_seconds or 0.0
        if row.defined and not row.paused and waited > BLOCKED_SECONDS:
            yield Said(
                f"Jobs have waited for the limit {row.name!r} for {duration(waited)}; "
                f"{row.running:,} run and {row.waiting:,} wait",
                subject=f"limit:{row.name}",
            )


@check(
    "Jobs of a queue wait for limits or their tenant's share, and no live node of the queue claims "
    "such jobs, because its code defines neither limits nor fair queues.",
    "Start a worker of a release that defines them, or cancel the jobs: leasework jobs --where "
    "'state:available queue:{queue}'",
    page="queues", shared=True,
)  # fmt: skip
def _limits_unworked(facts: Facts) -> Iterator[str | Said]:
    for row in facts.limited:
        workers = [node for node in facts.live_nodes if node.executes and row.queue in node.queues]
        if workers and not any((node.info or {}).get("limits") for node in workers):
            yield Said(
                f"{count(row.waiting)} of the queue {row.queue!r} waiting for limits, which no "
                "live node of the queue knows",
                subject=f"queue:{row.queue}",
            )


@check(
    "A person has changed or paused a limit, or some of its keys.",
    "leasework limits reset {limit} returns to what the code says",
    page="limits", level=NOTE, shared=True,
)  # fmt: skip
def _limit_changed(facts: Facts) -> Iterator[str | Said]:
    for row in facts.limits:
        if row.set_seconds is not None:
            did = "paused" if row.paused else "changed"
            keys = f" ({row.keys_set} of its keys)" if row.keys_set else ""
            yield Said(
                f"A person {did} the limit {row.name!r}{keys} {duration(row.set_seconds)} ago",
                subject=f"limit:{row.name}",
            )


@check(
    "A queue or a task is paused: nothing of it starts.",
    "leasework queues resume {what}",
    page="queues", level=NOTE, shared=True,
)  # fmt: skip
def _paused(facts: Facts) -> Iterator[str | Said]:
    for row in facts.pauses:
        what = f"--task {row.name}" if row.kind == "task" else row.name
        yield Said(
            str(row),
            {"what": what},
            subject=f"{row.kind}:{row.name}",
            seconds=row.seconds,
            level="" if row.seconds < FORGOTTEN_SECONDS else WRONG,
        )
