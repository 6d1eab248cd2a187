"""The simulation's checkers on made-up tables: each speaks of what it is there for, and of nothing
else. (That they speak in a run, the broken builds of mutants.py show.)"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from leasework_lab.sim.check_rest import TICK_LATE, restless, without_effect
from leasework_lab.sim.checkers import Run, Watch
from leasework_lab.sim.cluster import Result
from leasework_lab.sim.rows import DeathRow, NodeRow, ScheduleRow, SimDatabase, TickRow

from leasework.model.outcome import COMPLETED
from leasework.store.jobs import Acked, AckItem
from leasework.store.nodes import NodeIdentity
from tests.sim.mutants import MUTANTS, Mutant
from tests.sim.search import search, table

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
    stopped_at: float = 0.0

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
        (Host(alive=False), "was not restarted"),
        (Host(joined=False), "has not joined, or has not finished its stop"),
        (Host(left=None), "holds no lease of its own"),
        (Host(left=0.0), "holds no lease of its own"),
    ],
)
def test_a_process_that_never_came_back_is_told(host: Host, words: str):
    assert said(tables(host.me), host) == [f"NoStuck: p0.1 {words}"]


def test_a_lease_without_a_row_is_told():
    assert said(tables(), Host()) == ["NoStuck: p0.1 trusts a lease that has no row"]


def test_a_row_without_a_process_and_a_death_that_is_not_settled_are_told():
    host, dead = Host(), uuid4()
    db = tables(host.me, dead)
    db.deaths[uuid4()] = DeathRow("w", NOW, "default")
    assert said(db, host) == [
        "NoStuck: 1 deaths are not settled",
        f"NoStuck: node {dead} is dead but still has a row",
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
    assert said(tables(host.me), host) == ["TickOnce: schedule second is planned but has no row"]


# -- a failover that loses commits excuses only what it has lost ---------------------------------
def watch() -> Watch:
    return Watch(tables(), lambda: 7.0, 2.0)


def claims(watch: Watch, job: UUID, token: int) -> None:
    watch.statement("claim", (), [SimpleNamespace(id=job, claim_token=token)])


def acks(watch: Watch, job: UUID, token: int, name: str = "ack") -> None:
    item = AckItem(job, token, COMPLETED, 0.1)
    watch.statement(name, (uuid4(), [item]), Acked(frozenset({job}), frozenset()))


def failover(watch: Watch, memory: dict[str, Any], *lost: UUID) -> None:
    watch.goes_back(memory, set(lost))


@pytest.mark.parametrize("name", ["ack", "ack_again"])
def test_a_stale_outcome_is_seen_after_a_failover_too(name: str):
    seen, job = watch(), uuid4()
    failover(seen, seen.remember())
    claims(seen, job, 1)
    claims(seen, job, 2)
    acks(seen, job, 1, name)
    assert seen.violations == [f"7.000 FencedWrite: {job} was written under 1"]


def test_who_held_a_job_before_the_lost_claims_may_write_its_outcome():
    seen, job = watch(), uuid4()
    claims(seen, job, 1)
    memory = seen.remember()
    claims(seen, job, 2)
    failover(seen, memory)
    acks(seen, job, 1)
    assert seen.violations == []
    acks(seen, job, 2)
    assert seen.violations == [f"7.000 FencedWrite: {job} was written under 2"]


def test_a_repetition_may_be_told_that_a_lost_job_was_written():
    seen, job = watch(), uuid4()
    memory = seen.remember()
    claims(seen, job, 1)
    failover(seen, memory, job)
    acks(seen, job, 1, "ack_again")
    assert seen.violations == []


def test_a_lost_job_that_comes_again_must_not_be_lost_once_more():
    seen, job = watch(), uuid4()
    seen.acknowledged.add(job)
    failover(seen, seen.remember(), job)
    assert seen.pending() == []
    seen.statement("enqueue", (), [(job, True)])
    seen.last_look()
    assert seen.violations == [
        f"7.000 NoLoss: {job} does not exist, but its enqueue was acknowledged"
    ]


def test_a_lost_job_that_a_later_failover_brings_back_is_not_lost():
    seen, job = watch(), uuid4()
    seen.acknowledged.add(job)
    memory = seen.remember()
    failover(seen, memory, job)
    seen.db.jobs[job] = SimpleNamespace(claim_token=None)  # type: ignore[assignment]
    failover(seen, memory)
    del seen.db.jobs[job]
    assert seen.pending() == [job]


# -- a clean stop --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("stopped_at", "token", "said"),
    [
        (4.0, 3, []),  # it had its grace of two seconds
        (5.5, 4, []),  # it waited, and had not begun
        (5.5, 3, ["7.000 CleanStop: p0.1 gave back {job} after 1.500 s"]),
    ],
)
def test_what_runs_is_given_back_when_the_grace_is_over(
    stopped_at: float, token: int, said: list[str]
):
    seen, job = watch(), uuid4()
    host: Any = Host(joined=False, stopped_at=stopped_at)
    seen.runs[job.int, 3] = Run(job, 3, host.me, host)
    seen.statement("give_back", (host.me, [(job, token)]), 1)
    assert seen.violations == [text.format(job=job) for text in said]


# -- what is completed has run --------------------------------------------------------------------
def end(watch: Watch, token: int | None, task: str = "plain", state: str = "completed") -> UUID:
    job = uuid4()
    row: Any = SimpleNamespace(
        id=job, claim_token=token, task=task, deadlines=[], schedule=None, payload={}
    )
    watch.finished(row, state)
    watch.db.done[job] = SimpleNamespace(job=row, state=state)  # type: ignore[assignment]
    return job


def returned(watch: Watch, job: UUID, token: int) -> None:
    claim: Any = SimpleNamespace(job=SimpleNamespace(id=job, claim_token=token))
    watch.returned(SimpleNamespace(claim=claim))  # type: ignore[arg-type]


@pytest.mark.parametrize("token", [4, None])
def test_a_job_that_is_completed_and_did_not_run_is_told(token: int | None):
    seen = watch()
    job = end(seen, token)
    assert seen.violations == [f"7.000 Ran: {job} is completed under {token} but did not run"]
    end(seen, None, state="cancelled")
    assert len(seen.violations) == 1


def test_what_has_run_under_its_last_claim_is_completed():
    seen, job = watch(), uuid4()
    row: Any = SimpleNamespace(id=job, claim_token=4, task="plain", deadlines=[])
    returned(seen, job, 3)
    seen.finished(row, "completed")
    assert len(seen.violations) == 1, "it ended under an older claim"
    seen.violations.clear()
    seen._finished.clear()
    returned(seen, job, 4)
    seen.finished(row, "completed")
    assert seen.violations == []


def test_an_effect_that_is_not_there_is_told_at_once_and_at_the_end():
    seen = watch()
    job = end(seen, 4, "effect")
    assert [text.split(":")[0] for text in seen.violations] == ["7.000 Ran"]
    gone = f"EffectOnce: {job} is completed but had no effect"
    assert list(without_effect(seen.db, seen.effects)) == [gone]
    seen.last_look()
    assert f"7.000 {gone}" in seen.violations
    assert list(without_effect(seen.db, [(job, 4)])) == []


# -- the search for broken builds ----------------------------------------------------------------
class Written(Mutant):
    """``runs``: what was seen in each seed."""

    def run(self, seed: int) -> Result:
        return Result(seed, "calm", RUNS[seed], {}, 1.0)


RUNS: list[list[str]] = [
    [],
    ["3.1 unhandled: KeyError('x') None", "4.0 the run broke off: Unavailable"],
    ["2.0 OneBeliever: two", "2.1 unhandled: KeyError('x') None"],
    ["5.0 a service failed: {'service': 'stager'}"],
    ["5.0 a service failed: {'service': 'stager'}", "6.0 Failover: no leader"],
]


def test_an_error_of_a_broken_build_itself_is_no_find():
    found = search(Written("Own", "nothing"), 2)
    assert (found.seed, found.by, found.crashed) == (None, "", 1)
    found = search(Written("Own", "nothing"), 3)
    assert (found.seed, found.seeds, found.by, found.crashed) == (2, 3, "OneBeliever", 1)
    assert "OneBeliever (broke by itself in seed 1)" in table([found])


def test_what_a_service_says_of_itself_finds_no_broken_build(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.sim.test_checkers.RUNS", RUNS[3:])
    found = search(Written("Own", "nothing"), 1)
    assert (found.seed, found.by, found.crashed) == (None, "", None)
    found = search(Written("Own", "nothing"), 2)
    assert (found.seed, found.by, found.crashed) == (1, "Failover", None)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_broken_build_replaces_is_there(mutant: Mutant):
    with mutant.patch():
        pass
