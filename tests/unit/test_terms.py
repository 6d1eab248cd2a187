"""How each term of leadership ended, by what processes and others noted of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from leasework.store.rows import EventView, TermView
from leasework.watch.terms import with_ends
from tests.support.rows import EVENT, LEADER, NODE

T = datetime(2026, 11, 23, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T + timedelta(seconds=seconds)


def term(number: int, seconds: float, holder: str = "a") -> TermView:
    return TermView("shop", number, holder, at(seconds))


def event(kind: str, moment: float, /, **fields: Any) -> EventView:
    return EVENT._replace(kind=kind, at=at(moment), fields=fields)


def ended(terms: list[TermView], events: list[EventView], held: bool = True) -> Any:
    newest = max(row.term for row in terms)
    leader = LEADER._replace(term=newest, node=NODE.id if held else None)
    rows = with_ends(terms, events, [leader], at(100))
    return [(row.term, row.ended_at, row.seconds, row.ended) for row in rows]


def test_a_lost_term_has_its_reason_and_ends_by_the_holders_own_clock():
    lost = event("lease_lost", 40, name="shop", term=1, why="not renewed in time", seconds=30)
    assert ended([term(1, 0), term(2, 60, "b")], [lost]) == [
        (2, None, 40.0, "held"),
        (1, at(30), 30.0, "lost: not renewed in time"),
    ]


def test_a_resigned_term_says_so_and_nobody_follows():
    resigned = event("lease_resigned", 30, name="shop", term=1, why="stopping", seconds=30)
    other = event("lease_lost", 5, name="mail", term=1, why="fenced", seconds=5)
    assert ended([term(1, 0)], [other, resigned], held=False) == [
        (1, at(30), 30.0, "resigned: stopping")
    ]


def test_a_term_of_a_dead_process_ends_with_it_and_one_without_a_word_with_the_next():
    died = event("node_certified", 20, dead="a", how="killed by SIGKILL")
    unknown = "no record: it was killed, lost the database, or ended too long ago"
    rows = ended([term(1, 0), term(2, 21, "b"), term(3, 50, "c")], [died])
    assert rows[1:] == [
        (2, at(50), 29.0, unknown),
        (1, at(20), 20.0, "its process died: killed by SIGKILL"),
    ]
    assert ended([term(1, 0)], [], held=False) == [(1, None, None, unknown)]


def test_a_death_that_the_next_leader_records_ends_the_term_when_the_next_one_begins():
    silent = event("node_died", 31, dead="a", silent=15)
    rows = ended([term(1, 0), term(2, 30, "c")], [silent])
    assert rows[1:] == [(1, at(30), 30.0, "its process died or lost the database")]
