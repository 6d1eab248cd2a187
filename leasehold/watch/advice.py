"""Which recover_within suits what was seen: round trips, renewals, and nodes that were fenced."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.config import Timings
from leasehold.ports.doctor import Examination

LADDER = (9.0, 10.0, 12.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0)
"""Seconds that are recommended; nobody sets 13.7."""
TRIPS_A_CALL = 5.0
"""A renewal's call may take so many times the longest round trip that was seen."""
LATE_TWICE = 2.0
"""A renewal may be so many times as late as the latest that was seen."""


@dataclass(frozen=True, slots=True)
class Advice:
    seconds: float
    """What to set: the present setting where that holds."""
    least: float
    """The least that would hold by what was seen."""
    why: str


def worst_trip(found: Examination) -> float:
    """Seconds."""
    return max(found.clocks.round_trips, default=0.0)


def worst_gap(found: Examination) -> float | None:
    """Seconds between two renewals of a node that lives; None: none was watched. A node that is
    silent for its whole lease is dead, and says nothing about how late the living are."""
    return max((gap.worst for gap in found.gaps if gap.worst < gap.lease), default=None)


def recommended(found: Examination, present: float) -> Advice:
    """``present``: the recover_within that is set, in seconds."""
    trip = worst_trip(found)
    late = max((_lateness(gap.worst, gap.lease) for gap in found.gaps), default=0.0)
    least = next((r for r in LADDER if holds(r, trip, late)), LADDER[-1])
    if found.trouble.get("node_fenced", 0) and least <= present:
        above = next((r for r in LADDER if r > present), LADDER[-1])
        return Advice(above, least, "nodes that lived were too late with their renewals")
    if least > present:
        return Advice(least, least, f"a lease needs {TRIPS_A_CALL:g} such trips for each call")
    return Advice(present, least, "")


def holds(recover_within: float, trip: float, late: float) -> bool:
    """Is there room for calls and for late renewals? Seconds."""
    times = Timings.derive(recover_within)
    room = times.trust - times.renew - times.call_timeout
    return times.call_timeout >= TRIPS_A_CALL * trip and room >= LATE_TWICE * late


def _lateness(worst: float, lease: float) -> float:
    """How much longer than its interval (a fifth of the lease) the longest gap was; a node that
    is silent for its whole lease is dead, not late."""
    return 0.0 if worst >= lease else max(0.0, worst - lease / 5)
