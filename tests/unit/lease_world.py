"""A little world for the lease's state machine: two processes whose clocks run at different
rates, one row, and a network that delays, reorders and loses. Only true time is shared, and
nobody can read it.

The statements are those of docs/explanation/protocol.md. ``BROKEN`` are the same with one
protection taken out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from leasework.config import Timings, wait_seconds
from leasework.model.lease import Lease, Phase, Seen, Timeline

_LONG, _SHORT = Timings.derive(15), Timings.derive(9)


@dataclass
class Process:
    """``rate``: how fast its clock runs; ``offset``: what it says at the beginning."""

    lease: Lease
    rate: float
    offset: float

    def clock(self, now: float) -> float:
        return self.offset + self.rate * now


Answer = Callable[[float], None]


class World:
    """Every change is checked at once; between changes belief only ends."""

    STEPS = ("poll", "acquire", "renew", "expire", "resign")

    def __init__(self, rng: random.Random, broken: Callable[[World], None] | None = None) -> None:
        self.rng = rng
        self.now = 0.0
        self.row = Seen(None, 0, 0, 6.0, 1)
        self.written: list[Seen] = []
        """The row as it was before each write on this timeline."""
        self.requests: list[tuple[Process, Callable[[], Answer]]] = []
        self.answers: list[tuple[Process, Answer]] = []
        self.terms: list[int] = []
        self.ended: set[int] = set()
        self.takeovers = 0
        self.lease_kind: type[Lease] = Lease
        self.compare = True
        self.resign_names_the_token = True
        self.rate_error = 1e-3
        self.longest_known = _LONG.lease
        """As the nodes' rows say."""
        self.settled = 0
        """The timeline that is settled, as the database says."""
        self.timeline_kind: type[Timeline] = Timeline
        if broken:
            broken(self)
        self.processes = [self._process(i) for i in range(2)]

    def _process(self, number: int) -> Process:
        timings = self.rng.choice([_LONG, _SHORT])
        rate = 1 + self.rng.choice([-1, 0, 1]) * self.rate_error
        timeline = self.timeline_kind(longest=self.longest_known)
        lease = self.lease_kind(UUID(int=number + 1), timings, timeline=timeline)
        return Process(lease, rate, self.rng.choice([0.0, 1000.0, -5.0]))

    # -- what may happen -------------------------------------------------------------------------
    def walk(self, steps: int) -> None:
        for _ in range(steps):
            dice, who = self.rng.random(), self.rng.randrange(2)
            if dice < 0.25:
                self.advance(self.rng.choice([0.01, 0.1, 0.4, 1.2, 2.0, 4.9, 6.1, 9.0]))
            elif dice < 0.33:
                self.advance_until_it_may_act(who)
            elif dice < 0.63:
                self.exchange(who, self.rng.choice(self.STEPS[:4]))
            elif dice < 0.80:
                self.act(who, self.rng.choice(self.STEPS))
            elif dice < 0.81:
                self.promote()
            elif dice < 0.90 and self.requests:
                self.serve(self.rng.randrange(len(self.requests)))
            elif self.answers:
                lost = self.rng.random() < 0.1
                self.deliver(self.rng.randrange(len(self.answers)), lost)

    def exchange(self, who: int, step: str) -> None:
        """A request that is answered at once, past all those that are under way."""
        before = len(self.requests)
        self.act(who, step)
        if len(self.requests) > before:
            self.serve(len(self.requests) - 1)
            self.deliver(len(self.answers) - 1, lost=False)

    def advance_until_it_may_act(self, who: int) -> None:
        """The most dangerous moment: not a moment later than allowed."""
        process = self.processes[who]
        wait = (process.lease.may_act_at() - process.clock(self.now)) / process.rate
        if 0 < wait < 100:
            self.advance(wait + 1e-6)
            self.exchange(who, "acquire")

    def advance(self, seconds: float) -> None:
        self._note_ends()
        self.now += seconds
        self._note_ends()

    def promote(self) -> None:
        """Another server goes on with what it had got: the last writes may be lost."""
        kept = self.rng.choice([*self.written[-3:], self.row])
        self.row = kept._replace(timeline=self.row.timeline + 1)
        self.written.clear()

    def serve(self, which: int) -> None:
        process, work = self.requests.pop(which)
        self.answers.append((process, work()))

    def deliver(self, which: int, lost: bool) -> None:
        process, answer = self.answers.pop(which)
        if not lost:
            answer(process.clock(self.now))
        self.check()

    def act(self, who: int, step: str) -> None:
        process = self.processes[who]
        getattr(self, f"_{step}")(process, process.clock(self.now))
        self.check()

    # -- a process -------------------------------------------------------------------------------
    def _poll(self, p: Process, now: float) -> None:
        settles = p.lease.timeline.settles(now)
        self._send(p, lambda: self._observed(p, self.row, settles))

    def _observed(self, p: Process, seen: Seen, settles: int) -> Answer:
        if settles == self.row.timeline:
            self.settled = settles
        settled = self.settled

        def answer(at: float) -> None:
            p.lease.timeline.settled = max(settled, p.lease.timeline.settled)
            p.lease.observe(seen, at)

        return answer

    def _acquire(self, p: Process, now: float) -> None:
        seen = p.lease.wants(now)
        if seen is not None:
            self._send(p, lambda: self._acquired(p, self._swap(p, seen), now))

    def _acquired(self, p: Process, token: int | None, sent_at: float) -> Answer:
        def answer(at: float) -> None:
            p.lease.watch.forget()
            if token:
                p.lease.acquired(token, sent_at, at)

        return answer

    def _renew(self, p: Process, now: float) -> None:
        token = p.lease.token
        if token is not None and p.lease.phase is Phase.HOLDER:
            self._send(p, lambda: self._renewed(p, token, self._touch(p, token), now))

    def _renewed(self, p: Process, token: int, done: bool, sent_at: float) -> Answer:
        if done:
            return lambda at: p.lease.renewed(token, sent_at, at)
        return lambda at: p.lease.refused(token, at)

    def _expire(self, p: Process, now: float) -> None:
        p.lease.expire(now)
        p.lease.stopped()

    def _resign(self, p: Process, now: float) -> None:
        token = p.lease.token
        if token is not None and p.lease.phase is Phase.HOLDER:
            p.lease.step_down("asked to")
            p.lease.stopped()
            self._send(p, lambda: self._resigned(p, token))

    def _resigned(self, p: Process, token: int) -> Answer:
        named = token == self.row.token or not self.resign_names_the_token
        if self.row.node == p.lease.me and named:
            self._write(self.row._replace(node=None, seq=self.row.seq + 1))
        return lambda at: None

    def _send(self, p: Process, work: Callable[[], Answer]) -> None:
        self.requests.append((p, work))

    # -- the row ---------------------------------------------------------------------------------
    def _swap(self, p: Process, seen: Seen) -> int | None:
        if self.compare and self.row != seen:
            return None
        token = max(self.row.token + 1, (self.row.timeline - 1) << 32)
        if not self.compare:
            token = max(seen.token + 1, (seen.timeline - 1) << 32)
        self.takeovers += self.row.node not in (None, p.lease.me)
        timings = p.lease.timings
        self._write(Seen(p.lease.me, token, self.row.seq + 1, timings.lease, self.row.timeline))
        assert token not in self.terms, "two acquisitions carry one token"
        assert token > max(self.terms, default=0), "a token went back"
        self.terms.append(token)
        return token

    def _touch(self, p: Process, token: int) -> bool:
        if (self.row.node, self.row.token) != (p.lease.me, token):
            return False
        self._write(self.row._replace(seq=self.row.seq + 1))
        return True

    def _write(self, row: Seen) -> None:
        self.written.append(self.row)
        self.row = row

    # -- what must hold --------------------------------------------------------------------------
    def believers(self) -> list[Process]:
        return [p for p in self.processes if p.lease.valid(p.clock(self.now))]

    def check(self) -> None:
        believers = self.believers()
        assert len(believers) <= 1, "two believe that they hold it"
        for p in believers:
            assert p.lease.token not in self.ended, "a term that had ended came back"
        self._note_ends()

    def _note_ends(self) -> None:
        """Terms whose holder has stopped to believe."""
        for p in self.processes:
            if p.lease.token is not None and not p.lease.valid(p.clock(self.now)):
                self.ended.add(p.lease.token)


# -- one protection less -------------------------------------------------------------------------
def a_deadline_counted_from_the_answer(world: World) -> None:
    class Late(Lease):
        def acquired(self, token: int, sent_at: float, received_at: float) -> bool:
            return super().acquired(token, received_at, received_at)

        def renewed(self, token: int, sent_at: float, received_at: float) -> None:
            super().renewed(token, received_at, received_at)

    world.lease_kind = Late


def a_wait_shorter_than_the_lease(world: World) -> None:
    class Hasty(Lease):
        def may_act_at(self) -> float:
            return super().may_act_at() - 0.4 * self.timings.lease

    world.lease_kind = Hasty


def a_wait_by_the_candidates_own_setting(world: World) -> None:
    class Own(Lease):
        def may_act_at(self) -> float:
            at, seen = super().may_act_at(), self.watch.seen
            if seen is None or seen.node in (None, self.me) or at == float("inf"):
                return at
            return at - wait_seconds(seen.lease_seconds) + wait_seconds(self.timings.lease)

    world.lease_kind = Own


def a_wait_that_a_renewal_does_not_start_again(world: World) -> None:
    class Deaf(Lease):
        def observe(self, seen: Seen, received_at: float) -> None:
            since, known = self.watch.since, self.watch.seen
            super().observe(seen, received_at)
            if known and (known.node, known.token) == (seen.node, seen.token):
                self.watch.since = since

    world.lease_kind = Deaf


def a_renewal_of_an_expired_term(world: World) -> None:
    class Again(Lease):
        def renewed(self, token: int, sent_at: float, received_at: float) -> None:
            if token == self.token:
                self.phase = Phase.HOLDER
                self.deadline = max(self.deadline, sent_at + self.timings.trust)

    world.lease_kind = Again


def a_token_that_is_not_from_a_compare_and_swap(world: World) -> None:
    world.compare = False


def a_resignation_that_does_not_name_its_term(world: World) -> None:
    world.resign_names_the_token = False


def a_shortcut_right_after_a_promotion(world: World) -> None:
    class Trusting(Lease):
        def may_act_at(self) -> float:
            seen = self.watch.seen
            if self.phase is Phase.FOLLOWER and seen and seen.node in (None, self.me):
                return self.watch.since
            return super().may_act_at()

    world.lease_kind = Trusting


def a_timeline_that_was_in_sight_before_it_began(world: World) -> None:
    class Early(Lease):
        def observe(self, seen: Seen, received_at: float) -> None:
            since, known = self.timeline.since, self.timeline.number
            super().observe(seen, received_at)
            if known:
                self.timeline.since = since

    world.lease_kind = Early


def a_wait_after_a_promotion_by_the_row_that_was_kept(world: World) -> None:
    world.longest_known = 0.0


def a_timeline_that_is_settled_at_once(world: World) -> None:
    class Hasty(Timeline):
        def settles(self, now: float) -> int:
            return self.number if self.number != self.settled else 0

    world.timeline_kind = Hasty


def clocks_that_run_a_tenth_apart(world: World) -> None:
    """Not a protection but an assumption: the waits stand on it."""
    world.rate_error = 0.1


BROKEN = [
    a_deadline_counted_from_the_answer,
    a_wait_shorter_than_the_lease,
    a_wait_by_the_candidates_own_setting,
    a_wait_that_a_renewal_does_not_start_again,
    a_renewal_of_an_expired_term,
    a_token_that_is_not_from_a_compare_and_swap,
    a_resignation_that_does_not_name_its_term,
    a_shortcut_right_after_a_promotion,
    a_timeline_that_was_in_sight_before_it_began,
    a_wait_after_a_promotion_by_the_row_that_was_kept,
    a_timeline_that_is_settled_at_once,
    clocks_that_run_a_tenth_apart,
]
