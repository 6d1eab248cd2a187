"""Deadlines: arming, meeting and breaching them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import Struct

from leasework.model.deadline import Breach, DueDeadline
from leasework.pg.connection.fast.link import Row
from leasework.store.operation import Now, Operations, operation


class Swept(Struct, frozen=True):
    """What one sweep decided."""

    breaches: tuple[Breach, ...]
    next_in: float | None
    """Seconds until the next deadline is due; None: none is armed."""


def _swept(rows: list[Row]) -> Swept:
    return Swept(tuple(Breach(*row[1:]) for row in rows if row[1] is not None), rows[0][0])


def _started(rows: list[Row]) -> tuple[bool, DueDeadline | None]:
    return bool(rows), DueDeadline(*rows[0]) if rows and rows[0][1] else None


class DeadlineStore(Operations):
    @operation("deadline/sweep", answer=_swept)
    async def sweep(self, limit: int, now: Now) -> Swept:
        """Decide at most ``limit`` passed deadlines, and enqueue their callbacks. Any process may
        do this at any time."""

    @operation("deadline/start", answer=_started)
    async def start_deadline(
        self, node: UUID, job: UUID, token: int, now: Now
    ) -> tuple[bool, DueDeadline | None]:
        """Note that the claim's job starts: arm its deadline if it counts from the first start.
        Return whether the claim holds, and the deadline; None: it ended long ago."""

    @operation("deadline/arm", waits=True)
    async def arm_deadline(
        self, deadline: UUID, name: str, promise: dict[str, Any], now: Now
    ) -> tuple[UUID, bool]:
        """Arm a deadline without a job, unless one of that name is armed or has the same fixed
        time. ``promise``: from ``Promise.as_json``. Return (id, created)."""

    @operation("deadline/end", waits=True)
    async def end_deadline(self, deadline: UUID, verdict: str, now: Now) -> str | None:
        """End a deadline without a job as ``met`` or ``cancelled``, unless it has ended. Return its
        state, or None if there is no such deadline."""

    @operation("deadline/find")
    async def find_deadline(self, name: str) -> UUID | None:
        """Return the deadline without a job of that name: the armed one, or the newest."""

    @operation("deadline/prune")
    async def prune_deadlines(self, days: int, limit: int, now: Now) -> int: ...
