"""Deadlines: armed, met or breached, and what is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from leasehold.model.deadline import Breach, DueLevel, Level
from leasehold.ports.common import Now, Rows


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep decided."""

    breaches: tuple[Breach, ...]
    next_in: float | None
    """Seconds until the next one is due; None: none is armed."""


class DeadlineStore(Protocol):
    async def sweep(self, limit: int, now: Now) -> Swept:
        """Give at most ``limit`` passed deadlines their verdict, each with its callback's job.
        Anybody may do this at any time."""

    async def start_deadlines(
        self, node: UUID, job: UUID, token: int, now: Now
    ) -> tuple[DueLevel, ...]:
        """The job of this claim starts: arm what counts from its first start; all its levels,
        empty when the claim was lost."""

    async def arm_deadline(
        self, deadline: UUID, name: str, levels: Sequence[Level], now: Now
    ) -> tuple[UUID, bool]:
        """One that stands alone: (id, created); not created when one of that name is armed, or
        there is one for the same fixed time."""

    async def end_deadline(self, deadline: UUID, verdict: str, now: Now) -> str | None:
        """``met`` or ``cancelled``, unless it has its verdict: the state of its last level then.
        None: none of that id stands alone."""

    async def find_deadline(self, name: str) -> UUID | None:
        """The one of that name that stands alone: the armed one, or the newest."""

    async def prune_deadlines(self, days: int, limit: int, now: Now) -> int: ...

    async def deadlines(self, state: str | None, name: str | None, limit: int) -> Rows: ...

    async def unhandled_breaches(self, days: int, limit: int, now: Now) -> Rows:
        """Whose callback waits for a task that no live node knows (``why`` is ``unknown``), or
        ended without success (``why`` is its state)."""
