"""What people do and read: acts on many jobs, schedules run now, history. Reports, which only
people read, are separate from the Store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from leasehold.model.filter import JobFilter
from leasehold.model.job import JobRecord
from leasehold.ports.common import Now, Rows
from leasehold.ports.operation import Operations, first, named, operation, value
from leasehold.ports.rows import AttemptView, EventView, TermView, TickView

SERIES = 20_000
"""The most series that are read of one metric."""


class DashboardStore(Operations):
    """The part of the Store for what people do. Each act names at most one batch of ids."""

    @operation("job/discard")
    async def discard(self, jobs: Sequence[UUID], reason: str, now: Now) -> set[UUID]:
        """Discard waiting and quarantined jobs. Return those discarded. Others are not changed."""

    @operation("job/cancel_many")
    async def cancel_many(self, jobs: Sequence[UUID], reason: str, now: Now) -> set[UUID]:
        """Cancel waiting jobs, and signal running ones. Return these. Others are not changed."""

    @operation("job/retry_many")
    async def retry_many(self, jobs: Sequence[UUID], now: Now) -> set[UUID]:
        """Run finished jobs again, and make waiting ones due now. Return these."""

    @operation("job/attempts")
    async def attempts(self, job: UUID, limit: int) -> list[AttemptView]:
        """Return the attempts that did not just complete, the newest first."""

    @operation("stack/ask")
    async def ask_stack(self, job: UUID, request: UUID, now: Now) -> bool:
        """Ask the job's node for its handler's stack, with a ``stack`` signal of this ``request``.
        Return False if no node holds the job."""

    @operation("stack/answer")
    async def answer_stack(self, node: UUID, request: UUID, says: str, now: Now) -> bool:
        """Store the node's answer. Return False if there is a newer request."""

    @operation("stack/get", answer=first("request claim_token asked_at answered_at says"))
    async def stack(self, job: UUID) -> dict[str, Any] | None:
        """Return the last request of about the last hour: request, claim_token, asked_at,
        answered_at and says (None: not answered yet)."""

    @operation("schedule/run_now", answer=value)
    async def run_schedule(self, app: str, name: str, job: UUID, now: Now) -> bool:
        """Enqueue a schedule's job under this id, once. Return False if the schedule is unknown."""

    @operation("schedule/remove")
    async def remove_schedule(self, app: str, name: str) -> bool: ...

    @operation("history/roll_up", aside=True)
    async def roll_up(self, since: datetime | None, now: Now) -> datetime:
        """Count the whole minutes from ``since`` (None: from the end of the history). Return the
        time up to which it counted."""

    @operation("metrics/fold")
    async def fold_counts(self, limit: int) -> int:
        """Add at most ``limit`` tallies of metrics to the totals. Return how many."""

    @operation(
        "history/list",
        answer=named(
            "at queue task_name completed cancelled discarded quarantined failed wait run"
        ),
    )
    async def history(self, since: datetime, queue: str | None, limit: int) -> Rows:
        """Return minutes from ``since``, the oldest first: at, queue, task_name, completed,
        cancelled, discarded, quarantined, failed, and wait and run as counts per class of
        :func:`leasehold.model.history.class_seconds`."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of jobs. Long values are cut or left out."""

    rows: list[JobRecord]
    more: str | None
    """Where the next page starts, or None if this is the last one."""
    looked_at: int
    """The rows that were read. There are more if ``more`` is set and the page is not full."""


class Reports(Operations):
    """Read-only queries for people. They have their own connections, so that no claim waits behind
    them. Every answer is bounded."""

    @operation(
        "web/queues", answer=named("queue ready running capped oldest_seconds oldest_id about")
    )
    async def queues(self, now: Now, most: int = 5_000) -> Rows:
        """Return of each queue: queue; ready, and running among these (both lower bounds if
        capped); capped; oldest_seconds and oldest_id, of the available job that has been due for
        longest; about, an estimate of ready or None. ``most`` is how many jobs are counted."""

    async def job_page(self, wanted: JobFilter, after: str | None, limit: int) -> JobPage: ...

    async def matching(
        self, wanted: JobFilter, most: int, *, far: bool = False
    ) -> tuple[list[UUID], bool]:
        """Return at most ``most`` ids that a filter matches, and whether there may be more. It
        scans as for one page; with ``far``, as long as needed, up to a million jobs."""

    @operation(
        "web/job",
        answer=first(
            "run_at claimed_at started_at node unique_key requeue_seconds timeout_seconds history "
            "ready held_because schedule tick_at ahead now version"
        ),
    )
    async def job(self, job: UUID, now: Now = None) -> dict[str, Any] | None:
        """Return what the view does not show of a job, such as claimed_at, unique_key, ahead."""

    @operation("web/job_events")
    async def job_events(
        self, job: UUID, since: datetime, until: datetime, limit: int
    ) -> list[EventView]: ...

    @operation("web/ticks")
    async def ticks(
        self, apps: Sequence[str], names: Sequence[str], each: int, now: Now = None
    ) -> list[TickView]:
        """Return the newest ticks of each schedule: of the first name in the first of ``apps``, and
        so on."""

    @operation("web/lease_events")
    async def lease_events(self, since: datetime, limit: int) -> list[EventView]: ...

    @operation("web/terms")
    async def terms(self, since: datetime, limit: int) -> list[TermView]:
        """Return terms since then and each election's last one before, the newest first."""

    async def events(
        self, kind: str | None, level: str | None, before: int | None, limit: int
    ) -> tuple[list[EventView], int | None]:
        """Return the newest events before an id, and the id at which to continue, or None."""

    @operation(
        "web/tables",
        answer=named(
            "name live dead table_bytes index_bytes vacuumed_seconds updates hot_updates parts"
        ),
    )
    async def tables(self, now: Now = None) -> Rows: ...

    @operation(
        "web/transactions",
        answer=named("pid what role application client state open_seconds xmin_age query"),
    )
    async def transactions(self, limit: int, now: Now = None) -> Rows: ...

    @operation("web/waits", answer=named("pid role application waits_for seconds blocked_by query"))
    async def waits(self, limit: int, now: Now = None) -> Rows: ...

    @operation("metrics/counts", answer=named("metric subject part n"))
    async def counts(self, limit: int = SERIES) -> Rows:
        """Return the counters: metric, subject, part, n."""

    @operation(
        "metrics/leases",
        answer=named(
            "name held term age_seconds acquired renewed resigned expired leaderless_seconds"
        ),
    )
    async def lease_counts(self, now: Now, limit: int = SERIES) -> Rows:
        """Return of each leader: name, held, term, age_seconds, acquired, renewed, resigned,
        expired, leaderless_seconds."""

    @operation(
        "metrics/locks",
        answer=first(
            "held waiting oldest_wait_seconds advisory_held advisory_waiting "
            "advisory_oldest_wait_seconds"
        ),
    )
    async def lock_counts(self, now: Now) -> dict[str, Any]:
        """Return held, waiting, oldest_wait_seconds, and the same of advisory locks."""

    @operation("web/names")
    async def names(self) -> tuple[list[str], list[str]]:
        """Return the names to suggest: queues and tasks."""

    async def close(self) -> None: ...
