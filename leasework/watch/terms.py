"""How terms of leadership ended: when, after how long, and why."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from leasework.store.rows import EventView, LeaderView, TermView

_WORDS = {"lease_lost": "lost", "lease_resigned": "resigned"}
HELD = "held"
_DEATHS = ("node_died", "node_certified")


class EndedTerm(NamedTuple):
    """A term and how it ended."""

    name: str
    term: int
    holder: str
    acquired_at: datetime
    ended_at: datetime | None
    """None if the term is still held, or if the time is unknown."""
    seconds: float | None
    """How long it has lasted or did last; None if unknown."""
    ended: str
    """``held``, or why it ended."""


def with_ends(
    terms: Iterable[TermView],
    events: Iterable[EventView],
    leaders: Iterable[LeaderView],
    now: datetime,
) -> list[EndedTerm]:
    """The terms and their ends, the newest first."""
    ends = {
        (event.fields.get("name"), event.fields.get("term")): event
        for event in events
        if event.kind in _WORDS
    }
    deaths = {str(e.fields.get("dead")): e for e in events if e.kind in _DEATHS}
    held = {(row.name, row.term) for row in leaders if row.node is not None}
    following: dict[str, datetime] = {}
    found = []
    for row in sorted(terms, key=lambda row: -row.term):
        key = (row.name, row.term)
        began, after = row.acquired_at, following.get(row.name)
        following[row.name] = began
        if key in ends:
            ended_at, why = _said(ends[key], began)
        elif key in held:
            ended_at, why = None, HELD
        else:
            ended_at, why = _unsaid(deaths.get(row.holder), began, after)
        last = now if why == HELD else ended_at
        seconds = max(0.0, (last - began).total_seconds()) if last else None
        found.append(EndedTerm(*row, ended_at, seconds, why))
    return sorted(found, key=lambda row: (row.acquired_at, row.term), reverse=True)


def _said(event: EventView, began: datetime) -> tuple[datetime, str]:
    """The end by the holder's own account, which it may have written late."""
    fields = event.fields
    seconds, at = fields.get("seconds"), event.at
    if isinstance(seconds, (int, float)) and 0 <= seconds < 1e9:
        at = min(at, began + timedelta(seconds=seconds))
    why = fields.get("why")
    return at, f"{_WORDS[event.kind]}: {why}" if why else _WORDS[event.kind]


def _unsaid(
    death: EventView | None, began: datetime, after: datetime | None
) -> tuple[datetime | None, str]:
    if death is None or death.at < began:
        return after, "no record: it was killed, lost the database, or ended too long ago"
    # whoever takes over records the death of an unsupervised leader after its own term began
    ended_at = min(death.at, after) if after else death.at
    how = death.fields.get("how")
    return ended_at, f"its process died: {how}" if how else "its process died or lost the database"
