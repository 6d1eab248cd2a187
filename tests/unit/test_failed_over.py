"""When a node doubts what it knows of its own jobs."""

from __future__ import annotations

from uuid import uuid4

from leasework.config import Settings
from leasework.lease.membership import Membership
from leasework.model.lease import Lease
from leasework.store.nodes import NodeIdentity


def registered_on(timeline: int) -> Membership:
    me = uuid4()
    lease = Lease(me, Settings().timings)
    assert lease.acquired((timeline - 1 << 32) + 7, 0.0, 0.1)
    return Membership(NodeIdentity(me, "a", "r1", "h", 1, "0", True, (), {}), lease)


def test_a_node_on_one_timeline_never_doubts():
    me = registered_on(3)
    assert [me.failed_over(3) for _ in range(3)] == [False, False, False]


def test_each_new_timeline_is_a_doubt_once():
    me = registered_on(1)
    assert [me.failed_over(number) for number in (1, 2, 2, 4, 4)] == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_a_failover_between_registration_and_first_heartbeat_is_a_doubt():
    assert registered_on(1).failed_over(2)
