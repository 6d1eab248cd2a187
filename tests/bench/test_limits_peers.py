"""The measure of limits: what is counted as beyond the limit, and when a place is used again."""

from __future__ import annotations

import pytest

from bench.measures.limits_peers import Interval, beyond, places
from bench.parties import limited
from tests.bench.test_measures import bench, rows

__all__ = ["bench"]
SECOND = 1_000_000_000


def ran(start: float, end: float, pid: int = 1, killed: bool = False) -> Interval:
    return Interval(0, int(start * SECOND), int(end * SECOND), pid, killed)


def test_pairs_beyond_the_limit_are_counted_at_each_start():
    two = [ran(0, 2), ran(1, 3)]
    assert beyond([*two, ran(2, 4), ran(3, 5)]) == 0  # each begins when another ends
    assert beyond([*two, ran(1.5, 4)]) == 1
    assert beyond([*two, ran(1.5, 4), ran(1.6, 4)]) == 3


def test_a_place_is_used_again_when_one_more_runs_than_without_it():
    dead = [ran(0, 2, 7, True), ran(0, 2, 7, True)]
    assert list(places([*dead, ran(5, 9), ran(6, 9)], {7})) == [3.0, 4.0]
    assert list(places([*dead, ran(5, 9), ran(9, 10)], {7})) == [3.0, None]
    assert list(places(dead, {7})) == []  # nothing was left to run


@pytest.mark.timeout(300)
def test_leasework_keeps_its_limit_and_loses_nothing(bench):
    [result] = bench("limits-peers", "--jobs=100", "--keys=2", "--every=2", "--seconds=12")
    figures = rows(result)["leasework"]
    assert figures["beyond"] == figures["unfinished"] == 0
    # where few jobs are left, there is nothing to use the last place for
    assert figures["never"] <= 2
    assert figures["started"] >= 100 and figures["cut_off"] >= 1


def test_a_peer_without_limits_is_unknown():
    with pytest.raises(SystemExit, match="unknown: chancy"):
        limited(["chancy"])
