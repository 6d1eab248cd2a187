"""Decides which due ticks of a schedule fire, and which are only recorded as missed.

A tick that is at most ``grace_seconds`` late always fires. A later one is *late*, and the policy
decides. After ``catch_up_seconds`` a tick never fires. ``latest`` fires the newest late tick,
unless one that is on time is due as well. If more than ``limit`` are due, those that are missed
become one range, found by bisection: three days of each second cost as much as an hour.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from leasework.errors import BadSchedule, suggest

STEP_TOLERANCE_SECONDS = 1.0
"""A high-water mark may be this far ahead of now, because two servers' clocks differ."""

LONGEST_DEFAULT_GRACE = 5.0

_INSTANT = timedelta(microseconds=1)
_SOME_MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
_LONGEST_SECONDS = 100 * 366 * 86_400.0


class Moments(Protocol):
    """The moments of a schedule: its Spec, alone or with former ones."""

    def next_after(self, instant: datetime) -> datetime | None: ...


class Missed(StrEnum):
    """What happens to late ticks."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"

    @classmethod
    def parse(cls, value: object) -> Missed:
        """Raises :class:`BadSchedule`, which names the nearest policy."""
        try:
            return cls(str(value))
        except ValueError:
            hint = suggest(str(value)[:64], list(cls))
            raise BadSchedule("unknown policy for missed=", got=value, do=hint) from None


def default_grace(moments: Moments) -> float:
    """Return half of the schedule's interval, at most 5 s. A short delay then misses no tick, and
    ``latest`` fires no burst of ticks after an outage."""
    first = moments.next_after(_SOME_MOMENT)
    second = moments.next_after(first) if first else None
    if first is None or second is None:
        return LONGEST_DEFAULT_GRACE
    return min(LONGEST_DEFAULT_GRACE, (second - first).total_seconds() / 2)


class Plan(Struct, frozen=True):
    """What one call decided. In time order: ``jumped`` (the first and the last of many missed
    ticks, which are recorded as one), ``missed``, ``fires``. ``jumped`` and ``missed`` are never
    both filled. ``next_at`` is the first undecided tick, or None if there are no more. If it is
    due already, call again."""

    fires: tuple[datetime, ...]
    missed: tuple[datetime, ...]
    jumped: tuple[datetime, datetime] | None
    high_water: datetime | None
    next_at: datetime | None


def plan(
    spec: Moments,
    *,
    high_water: datetime | None,
    next_at: datetime | None,
    now: datetime,
    missed: Missed,
    grace_seconds: float,
    catch_up_seconds: float,
    limit: int,
) -> Plan:
    """Decide the due ticks: those from ``next_at`` (the first undecided) up to ``now``. List at
    most ``limit`` of them. If each call gets the ``high_water`` and ``next_at`` of the one before,
    each tick is decided once, in order, and the high-water mark never goes back."""
    if limit < 1 or not (grace_seconds >= 0 and catch_up_seconds >= 0):  # refuses NaN too
        got = f"limit={limit} grace={grace_seconds} catch_up={catch_up_seconds}"
        raise BadSchedule("limit is at least 1, grace and catch-up at least 0 seconds", got=got)
    first = next_at
    if first is not None and high_water is not None and first <= high_water:
        first = spec.next_after(high_water)
    due = _take(spec, first, now, limit + 1)
    if first is None or not due:
        return Plan((), (), None, high_water, first)

    fits = len(due) <= limit
    newest = due[-1] if fits else _last_before(spec, first, now + _INSTANT)
    fire_from = _fire_from(missed, newest, now, grace_seconds, catch_up_seconds)
    jumped, last_jumped = None, first
    if not fits and first < fire_from:
        last_jumped = _last_before(spec, first, fire_from)
        jumped = (first, last_jumped)
        due = _take(spec, spec.next_after(last_jumped), now, limit)
    due = due[:limit]
    decided = due[-1] if due else last_jumped
    following = spec.next_after(decided)
    return Plan(
        fires=tuple(tick for tick in due if tick >= fire_from),
        missed=tuple(tick for tick in due if tick < fire_from),
        jumped=jumped,
        high_water=decided,
        next_at=following,
    )


def _fire_from(
    policy: Missed, newest: datetime, now: datetime, grace_seconds: float, catch_up_seconds: float
) -> datetime:
    """Return the boundary: due ticks before it are missed, and the others fire."""
    oldest = now - timedelta(seconds=min(catch_up_seconds, _LONGEST_SECONDS))
    on_time = max(oldest, now - timedelta(seconds=min(grace_seconds, _LONGEST_SECONDS)))
    if policy is Missed.ALL:
        return oldest
    if policy is Missed.LATEST and oldest <= newest < on_time:
        return newest
    return on_time


def _take(spec: Moments, first: datetime | None, now: datetime, count: int) -> list[datetime]:
    """Return at most ``count`` ticks, from ``first`` to ``now``."""
    ticks: list[datetime] = []
    tick = first
    while tick is not None and tick <= now and len(ticks) < count:
        ticks.append(tick)
        tick = spec.next_after(tick)
    return ticks


def _last_before(spec: Moments, first: datetime, bound: datetime) -> datetime:
    """Find the last tick before ``bound`` by bisection. ``first`` is a tick before it."""
    last, high = first, bound
    while True:
        following = spec.next_after(last)
        if following is None or following >= bound:
            return last
        last = following
        middle = last + (high - last) / 2
        leap = spec.next_after(middle)
        if leap is not None and leap < bound:
            last = leap
        else:
            high = middle
