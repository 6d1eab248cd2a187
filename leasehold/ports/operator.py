"""What people and their tools read, and what is kept for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from leasehold.ports.common import Now, Rows


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts for ``status``; each stops at 10,000."""

    ready: int
    waiting: int
    unknown: int
    quarantined: int
    oldest_seconds: float | None
    """How long the oldest available job has been due."""
    unknown_tasks: tuple[str, ...]
    queues: tuple[str, ...]
    """Queues with available jobs."""


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

    async def check_schema(self) -> None:
        """Raises SchemaTooOld or SchemaTooNew."""

    async def lately(self, kinds: Sequence[str], seconds: float, limit: int, now: Now) -> Rows:
        """Events of these kinds not older than that, the newest first."""
