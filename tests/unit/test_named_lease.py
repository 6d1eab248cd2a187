"""A named lease without a database: what it makes of the rows that it is shown."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from uuid import UUID

import pytest

from leasework.config import Timings
from leasework.env import Clock, Env
from leasework.lease.membership import Membership
from leasework.lease.named_lease import LeaseContext, NamedLease
from leasework.model.lease import Lease, Phase, Seen, Timeline
from leasework.store.nodes import NodeIdentity
from leasework.store.operation import Term

ME, OTHER, TIMES = UUID(int=1), UUID(int=2), Timings.derive(9)
FREE = Seen(None, 6, 40, TIMES.lease, 1)
OWN = Seen(ME, 7, 41, TIMES.lease, 1)


class HandClock(Clock):
    at = 100.0

    def boot_now(self) -> float:
        return self.at


class Case:
    def __init__(self, name: str) -> None:
        self.clock, self.events = HandClock(), []
        identity = NodeIdentity(ME, "", "", "h", 1, "0", False, (), {})
        membership = Membership(identity, Lease(ME, TIMES))
        env = Env(clock=self.clock)
        context = LeaseContext(env, TIMES, self._emit, lambda: membership, Timeline(1))
        never: Any = nullcontext
        self.named = NamedLease(name, context, never)

    def _emit(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields["term"], fields["why"]))

    def hold(self, token: int) -> None:
        assert self.named.lease.acquired(token, self.clock.at, self.clock.at)
        self.named.observe(OWN._replace(token=token), self.clock.at)


def test_an_answer_from_before_the_acquisition_does_not_hide_the_row_that_is_ours():
    """A heartbeat that was sent before it: a lock passes on by the row as it is now."""
    case = Case("lock:x")
    case.hold(7)
    case.named.observe(FREE, case.clock.at)
    assert case.named.lease.watch.seen == OWN
    case.named.observe(Seen(OTHER, 8, 42, TIMES.lease, 1), case.clock.at)
    assert case.named.lease.phase is Phase.STEPPING_DOWN, "a later term ends ours"


def test_a_row_that_a_heartbeat_renewed_is_known_as_it_is_after_the_renewal():
    case = Case("lock:x")
    case.hold(7)
    case.named.observe(OWN, case.clock.at, renewed=True)
    assert case.named.lease.watch.seen == OWN._replace(seq=42)


def test_a_free_lock_is_left_to_the_first_in_its_queue_for_a_while():
    case = Case("lock:x")
    case.named.observe(FREE, case.clock.at)
    assert case.named.lease.may_act_at() == case.clock.at + TIMES.courtesy
    case.named.our_turn = True
    case.named.observe(FREE, case.clock.at)
    assert case.named.lease.may_act_at() == case.clock.at


def test_a_fenced_identity_does_not_forget_when_it_last_heard_of_a_leader():
    """After an outage of the database, nobody may have led for as long as that."""
    case = Case("app")
    case.named.observe(OWN, 100.0)
    case.named.observe(OWN, 101.0)
    case.named.start_anew()
    case.named.observe(FREE._replace(token=7, seq=42), 130.0)
    assert case.named.lease.watch.alive_at == 101.0


@pytest.mark.parametrize(("name", "kind"), [("lock:x", "lock_lost"), ("app", "lease_lost")])
def test_a_loss_is_reported_once_for_each_term(name: str, kind: str):
    case = Case(name)
    for token in (7, 8):
        case.hold(token)
        case.named.answered(Term(name, token), False, case.clock.at, case.clock.at)
        case.named.report_lost()
        case.named.report_lost()
        case.named.lease.stopped()
    assert case.events == [(kind, 7, "refused"), (kind, 8, "refused")]


def test_a_term_may_be_used_until_its_deadline():
    case = Case("app")
    assert case.named.term(case.clock.at) is None
    case.hold(7)
    assert case.named.next_moment() == case.clock.at + TIMES.trust
    assert case.named.term(case.named.next_moment() - 0.01) == Term("app", 7)
    assert case.named.term(case.named.next_moment()) is None
