"""What people and their tools read, and the pruning of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from leasehold.ports.operation import Now, Operations, operation, value
from leasehold.ports.rows import (
    EventView,
    FailingSchedule,
    LeaderView,
    LockView,
    NodeView,
    ScheduleLag,
    TaskFailures,
    TermView,
    TickView,
    TransactionView,
)


class Summary(Struct, frozen=True):
    """Counts for ``status``, each at most 10,000."""

    ready: int
    waiting: int
    unknown: int
    quarantined: int
    unknown_tasks: Sequence[str]
    oldest: Mapping[str, float]
    """Queue with available jobs → seconds for which the oldest of them has been due."""
    undated: datetime | None = None
    """When the oldest of the finished jobs ended whose day does not exist in the history."""

    @property
    def oldest_seconds(self) -> float | None:
        return max(self.oldest.values(), default=None)

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(sorted(self.oldest))


class OperatorStore(Operations):
    async def note_lock(self, kind: str, key: int, name: str, now: Now) -> str:
        """Record the name of an advisory lock's key, and return the recorded one, which differs if
        two names have the same key. ``kind``: ``key`` or ``class``. The locks themselves are taken
        on other connections, which a Store does not have."""

    @operation("lock/list")
    async def locks(self, limit: int) -> list[LockView]:
        """Return leases and advisory locks, held and waited for."""

    @operation("event/record")
    async def record(self, events: Sequence[dict[str, Any]], now: Now) -> None: ...

    @operation("prune/partitions", answer=value)
    async def prune_days(self, keep_days: int, now: Now) -> int:
        """Create the coming days of finished jobs, and drop the expired ones. Return how many were
        dropped. Raises Conflict while a long reader locks them. Retry later then, because it takes
        locks behind which all others wait."""

    @operation("prune/rows")
    async def prune(self, days: dict[str, int], limit: int, now: Now) -> int:
        """Delete rows older than ``days`` (events, ticks, attempts, history). Return how many."""

    @operation("status/summary")
    async def summary(self, now: Now) -> Summary: ...

    @operation("node/list")
    async def nodes(self, limit: int) -> list[NodeView]: ...

    @operation("leader/list")
    async def leaders(self, limit: int) -> list[LeaderView]: ...

    @operation("leader/terms")
    async def terms(self, name: str | None, limit: int) -> list[TermView]: ...

    @operation("schedule/ticks")
    async def ticks(self, schedule: str | None, limit: int, now: Now = None) -> list[TickView]:
        """Return the newest entries of the ledger."""

    @operation("event/list")
    async def events(self, kind: str | None, after: int | None, limit: int) -> list[EventView]: ...

    @operation("status/transactions")
    async def transactions(self, limit: int, now: Now = None) -> list[TransactionView]:
        """Return what blocks vacuum, the oldest snapshot first."""

    @operation("status/failures")
    async def failures(
        self, outcome: str, seconds: float, now: Now, limit: int = 2000
    ) -> list[TaskFailures]:
        """Return the tasks with attempts of that outcome, ``discarded`` or ``retryable``, within
        that time. ``limit``: attempts that are counted. Tasks whose discarded jobs are older than
        all these have no error here."""

    # only a connection of its own may use the plan that reads job_done by a bitmap scan
    @operation("status/finished", answer=dict, aside=True)
    async def finished(self, since: datetime, most: int = 20_000) -> dict[str, int]:
        """Return the number of jobs per task that finished since then. Counts at most ``most``."""

    @operation("status/schedules")
    async def schedule_lags(self, limit: int, now: Now) -> list[ScheduleLag]:
        """Return how late schedules are, the latest first."""

    @operation("status/failing_schedules")
    async def failing_schedules(
        self, seconds: float, limit: int, now: Now
    ) -> list[FailingSchedule]:
        """Return schedules whose newest job failed for good, and none of whose last five jobs
        completed within that time. Looks at ``limit`` jobs that failed for good."""

    async def check_schema(self) -> None:
        """Raise SchemaTooOld or SchemaTooNew if this version cannot work with the schema."""

    @operation("event/lately")
    async def lately(
        self, kinds: Sequence[str], seconds: float, limit: int, now: Now
    ) -> list[EventView]:
        """Return events of these kinds of the last ``seconds``, at most ``limit`` of each kind, the
        newest first."""
