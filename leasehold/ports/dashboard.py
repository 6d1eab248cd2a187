"""What people do and read: acts on many jobs, schedules run now, history. Reports, which only
people read, are separate from the Store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from leasehold.model.filter import JobFilter
from leasehold.model.job import JobRecord
from leasehold.ports.operation import Now, Operations, operation, value
from leasehold.ports.rows import (
    AttemptView,
    CountView,
    EventView,
    JobDetail,
    LeaseCounts,
    LockCounts,
    MinuteView,
    QueueView,
    StackView,
    TableView,
    TermView,
    TickView,
    WaitView,
)
from leasehold.tuning import Tuning


class DashboardStore(Operations):
    """The part of the Store for what people do. Each act names at most one batch of ids."""

    @operation("job/discard")
    async def discard(self, jobs: Sequence[UUID], reason: str, now: Now) -> set[UUID]:
        """Discard waiting and quarantined jobs. Return those discarded. Others are not changed."""

    @operation("job/cancel", answer=dict)
    async def cancel_many(self, jobs: Sequence[UUID], reason: str, now: Now) -> dict[UUID, str]:
        """Cancel waiting jobs, and flag running ones for their workers. Return where each known job
        was: ``waiting``, ``running``, ``finished``, or ``locked`` and so left alone."""

    @operation("job/retry", answer=dict)
    async def retry_many(self, jobs: Sequence[UUID], now: Now) -> dict[UUID, str]:
        """Run finished jobs again, and make waiting ones due now. Return where each known job was,
        as above. Running ones are left alone."""

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

    @operation("stack/get")
    async def stack(self, job: UUID) -> StackView | None:
        """Return the last request of about the last hour."""

    @operation("schedule/run_now", answer=value)
    async def run_schedule(self, app: str, name: str, job: UUID, now: Now) -> bool:
        """Enqueue a schedule's job under this id, once. Return False if the schedule is unknown."""

    @operation("history/roll_up", aside=True)
    async def roll_up(self, since: datetime | None, now: Now) -> datetime:
        """Count the whole minutes from ``since`` (None: from the end of the history). Return the
        time up to which it counted."""

    @operation("metrics/fold")
    async def fold_counts(self, limit: int) -> int:
        """Add at most ``limit`` tallies of metrics to the totals. Return how many."""

    @operation("history/list")
    async def history(self, since: datetime, queue: str | None, limit: int) -> list[MinuteView]:
        """Return minutes from ``since``, the oldest first."""


class JobPage(Struct, frozen=True):
    """One page of jobs. Long values are cut or left out."""

    rows: list[JobRecord]
    more: str | None
    """Where the next page starts, or None if this is the last one."""
    looked_at: int
    """The rows that were read. There are more if ``more`` is set and the page is not full."""


QUEUE_ROWS = 200


class Reports(Operations):
    """Read-only queries for people. They have their own connections, so that no claim waits behind
    them. Every answer is bounded."""

    @operation("web/queues")
    async def queues(self, now: Now, most: int = 5_000, limit: int = QUEUE_ROWS) -> list[QueueView]:
        """Return the queues, at most ``limit``. ``most`` is how many jobs are counted."""

    async def job_page(self, wanted: JobFilter, after: str | None, limit: int) -> JobPage: ...

    async def matching(
        self, wanted: JobFilter, after: str | None, most: int
    ) -> tuple[list[UUID], str | None]:
        """Return at most ``most`` ids that a filter matches, found among a limited number of jobs,
        and where to continue (None: this is the end)."""

    @operation("web/job")
    async def job(self, job: UUID, now: Now = None) -> JobDetail | None: ...

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

    @operation("web/tables")
    async def tables(self, now: Now = None) -> list[TableView]: ...

    @operation("web/waits")
    async def waits(self, limit: int, now: Now = None) -> list[WaitView]: ...

    @operation("metrics/counts")
    async def counts(self, limit: int = Tuning.series) -> list[CountView]:
        """Return the running totals."""

    @operation("metrics/leases")
    async def lease_counts(self, now: Now, limit: int = Tuning.series) -> list[LeaseCounts]: ...

    @operation("metrics/locks")
    async def lock_counts(self, now: Now) -> LockCounts: ...

    @operation("web/names")
    async def names(self) -> tuple[list[str], list[str]]:
        """Return the names to suggest: queues and tasks."""

    async def close(self) -> None: ...
