"""What a person does and looks at: acts on many jobs, schedules run now, history; and, apart from
the Store, reports that only people read."""

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
from leasehold.ports.rows import AttemptView, EventView, ScheduleDetail, TermView, TickView

SERIES = 20_000
"""Series of one metric that are read."""


class DashboardStore(Operations):
    """The part of the Store with which people act. Each act names ids, at most one batch."""

    @operation("job/discard")
    async def discard(self, jobs: Sequence[UUID], reason: str, now: Now) -> set[UUID]:
        """Give up waiting and quarantined jobs; those that were. The others are left."""

    @operation("job/cancel_many")
    async def cancel_many(self, jobs: Sequence[UUID], reason: str, now: Now) -> set[UUID]:
        """Waiting ones end, running ones are asked to; which. The others are left."""

    @operation("job/retry_many")
    async def retry_many(self, jobs: Sequence[UUID], now: Now) -> set[UUID]:
        """Finished ones come back, waiting ones are due now; which. Running ones are left."""

    @operation("job/attempts")
    async def attempts(self, job: UUID, limit: int) -> list[AttemptView]:
        """Attempts that did not simply succeed, the newest first."""

    @operation("stack/ask")
    async def ask_stack(self, job: UUID, request: UUID, now: Now) -> bool:
        """Ask the job's node for the stack of its handler: a signal ``stack`` of this
        ``request``. False: no node holds the job."""

    @operation("stack/answer")
    async def answer_stack(self, node: UUID, request: UUID, says: str, now: Now) -> bool:
        """The node's answer. False: something newer was asked since."""

    @operation("stack/get", answer=first("request claim_token asked_at answered_at says"))
    async def stack(self, job: UUID) -> dict[str, Any] | None:
        """What was asked for last, in the last hour or so: request, claim_token, asked_at,
        answered_at and says (None: not answered yet)."""

    @operation("schedule/run_now", answer=value)
    async def run_schedule(self, app: str, name: str, job: UUID, now: Now) -> bool:
        """Enqueue a schedule's job under this id, once. False: there is no such schedule."""

    @operation("schedule/remove")
    async def remove_schedule(self, app: str, name: str) -> bool: ...

    @operation("history/roll_up", aside=True)
    async def roll_up(self, since: datetime | None, now: Now) -> datetime:
        """Count the whole minutes from ``since`` on (None: where the history ends); up to where
        it was counted."""

    @operation("metrics/fold")
    async def fold_counts(self, limit: int) -> int:
        """Add what was tallied for metrics to the totals; how many tallies, at most ``limit``."""

    @operation(
        "history/list",
        answer=named(
            "at queue task_name completed cancelled discarded quarantined failed wait run"
        ),
    )
    async def history(self, since: datetime, queue: str | None, limit: int) -> Rows:
        """Minutes from ``since`` on, the oldest first: at, queue, task_name, completed,
        cancelled, discarded, quarantined, failed, and wait and run as counts per class of
        :func:`leasehold.model.history.class_seconds`."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of jobs. What is long is cut or left out."""

    rows: list[JobRecord]
    more: str | None
    """Where the next page starts; None: there is none."""
    looked_at: int
    """So many rows were looked at; fewer than there are, if ``more`` without a full page."""


class Reports(Operations):
    """Read-only questions that only people ask. Over connections of its own, so that no claim
    ever waits behind one of them; every answer is bounded."""

    @operation(
        "web/queues", answer=named("queue ready running capped oldest_seconds oldest_id about")
    )
    async def queues(self, now: Now, most: int = 5_000) -> Rows:
        """queue; ready, and how many of these run (both at least, if capped); capped;
        oldest_seconds and oldest_id, of the available job that has been due for longest; about,
        an estimate of ready (None: not known). ``most``: jobs that are counted."""

    async def job_page(self, wanted: JobFilter, after: str | None, limit: int) -> JobPage: ...

    async def matching(
        self, wanted: JobFilter, most: int, *, far: bool = False
    ) -> tuple[list[UUID], bool]:
        """The ids that a filter matches, at most so many; and whether there may be more. One
        look, as for a page; ``far``: as many as it takes, up to a million jobs."""

    @operation(
        "web/job",
        answer=first(
            "run_at claimed_at started_at node unique_key requeue_seconds timeout_seconds history "
            "ready held_because schedule tick_at ahead now"
        ),
    )
    async def job(self, job: UUID, now: Now = None) -> dict[str, Any] | None:
        """One job with what the view does not show: claimed_at, run_at, unique_key, ahead."""

    @operation("web/job_events")
    async def job_events(
        self, job: UUID, since: datetime, until: datetime, limit: int
    ) -> list[EventView]: ...

    @operation("web/schedules")
    async def schedules(self, limit: int) -> list[ScheduleDetail]: ...

    @operation("web/ticks")
    async def ticks(self, each: int, now: Now = None) -> list[TickView]:
        """The newest ticks of every schedule."""

    @operation("web/lease_events")
    async def lease_events(self, since: datetime, limit: int) -> list[EventView]: ...

    @operation("web/terms")
    async def terms(self, since: datetime, limit: int) -> list[TermView]:
        """Those since then, and of each election the last one before; the newest first."""

    async def events(
        self, kind: str | None, level: str | None, before: int | None, limit: int
    ) -> tuple[list[EventView], int | None]:
        """The newest before an id; and the id from which to go on, if there is more."""

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
        """What only grows: metric, subject, part, n."""

    @operation(
        "metrics/leases",
        answer=named(
            "name held term age_seconds acquired renewed resigned expired leaderless_seconds"
        ),
    )
    async def lease_counts(self, now: Now, limit: int = SERIES) -> Rows:
        """Of each leader: name, held, term, age_seconds, acquired, renewed, resigned, expired,
        leaderless_seconds."""

    @operation(
        "metrics/locks",
        answer=first(
            "held waiting oldest_wait_seconds advisory_held advisory_waiting "
            "advisory_oldest_wait_seconds"
        ),
    )
    async def lock_counts(self, now: Now) -> dict[str, Any]:
        """held, waiting, oldest_wait_seconds, and the same of advisory locks."""

    @operation("web/names")
    async def names(self) -> tuple[list[str], list[str]]:
        """What there is to be suggested: queues and tasks."""

    async def close(self) -> None: ...
