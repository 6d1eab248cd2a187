"""The simulation's checkers on made-up tables: each speaks of what it is there for, and of nothing
else. (That they speak in a run, the broken builds of mutants.py show.)"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from leasehold.ports import NodeIdentity
from leasehold.sim.check_rest import TICK_LATE, restless
from leasehold.sim.rows import DeathRow, NodeRow, ScheduleRow, SimDatabase, TickRow

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@dataclass
class Host:
    """What the checkers ask of a process. ``left``: seconds for which it trusts its lease."""

    me: UUID = field(default_factory=uuid4)
    alive: bool = True
    joined: bool = True
    left: float | None = 1.0
    plan: Any = field(default_factory=lambda: SimpleNamespace(planned=[]))

    def is_node(self, node: UUID) -> bool:
        return node == self.me

    def boot_now(self) -> float:
        return 100.0

    def trusts(self) -> tuple[UUID, float] | None:
        return None if self.left is None else (self.me, 100.0 + self.left)

    def __repr__(self) -> str:
        return "p0.1"


def tables(*nodes: UUID) -> SimDatabase:
    db = SimDatabase(lambda: NOW)
    for node in nodes:
        identity = NodeIdentity(node, "a", "r1", "h", 1, "0", True, (), {})
        db.nodes[node] = NodeRow(identity, 1, 6.0, NOW, NOW)
    return db


def planned(*names: str) -> Any:
    return SimpleNamespace(planned=[SimpleNamespace(name=name) for name in names])


def schedule(db: SimDatabase, name: str, *, newest: datetime | None, paused: bool = False) -> None:
    db.schedules["a", name] = ScheduleRow(
        "a", name, {}, "", "tick", {}, "latest", 1.0, "r1", NOW, NOW, paused
    )
    if newest is not None:
        first = newest - 5 * SECOND
        db.ticks["a", name, first] = TickRow(newest, "missed", None, 1, NOW)


def said(db: SimDatabase, *hosts: Host) -> list[str]:
    return list(restless(db, hosts))  # type: ignore[arg-type]


def test_where_all_take_part_and_fire_there_is_nothing_to_say():
    host = Host(plan=planned("second"))
    db = tables(host.me)
    schedule(db, "second", newest=NOW - SECOND)
    assert said(db, host) == []


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (Host(alive=False), "was not started again"),
        (Host(joined=False), "has not joined, or its stop has not ended"),
        (Host(left=None), "holds no lease of its own"),
        (Host(left=0.0), "holds no lease of its own"),
    ],
)
def test_a_process_that_never_came_back_is_told(host: Host, words: str):
    assert said(tables(host.me), host) == [f"NoStuck: p0.1 {words}"]


def test_a_lease_without_a_row_is_told():
    assert said(tables(), Host()) == ["NoStuck: p0.1 trusts a lease that is in no row"]


def test_a_row_without_a_process_and_a_death_that_is_not_settled_are_told():
    host, dead = Host(), uuid4()
    db = tables(host.me, dead)
    db.deaths[uuid4()] = DeathRow("w", NOW)
    assert said(db, host) == [
        "NoStuck: 1 deaths are not settled",
        f"NoStuck: node {dead} is dead, and its row is there",
    ]


@pytest.mark.parametrize("newest", [None, NOW - TICK_LATE - SECOND])
def test_a_schedule_that_does_not_fire_is_told(newest: datetime | None):
    db = tables()
    schedule(db, "second", newest=newest)
    (what,) = said(db)
    assert what.startswith(f"TickOnce: second fires no more: its ledger ends with {newest}")


def test_a_schedule_that_was_paused_may_be_silent():
    db = tables()
    schedule(db, "second", newest=None, paused=True)
    assert said(db) == []


def test_a_schedule_of_the_code_that_is_in_no_row_is_told():
    host = Host(plan=planned("second"))
    assert said(tables(host.me), host) == ["TickOnce: schedule second is planned, and in no row"]
