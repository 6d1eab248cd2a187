"""Recommends a recover_within from measured round trips, renewals and fenced nodes."""

from __future__ import annotations

from msgspec import Struct

from leasework.config import Timings
from leasework.ports.doctor import Examination
from leasework.tuning import Tuning

LADDER = (9.0, 10.0, 12.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0)
"""Values to recommend, in seconds."""


class Advice(Struct, frozen=True):
    seconds: float
    """What to set: the current setting if it holds."""
    least: float
    """The lowest value that would hold, given what was measured."""
    why: str


def worst_trip(found: Examination) -> float:
    """The longest round trip, in seconds."""
    return max(found.clocks.round_trips, default=0.0)


def worst_gap(found: Examination) -> float | None:
    """The longest time between two renewals of a live node, in seconds; None if none was watched.
    Excludes nodes that were silent for a whole lease: they are dead, not late."""
    return max((gap.worst for gap in found.gaps if gap.worst < gap.lease), default=None)


def recommended(found: Examination, present: float) -> Advice:
    """``present``: the current recover_within, in seconds."""
    trip = worst_trip(found)
    # how much longer than the renewal interval, a fifth of the lease, the longest gap was; a node
    # that was silent for its whole lease is dead, not late
    late = max([0.0, *(gap.worst - gap.lease / 5 for gap in found.gaps if gap.worst < gap.lease)])
    least = next((r for r in LADDER if holds(r, trip, late)), LADDER[-1])
    if found.trouble.get("node_fenced", 0) and least <= present:
        above = next((r for r in LADDER if r > present), LADDER[-1])
        return Advice(above, least, "live nodes were too late with their renewals")
    if least > present:
        why = f"a lease needs {Tuning.trips_per_call:g} such round trips per call"
        return Advice(least, least, why)
    return Advice(present, least, "")


def holds(recover_within: float, trip: float, late: float) -> bool:
    """Does this setting leave room for calls and for late renewals? All arguments in seconds."""
    times = Timings.derive(recover_within)
    room = times.trust - times.renew - times.call_timeout
    return times.call_timeout >= Tuning.trips_per_call * trip and room >= Tuning.late_factor * late
