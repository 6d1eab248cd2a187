"""A term of the user's asks the clock at each use."""

from __future__ import annotations

from uuid import UUID

from leasework.config import Timings
from leasework.env import Clock, Env
from leasework.lease.bids import Bid, Patience
from leasework.lease.membership import Membership
from leasework.model.lease import Lease
from leasework.store.nodes import NodeIdentity

ME, SIX = UUID(int=1), Timings.derive(9)


class HandClock(Clock):
    at = 100.0

    def boot_now(self) -> float:
        return self.at


def granted() -> tuple[Bid, HandClock, Lease, Membership]:
    clock = HandClock()
    identity = NodeIdentity(ME, "", "", "h", 1, "0", False, (), {})
    node, lease = Lease(ME, SIX), Lease(ME, SIX)
    for each, token in ((node, 3), (lease, 7)):
        assert each.acquired(token, clock.at, clock.at)
    bid = Bid("lock:x", Env(clock=clock), Patience.WAIT, has_body=True)
    assert bid.grant(7, lease, Membership(identity, node))
    return bid, clock, lease, bid._membership  # type: ignore[return-value]


def test_a_term_ends_at_its_deadline_though_nobody_has_said_so_yet():
    bid, clock, _, _ = granted()
    assert bid.valid() and not bid.lost.is_set()
    clock.at += SIX.trust
    assert not bid.valid() and bid.lost.is_set()


def test_a_term_ends_with_the_lease_of_its_node():
    bid, clock, lease, membership = granted()
    clock.at += 3.0
    lease.renewed(7, clock.at, clock.at)
    membership.lease.step_down("fenced")
    assert lease.valid(clock.at) and not bid.valid()


def test_a_term_is_not_the_next_one():
    bid, clock, lease, _ = granted()
    lease.step_down("handed over")
    lease.stopped()
    assert lease.acquired(8, clock.at, clock.at)
    assert not bid.valid() and bid.lost.is_set()
