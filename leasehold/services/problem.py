"""What a look at the database gave, and what may be said of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from leasehold.ports import Rows, Summary


@dataclass(frozen=True, slots=True)
class Problem:
    """``kind`` is stable, for tools; ``sentence`` says what is wrong and ``do`` what helps."""

    kind: str
    sentence: str
    do: str
    info: bool = False
    """True: worth knowing, but nothing is wrong."""

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "sentence": self.sentence, "do": self.do}


@dataclass(frozen=True, slots=True)
class Facts:
    """What one look at the database gave; rows as the Store's operator operations give them."""

    now: datetime
    """The database's time."""
    summary: Summary
    nodes: Rows
    leaders: Rows
    schedules: Rows
    events: Rows
    """The newest, any order."""
    unhandled: Rows = field(default_factory=list)
    """Breaches whose callback waits for an unknown task, or ended without success."""
    pins: Rows = field(default_factory=list)
    """Who keeps dead rows from being removed, the oldest first."""
    pin_seconds: float = 300.0
    """So long it may."""

    @property
    def live_nodes(self) -> Rows:
        return [node for node in self.nodes if not stale(node)]


def duration(seconds: float) -> str:
    """``0.4 s``, ``42 s``, ``3 min 5 s``, ``2 h 7 min``, ``3 d 4 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    if whole >= 60:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole} s"


def stale(row: dict[str, Any]) -> bool:
    """Its renewal is older than its lease."""
    age = row["age_seconds"]
    return age is None or bool(age > row["lease_seconds"])
