"""Schedules and their ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from leasehold.ports.common import Now, Term
from leasehold.ports.operation import Operations, operation


@dataclass(frozen=True, slots=True)
class DueSchedule:
    name: str
    spec: Any
    missed: str
    grace_seconds: float
    release: str
    high_water: datetime | None
    next_at: datetime
    now: datetime
    """The database's time at which it was due."""
    mark: int
    """Of the spec as the database has it; what we have read of it may be Unreadable."""
    former: Any = None
    """Earlier definitions that have undecided moments: see :mod:`leasehold.model.former`."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A definition that is not looked at, as long as it is what it was."""

    name: str
    mark: int
    missed: str


@dataclass(frozen=True, slots=True)
class TickDecision:
    """One entry of the ledger."""

    at: datetime
    state: str
    """``fired`` or ``missed``"""
    job: UUID | None = None
    until: datetime | None = None
    """The end of a stretch of missed moments that starts at ``at``."""


@dataclass(frozen=True, slots=True)
class TickPlan:
    """A decision on some moments of one schedule."""

    name: str
    release: str
    seen: datetime | None
    """The high-water mark on which it stands."""
    high_water: datetime | None
    next_at: datetime | None
    ticks: tuple[TickDecision, ...]


@dataclass(frozen=True, slots=True)
class ScheduleDefinition:
    """A schedule as the code defines it."""

    name: str
    spec: dict[str, Any]
    described: str
    task_name: str
    job: dict[str, Any]
    missed: str
    grace_seconds: float
    next_at: datetime | None
    """The first moment, if the schedule is new or its spec changed. Moments of the spec before that
    are due and undecided stay due."""


@dataclass(frozen=True, slots=True)
class Synced:
    newest: bool
    """False: a newer release is alive, and its definitions stand."""
    kept: Sequence[str]
    dropped: Sequence[str]


class ScheduleStore(Operations):
    @operation("schedule/due")
    async def due_schedules(
        self, app: str, limit: int, now: Now, without: Sequence[LeftOut] = ()
    ) -> list[DueSchedule]:
        """The longest due first; not those of ``without``, as long as their definitions are what
        they were."""

    @operation("schedule/next")
    async def next_schedule(
        self, app: str, now: Now, without: Sequence[LeftOut] = ()
    ) -> tuple[float | None, float]:
        """Seconds until the next moment (None: there is none), and how many seconds the
        furthest decided moment lies ahead of the clock (0 or less: it does not)."""

    @operation("schedule/fire")
    async def fire(
        self, term: Term, app: str, plans: Sequence[TickPlan], now: Now
    ) -> list[tuple[str, datetime, str]]:
        """Write decisions; the ledger entries made: (schedule, moment, state)."""

    @operation("schedule/clock")
    async def database_now(self, now: Now) -> datetime: ...

    @operation("schedule/sync")
    async def sync_schedules(
        self, app: str, release: str, schedules: Sequence[ScheduleDefinition], now: Now
    ) -> Synced: ...

    @operation("schedule/pause")
    async def pause_schedule(self, app: str, name: str, paused: bool) -> bool: ...
