"""What people and their tools read, and what is kept for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from leasehold.ports.common import Now, Rows


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts for ``status``; each stops at 10,000."""

    ready: int
    waiting: int
    unknown: int
    quarantined: int
    unknown_tasks: tuple[str, ...]
    oldest: Mapping[str, float]
    """Queues with available jobs: for how many seconds the oldest of them has been due."""

    @property
    def oldest_seconds(self) -> float | None:
        return max(self.oldest.values(), default=None)

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(sorted(self.oldest))


class OperatorStore(Protocol):
    async def record(self, events: Sequence[dict[str, Any]], now: Now) -> None: ...

    async def prune_days(self, keep_days: int, now: Now) -> int:
        """Make the days of finished jobs ahead, drop those past keeping; how many went. Raises
        Conflict while a long reader holds them: then ask again later, for it takes locks behind
        which all others wait."""

    async def prune(self, days: dict[str, int], limit: int, now: Now) -> int:
        """``days``: events, ticks, attempts, history; how many rows went."""

    async def summary(self, now: Now) -> Summary: ...

    async def nodes(self, limit: int) -> Rows: ...

    async def leaders(self, limit: int) -> Rows: ...

    async def terms(self, name: str | None, limit: int) -> Rows: ...

    async def schedules(self, limit: int) -> Rows: ...

    async def ticks(self, schedule: str | None, limit: int, now: Now = None) -> Rows:
        """The newest entries of the ledger. ``outcome``: what became of the job, ``missed``, or
        ``unknown`` where nothing is kept of it; ``ran_seconds``: so far, if it runs."""

    async def events(self, kind: str | None, after: int | None, limit: int) -> Rows: ...

    async def pins(self, seconds: float, limit: int, now: Now) -> Rows:
        """Who keeps dead rows from being removed for at least so long, the oldest first: pid, what
        (``transaction``, ``prepared transaction``), role, application, state, seconds."""

    async def failures(self, seconds: float, now: Now) -> Rows:
        """Of each task whose attempts failed within that time: task, discarded (jobs), failed
        (attempts that will be tried again), finished (jobs in the history's minutes),
        counted_until (where these end), error (the newest)."""

    async def finished(self, since: datetime) -> dict[str, int]:
        """Jobs of each task that finished since then, of 20,000 at most."""

    async def failing_schedules(self, seconds: float, limit: int, now: Now) -> Rows:
        """Schedules whose newest job failed for good, while none of their last five completed
        within that time: app, name, task_name, job_id, state, finished_at, error."""

    async def check_schema(self) -> None:
        """Raises SchemaTooOld or SchemaTooNew."""

    async def lately(self, kinds: Sequence[str], seconds: float, limit: int, now: Now) -> Rows:
        """Events of these kinds not older than that, the newest first."""
