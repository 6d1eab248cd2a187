"""Schedules and their ticks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct, structs

from leasework.store.operation import Now, Operations, Term, operation, value


class DueSchedule(Struct, frozen=True):
    name: str
    spec: Any
    missed: str
    grace_seconds: float
    release: str
    high_water: datetime | None
    next_at: datetime
    now: datetime
    """The database's time when this was read."""
    mark: int
    """The hash of the spec in the database. Here the spec itself may be Unreadable."""
    former: Any = None
    """Earlier definitions with undecided moments. See :mod:`leasework.model.former`."""
    paused_at: datetime | None = None
    resumed_at: datetime | None = None
    """The last pause that ended."""


class LeftOut(Struct, frozen=True):
    """A definition to skip for as long as it does not change."""

    name: str
    mark: int
    missed: str


class TickDecision(Struct, frozen=True):
    """One entry of the ledger."""

    at: datetime
    state: str
    """``fired`` or ``missed``"""
    job: UUID | None = None
    until: datetime | None = None
    """The end of a stretch of missed moments that starts at ``at``."""


class TickPlan(Struct, frozen=True):
    """A decision about some moments of one schedule."""

    name: str
    release: str
    seen: datetime | None
    """The high-water mark on which it is based."""
    high_water: datetime | None
    next_at: datetime | None
    ticks: tuple[TickDecision, ...]
    mark: int | None = None
    """The definition that was decided, as in DueSchedule. None: any."""


class ScheduleDefinition(Struct, frozen=True):
    """A schedule as the code defines it."""

    name: str
    spec: dict[str, Any]
    described: str
    task_name: str
    job: dict[str, Any]
    missed: str
    grace_seconds: float
    next_at: datetime | None
    """The first moment, if the schedule is new or its spec changed. Due and undecided moments of
    the spec before stay due."""

    def as_json(self) -> dict[str, Any]:
        """Return it as ``put_schedule`` takes it."""
        return {**structs.asdict(self), "next_at": self.next_at and self.next_at.isoformat()}


class Synced(Struct, frozen=True):
    newest: bool
    """False: a newer release is alive, and its definitions stay."""
    kept: Sequence[str]
    dropped: Sequence[str]


class ScheduleStore(Operations):
    @operation("schedule/due")
    async def due_schedules(
        self, app: str, limit: int, now: Now, without: Sequence[LeftOut] = ()
    ) -> list[DueSchedule]:
        """Return due schedules, the longest due first, except those of ``without`` whose
        definitions have not changed."""

    @operation("schedule/next")
    async def next_schedule(
        self, app: str, now: Now, without: Sequence[LeftOut] = ()
    ) -> tuple[float | None, float]:
        """Return the seconds until the next moment (None: there is none), and how many seconds the
        newest decision is ahead of the clock (0 or less: it is not)."""

    @operation("schedule/fire")
    async def fire(
        self, term: Term, app: str, plans: Sequence[TickPlan], now: Now
    ) -> list[tuple[str, datetime, str]]:
        """Write decisions. Return the new ledger entries: (schedule, moment, state)."""

    @operation("schedule/sync")
    async def sync_schedules(
        self, app: str, release: str, schedules: Sequence[ScheduleDefinition], now: Now
    ) -> Synced: ...

    @operation("schedule/put", answer=value, waits=True)
    async def put_schedule(self, app: str, definition: dict[str, Any], now: Now) -> bool:
        """Make or replace a schedule at run time. ``definition``: a ScheduleDefinition as JSON.
        Return False if the code defines a schedule of that name."""

    @operation("schedule/delete", waits=True)
    async def delete_schedule(self, app: str, name: str, in_code: bool = False) -> bool:
        """Delete a schedule that was put, or one of the code. Return False if there is none."""

    @operation("schedule/pause", waits=True)
    async def pause_schedule(self, app: str, name: str, paused: bool, now: Now = None) -> bool: ...
