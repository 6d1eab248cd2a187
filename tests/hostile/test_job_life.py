"""A job's life, step by step in any order, on a real server, held against the table of moves.

After each step: every job is in one place and in one state; what moved, moved along edges that are
in TRANSITIONS *and* that the statement which moved it declares; tokens only grow; what was refused
changed nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import leasework
from leasework.config import Settings
from leasework.env import Clock, Ids
from leasework.errors import UniqueConflict
from leasework.model.backoff import Backoff
from leasework.model.job import ClaimedJob, OnConflict
from leasework.model.outcome import (
    Cancel,
    Complete,
    Discard,
    Fail,
    Outcome,
    Snooze,
    Unknown,
    decide,
)
from leasework.model.states import FINISHED, WAITING, State
from leasework.store.jobs import AckItem
from leasework.store.nodes import NodeIdentity
from leasework.store.operation import Term
from leasework.store.store import Store
from tests.support.requests import job_request
from tests.support.transitions import NEW, TRANSITIONS

QUEUE = "life"
MAX_CRASHES = 2
START = datetime(2026, 1, 1, tzinfo=UTC)
SQL = Path(leasework.__file__).parent / "pg" / "sql" / "job"
TABLES = ("job", "job_done", "attempt", "job_key", "node", "death", "leader", "fence", "term",
          "signal")  # fmt: skip

outcomes = st.sampled_from(
    [Complete(), Complete('{"a":1}'), Fail("no"), Snooze(5), Cancel(), Discard(), Unknown()]
)
picks = st.integers(0, 7)


def edges(verb: str) -> set[tuple[State, State]]:
    """What the statement's header declares."""
    found = re.findall(r"^-- edge: (\w+) -> (\w+)", (SQL / f"{verb}.sql").read_text(), re.M)
    return {(State(old), State(new)) for old, new in found}


class Life(RuleBasedStateMachine):
    """The steps; ``run``, ``store`` and a connection to ``look`` with come from the server."""

    run: Any
    store: Store
    look: psycopg.Connection[Any]

    @initialize()
    def begin(self) -> None:
        self.look.execute("set statement_timeout = '20s'")
        for table in TABLES:  # not truncate: it makes files anew, which takes longer
            self.look.execute(f"delete from leasework.{table}")
        self.ids = Ids(Clock())
        self.now = START
        self.seen: dict[UUID, State] = {}
        self.declared: set[tuple[State, State]] = set()
        self.vanished = 0  # completed without a history
        self.silent: set[UUID] = set()
        self.held: dict[UUID, tuple[NodeIdentity, ClaimedJob]] = {}
        self.late: list[tuple[NodeIdentity, ClaimedJob]] = []
        self.highest = 0
        self.walked: set[tuple[State, State]] = set()
        self.nodes = [self.join(), self.join()]
        self.dead: list[UUID] = []
        self.run(self.store.ensure_election(QUEUE, 6.0))
        beat = self.beat(self.nodes[0])
        term = self.run(
            self.store.acquire(QUEUE, self.nodes[0], beat.leaders[QUEUE], 6.0, 10.0, self.now)
        )
        self.term = Term(QUEUE, term)

    def join(self) -> NodeIdentity:
        node = NodeIdentity(
            uuid4(), "default", "r", "host", 1, "0", True, ("t",), {QUEUE: 5}
        )  # fmt: skip
        self.tokens = getattr(self, "tokens", {})
        self.tokens[node.id] = self.run(self.store.register(node, 6.0, self.now))
        return node

    def beat(self, node: NodeIdentity) -> Any:
        return self.run(
            self.store.heartbeat(node.id, self.tokens[node.id], [], [QUEUE], {}, [], 10.0, self.now)
        )

    def some(self, n: int) -> UUID:
        return list(self.seen)[n % len(self.seen)]

    def one_held(self, n: int) -> tuple[NodeIdentity, ClaimedJob]:
        return list(self.held.values())[n % len(self.held)]

    def lose(self, job: UUID) -> None:
        """The claim is over; what its node still writes is late."""
        if job in self.held:
            self.late.append(self.held.pop(job))

    # -- the steps ---------------------------------------------------------------------------------
    @rule(
        delay=st.sampled_from([None, None, 10.0]),
        attempts=st.integers(1, 3),
        unique=st.sampled_from([None, None, "k1", "k2"]),
        conflict=st.sampled_from(list(OnConflict)),
        history=st.sampled_from([True, True, False]),
        priority=st.integers(-1, 1),
    )
    def enqueue(self, delay: Any, attempts: int, unique: Any, conflict: Any, history: bool,
                priority: int) -> None:  # fmt: skip
        job = job_request(
            queue=QUEUE, run_in=delay, max_attempts=attempts, unique=unique,
            on_conflict=conflict, history=history, priority=priority,
        )  # fmt: skip
        new = self.ids.new()
        try:
            [(job_id, created)] = self.run(
                self.store.enqueue([(new, job)], 1 << 20, False, self.now)
            )
        except UniqueConflict:
            assert unique and conflict == OnConflict.RAISE
            return
        assert created == (job_id == new) and (created or unique)
        # a conflict that replaces moves a waiting job's time, and so its state
        self.declared = {(NEW, State.AVAILABLE), (NEW, State.SCHEDULED)}
        if not created and conflict == OnConflict.REPLACE:
            assert self.seen[job_id] in WAITING | {State.RUNNING}
            self.look_again(also={job_id})
        if created:
            self.seen[job_id] = NEW
            if not history:
                self.silent.add(job_id)

    @rule(n=picks, limit=st.integers(1, 4))
    def claim(self, n: int, limit: int) -> None:
        node = self.nodes[n % len(self.nodes)]
        ready = sum(state == State.AVAILABLE for state in self.seen.values())
        claims = self.run(self.store.claim(node.id, 1, {QUEUE: limit}, [], self.now))
        self.declared = edges("claim")
        assert len(claims) <= min(limit, ready)
        assert claims or not ready, "work was there and nobody got it"
        for claim in claims:
            assert claim.claim_token > self.highest and claim.attempt >= 1
            assert claim.id not in self.held, "two live claims of one job"
            self.held[claim.id] = (node, claim)
        self.highest = max([self.highest, *(claim.claim_token for claim in claims)])

    @precondition(lambda self: self.held)
    @rule(n=picks)
    def start(self, n: int) -> None:
        node, claim = self.one_held(n)
        assert self.run(self.store.start(node.id, claim.id, claim.claim_token, self.now))

    @precondition(lambda self: self.held)
    @rule(n=picks, outcome=outcomes, again=st.booleans())
    def ack(self, n: int, outcome: Outcome, again: bool) -> None:
        node, claim = self.one_held(n)
        decision = decide(claim, outcome, Backoff(), 0.5)
        item = AckItem(claim.id, claim.claim_token, decision, 0.1)
        acked = self.run(self.store.ack(node.id, [item], self.now))
        assert acked.written == {claim.id}
        if again:  # the answer was lost: what was written counts, and is not written twice
            repeated = self.run(self.store.ack_again(node.id, [item], self.now))
            assert repeated.written == {claim.id} or claim.id in self.silent
        self.declared = {(State.RUNNING, decision.state)}
        self.declared |= {(State.RUNNING, State.CANCELLED)}  # somebody asked meanwhile
        assert self.declared <= edges("ack")
        self.lose(claim.id)

    @precondition(lambda self: self.late)
    @rule(n=picks, outcome=outcomes)
    def late_ack(self, n: int, outcome: Outcome) -> None:
        node, claim = self.late[n % len(self.late)]
        item = AckItem(claim.id, claim.claim_token, decide(claim, outcome, Backoff(), 0.5), 0.1)
        acked = self.run(self.store.ack(node.id, [item], self.now))
        assert not acked.written and not acked.locked
        assert not self.run(self.store.start(node.id, claim.id, claim.claim_token, self.now))
        assert not self.run(self.store.give_back(node.id, [(claim.id, claim.claim_token)]))
        assert self.run(self.store.requeue(claim.id, claim.claim_token)) is None
        self.declared = set()

    @precondition(lambda self: self.held)
    @rule(n=picks)
    def give_back(self, n: int) -> None:
        node, claim = self.one_held(n)
        assert self.run(self.store.give_back(node.id, [(claim.id, claim.claim_token)])) == 1
        self.declared = edges("give_back")
        self.lose(claim.id)

    @precondition(lambda self: self.held)
    @rule(n=picks)
    def requeue(self, n: int) -> None:
        _, claim = self.one_held(n)
        assert self.run(self.store.requeue(claim.id, claim.claim_token)) is not State.RUNNING
        self.declared = edges("requeue")
        self.lose(claim.id)

    @precondition(lambda self: self.seen)
    @rule(n=picks)
    def cancel(self, n: int) -> None:
        job = self.some(n)
        before = self.seen[job]
        answer = self.run(self.store.cancel(job, "no more", self.now))
        want = "finished" if before in FINISHED else "running"
        assert answer == (want if before in FINISHED | {State.RUNNING} else "waiting")
        self.declared = edges("cancel")

    @precondition(lambda self: self.seen)
    @rule(n=picks)
    def retry(self, n: int) -> None:
        job = self.some(n)
        before = self.seen[job]
        answer = self.run(self.store.retry(job, self.now))
        want = "finished" if before in FINISHED else "running"
        assert answer == (want if before in FINISHED | {State.RUNNING} else "waiting")
        self.declared = edges("retry")
        if before in FINISHED:
            self.silent.discard(job)  # a job that is run again keeps its history
        assert before == State.RUNNING or self.state(job) == State.AVAILABLE

    @precondition(lambda self: self.seen)
    @rule(n=picks)
    def discard(self, n: int) -> None:
        job = self.some(n)
        before = self.seen[job]
        answer = self.run(self.store.discard(job, "no more", self.now))
        other = "finished" if before in FINISHED else "waiting"
        alone = {State.QUARANTINED: "quarantined", State.RUNNING: "running"}
        assert answer == alone.get(before, other)
        self.declared = edges("discard")

    @rule(seconds=st.sampled_from([1, 10, 60]))
    def stage(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.beat(self.nodes[0])
        self.run(self.store.stage(self.term, 100, self.now))
        self.declared = edges("stage")
        assert not self.look.execute(
            "select 1 from leasework.job where not ready and run_at <= %s", [self.now]
        ).fetchall()

    @rule()
    def bury(self) -> None:
        """A node dies; another one takes its place. Nothing moves yet."""
        victim = self.nodes.pop(1)
        seen = {row.id: row.seen for row in self.beat(self.nodes[0]).nodes}[victim.id]
        assert self.run(self.store.bury(self.term, victim.id, seen.token, seen.seq))
        self.dead.append(victim.id)
        self.nodes.append(self.join())
        self.declared = set()

    @precondition(lambda self: self.dead)
    @rule()
    def rescue(self) -> None:
        mine = {job for job, (node, _) in self.held.items() if node.id in self.dead}
        freed = self.run(self.store.rescue(self.dead, MAX_CRASHES, 100, self.now))
        self.declared = edges("rescue")
        assert {f.job for f in freed} == mine, "a dead node keeps a job, or a live one lost its own"
        for job in mine:
            self.lose(job)
        assert len(self.run(self.store.deaths(100))) <= len(self.dead)
        self.run(self.store.settle(self.dead))
        self.dead = []

    # -- what holds after each step ----------------------------------------------------------------
    def state(self, job: UUID) -> State:
        found = self.run(self.store.get(job))
        assert found
        return State(found.state)

    def look_again(self, also: set[UUID]) -> None:
        for job in also:
            self.seen[job] = self.state(job)

    @invariant()
    def only_moves_of_the_table_happened(self) -> None:
        if not hasattr(self, "seen"):
            return
        rows = self.look.execute(
            "select id, state, claim_token, node from leasework.jobs"
        ).fetchall()
        found = {row[0]: State(row[1]) for row in rows}
        assert len(found) == len(rows), "a job stands in two places"
        for job, before in list(self.seen.items()):
            if job not in found:
                assert job in self.silent and before == State.RUNNING, "a job is lost"
                assert (State.RUNNING, State.COMPLETED) in self.declared
                del self.seen[job]
                self.vanished += 1
                continue
            now = found.pop(job)
            if now != before:
                assert (before, now) in TRANSITIONS, f"{before} -> {now} is in no table"
                assert (before, now) in self.declared, f"{before} -> {now} is not this step's"
                self.walked.add((before, now))
            self.seen[job] = now
        assert not found, "a job that nobody enqueued"
        running = {job for job, state in self.seen.items() if state == State.RUNNING}
        assert running == set(self.held), "who runs is not who holds a claim"
        for job, _, token, node in rows:
            if job in self.held:
                holder, claim = self.held[job]
                assert (token, node) == (claim.claim_token, holder.id)
        self.declared = set()

    @invariant()
    def no_key_is_held_by_what_has_finished(self) -> None:
        if not hasattr(self, "seen"):
            return
        held = self.look.execute("select job_id from leasework.job_key").fetchall()
        assert {job for (job,) in held} <= {j for j, s in self.seen.items() if s not in FINISHED}


@pytest.fixture
def machine(migrated: str) -> Iterator[type[Life]]:
    """The machine on a server of its own."""
    chosen = Settings(dsn=migrated)
    with asyncio.Runner() as runner, psycopg.connect(migrated, autocommit=True) as look:
        store = Store(chosen, "life")

        class OnThisServer(Life):
            def run(self, work: Coroutine[Any, Any, Any]) -> Any:
                return runner.run(work)

        OnThisServer.store, OnThisServer.look = store, look
        try:
            yield OnThisServer
        finally:
            runner.run(store.close())


def test_every_step_of_a_jobs_life_is_in_the_table(machine: type[Life]) -> None:
    limits = settings(
        max_examples=25,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=limits)


def test_every_move_of_the_table_can_be_made(machine: type[Life]) -> None:
    """The same steps in an order that walks each edge: what the search above can meet is all."""
    life = machine()
    life.begin()

    def step(name: str, **given: Any) -> None:
        getattr(life, name)(**given)
        life.only_moves_of_the_table_happened()
        life.no_key_is_held_by_what_has_finished()

    def new(delay: float | None = None, attempts: int = 3) -> None:
        step("enqueue", delay=delay, attempts=attempts, unique="k1", conflict=OnConflict.RAISE,
             history=True, priority=0)  # fmt: skip

    def ended(outcome: Outcome) -> None:
        step("claim", n=0, limit=1)
        step("ack", n=0, outcome=outcome, again=True)

    def again() -> None:
        step("retry", n=len(life.seen) - 1)

    def discarded() -> None:
        step("discard", n=len(life.seen) - 1)

    def cancelled() -> None:
        step("cancel", n=len(life.seen) - 1)

    new()
    for outcome in (Complete(), Cancel(), Discard()):
        ended(outcome)
        again()
    ended(Fail("no"))
    step("stage", seconds=60)
    ended(Snooze(5))
    step("stage", seconds=60)
    step("claim", n=0, limit=1)
    step("give_back", n=0)
    cancelled()
    again()
    ended(Fail("no"))
    cancelled()
    new(delay=10.0)
    discarded()
    new(delay=10.0)
    cancelled()
    again()
    discarded()
    again()
    ended(Fail("no"))
    discarded()
    again()
    for _ in range(MAX_CRASHES):
        step("claim", n=1, limit=1)
        step("start", n=0)
        step("bury")
        step("rescue")
    again()
    for _ in range(MAX_CRASHES):
        step("claim", n=1, limit=1)
        step("start", n=0)
        step("bury")
        step("rescue")
    discarded()
    step("late_ack", n=0, outcome=Complete())
    assert life.walked == TRANSITIONS, TRANSITIONS ^ life.walked
