"""What people and their tools read, and what is kept for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from leasehold.ports.common import Now, Rows
from leasehold.ports.operation import Operations, named, operation, value
from leasehold.ports.rows import (
    EventView,
    FailingSchedule,
    LeaderView,
    NodeView,
    ScheduleView,
    TermView,
    TickView,
)


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts for ``status``; each stops at 10,000."""

    ready: int
    waiting: int
    unknown: int
    quarantined: int
    unknown_tasks: Sequence[str]
    oldest: Mapping[str, float]
    """Queues with available jobs: for how many seconds the oldest of them has been due."""

    @property
    def oldest_seconds(self) -> float | None:
        return max(self.oldest.values(), default=None)

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(sorted(self.oldest))


class OperatorStore(Operations):
    @operation("event/record")
    async def record(self, events: Sequence[dict[str, Any]], now: Now) -> None: ...

    @operation("prune/partitions", answer=value)
    async def prune_days(self, keep_days: int, now: Now) -> int:
        """Make the days of finished jobs ahead, drop those past keeping; how many went. Raises
        Conflict while a long reader holds them: then ask again later, for it takes locks behind
        which all others wait."""

    async def prune(self, days: dict[str, int], limit: int, now: Now) -> int:
        """``days``: events, ticks, attempts, history; how many rows went."""

    @operation("status/summary")
    async def summary(self, now: Now) -> Summary: ...

    @operation("node/list")
    async def nodes(self, limit: int) -> list[NodeView]: ...

    @operation("leader/list")
    async def leaders(self, limit: int) -> list[LeaderView]: ...

    @operation("leader/terms")
    async def terms(self, name: str | None, limit: int) -> list[TermView]: ...

    @operation("schedule/list")
    async def schedules(self, limit: int) -> list[ScheduleView]: ...

    @operation("schedule/ticks")
    async def ticks(self, schedule: str | None, limit: int, now: Now = None) -> list[TickView]:
        """The newest entries of the ledger."""

    @operation("event/list")
    async def events(self, kind: str | None, after: int | None, limit: int) -> list[EventView]: ...

    @operation("status/pins", answer=named("pid what role application state seconds"))
    async def pins(self, seconds: float, limit: int, now: Now) -> Rows:
        """Who keeps dead rows from being removed for at least so long, the oldest first: pid, what
        (``transaction``, ``prepared transaction``), role, application, state, seconds."""

    @operation(
        "status/failures",
        answer=named("task discarded failed finished counted_until error"),
    )
    async def failures(self, seconds: float, now: Now, limit: int = 2000) -> Rows:
        """Of each task whose attempts failed within that time: task, discarded (jobs), failed
        (attempts that will be tried again), finished (jobs in the history's minutes),
        counted_until (where these end), error (the newest). ``limit``: failed attempts that are
        counted."""

    # the plan that reads job_done by ranges of pages is to be had aside alone
    @operation("status/finished", answer=dict, aside=True)
    async def finished(self, since: datetime, most: int = 20_000) -> dict[str, int]:
        """Jobs of each task that finished since then; so many are counted."""

    @operation("status/failing_schedules")
    async def failing_schedules(
        self, seconds: float, limit: int, now: Now
    ) -> list[FailingSchedule]:
        """Schedules whose newest job failed for good, while none of their last five completed
        within that time."""

    async def check_schema(self) -> None:
        """Raises SchemaTooOld or SchemaTooNew."""

    @operation("event/lately")
    async def lately(
        self, kinds: Sequence[str], seconds: float, limit: int, now: Now
    ) -> list[EventView]:
        """Events of these kinds not older than that, the newest first."""
