"""What lies below a mark, cut into pieces that are looked at one after the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from leasehold.jobs.walk import BLIND, HURRY, USUAL, Pace, Walk
from leasehold.model.job import FIRST, Mark, Span

BEGINNING = datetime(2026, 1, 1, 12, tzinfo=UTC)
TOOK = 0.002


def place(seconds: float, priority: int = 3) -> Mark:
    return Mark(priority, BEGINNING + timedelta(seconds=seconds), UUID(int=0))


def cut(walk: Walk, begin: int, end: int, priority: int = 3) -> None:
    for second in range(begin, end):
        walk.cut(place(second, priority), second)


def once_round(
    walk: Walk, reached: Mark, now: float, took: float = TOOK, pace: Pace = USUAL
) -> list[Span]:
    spans = [walk.next(reached, pace)]
    while not walk.passed(spans[-1].end, took, now):
        spans.append(walk.next(reached, pace))
    return spans


def test_the_pieces_are_next_to_each_other_and_nothing_is_left_out() -> None:
    walk = Walk()
    cut(walk, 0, 61)
    for _ in range(2):
        spans = once_round(walk, place(60.5), 60.0)
        assert [span.begin for span in spans] == [FIRST, *(span.end for span in spans[:-1])]
        assert len(spans) == 14 and spans[-1].end == place(60.5)


def test_pieces_become_longer_and_not_more_all_of_them() -> None:
    walk = Walk()
    cut(walk, 0, 24 * 3600)
    spans = once_round(walk, place(24 * 3600), 24 * 3600.0)
    assert 16 <= len(spans) <= 34
    lengths = [span.end.run_at - span.begin.run_at for span in spans[1:-1]]
    assert max(lengths) < 2 * min(lengths), "the old ones as the new ones"


def test_a_mark_that_stays_is_cut_once() -> None:
    walk = Walk()
    for second in range(100):
        walk.cut(place(1), second)
    once_round(walk, place(2), 600.0)
    walk.again(600.0)
    assert walk.due_in(600.0, place(2), USUAL) == 10, "two pieces, in 20 seconds"


def test_a_walk_ends_where_the_mark_is_though_it_was_further_once() -> None:
    walk = Walk()
    cut(walk, 0, 61)
    spans = once_round(walk, place(30.5), 60.0)
    assert spans[-2].end == place(30) and spans[-1] == Span(place(30), place(30.5))
    while (span := walk.next(place(60.5), USUAL)).end != place(50):
        walk.passed(span.end, TOOK, 60.0)
    assert walk.next(place(-1), USUAL) == Span(FIRST, place(-1)), "from the beginning"


def test_cuts_beyond_the_mark_do_not_hurry_the_others() -> None:
    walk = Walk()
    cut(walk, 0, 150)
    once_round(walk, place(12), 600.0)
    walk.again(600.0)
    assert walk.due_in(600.0, place(12), USUAL) == pytest.approx(20 / 4)


def test_what_pieces_take_longer_than_a_look_from_the_mark_is_added_up() -> None:
    walk = Walk()
    cut(walk, 0, 61)
    walk.marked(TOOK / 2)
    assert len(once_round(walk, place(60.5), 60.0)) == 14
    assert walk.again(60.0) == pytest.approx(14 * TOOK / 2)
    walk.marked(TOOK)
    once_round(walk, place(60.5), 60.0)
    assert walk.again(60.0) == pytest.approx(0), "of this time round"


def test_pieces_that_are_short_are_joined_where_somebody_waits() -> None:
    walk = Walk()
    cut(walk, 0, 121)
    assert len(once_round(walk, place(120.5), 120.0, took=0.02)) == 26, "nothing is known yet"
    walk.again(120.0)
    for pace in BLIND, HURRY:
        spans = once_round(walk, place(120.5), 120.0, took=0.04, pace=pace)
        assert len(spans) == 13, "two of 20 ms"
        assert [span.begin for span in spans] == [FIRST, *(span.end for span in spans[:-1])]
        walk.again(120.0)
    assert walk.due_in(120.0, place(120.5), BLIND) == pytest.approx(1 / 13)
    assert len(once_round(walk, place(120.5), 120.0, took=0.0)) == 26
    walk.again(120.0)
    for took, count in (0.1, 4), (0.1, 9):
        assert len(once_round(walk, place(120.5), 120.0, took, BLIND)) == count, "eight, three"
        walk.again(120.0)
