"""How many jobs a node claims of one queue."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from leasework.config import Limits
from leasework.jobs.executor import LocalQueue
from leasework.jobs.producer import Demand


class Env:
    now = 0.0

    def boot_now(self) -> float:
        return self.now


class Node:
    """A queue with four slots. Nothing runs yet."""

    def __init__(self) -> None:
        self.env: Any = Env()
        self.queue = LocalQueue("q", 4)
        self.demand = Demand(self.queue, self.env, Limits())

    def holds(self, *, running: int, waiting: int) -> None:
        self.queue.running, self.queue.waiting = running, deque([None] * waiting)  # type: ignore[list-item]

    def finishes(self, jobs: int, seconds: float) -> None:
        self.env.now += seconds
        self.queue.finished += jobs


def wants_more(demand: Demand) -> bool:
    return demand.more and demand.room() > 0


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_slot_that_is_idle_is_filled_at_once(node):
    node.holds(running=3, waiting=0)
    assert wants_more(node.demand)
    assert node.demand.limit() == 1


def test_slots_beyond_what_waits_to_start_are_filled_at_once(node):
    node.holds(running=0, waiting=3)
    assert node.demand.limit() == 1


def test_a_queue_that_is_known_to_be_empty_is_not_asked(node):
    node.demand.more = False
    assert not wants_more(node.demand)


def test_all_slots_are_filled_at_the_start(node):
    assert node.demand.limit() == 4


def test_jobs_are_claimed_ahead_as_fast_as_they_finish(node):
    node.finishes(1000, 1.0)
    assert node.demand.limit() == 4 + 50, "fifty finish in 50 ms"


def test_while_half_of_the_jobs_are_left_none_are_claimed(node):
    node.finishes(1000, 1.0)
    assert node.demand.limit()
    node.holds(running=4, waiting=24)
    assert node.demand.limit() == 0
    assert not wants_more(node.demand)
    node.holds(running=4, waiting=23)
    assert node.demand.limit() == 27
    assert wants_more(node.demand)


def test_when_claims_are_slow_they_are_larger(node):
    node.demand.moves(0.1)
    node.finishes(1000, 1.0)
    assert node.demand.limit() == 4 + 300
    node.demand.moves(60.0)
    assert node.demand.limit() == 4 + 500, "at most what finishes in half a second"
    node.finishes(10_000, 1.0)
    assert node.demand.limit() == Limits.batch_rows, "at most one batch"
