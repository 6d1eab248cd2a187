"""The lease's state machine: its rules one by one, then two processes against each other."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from leasework.config import Timings, wait_seconds
from leasework.model.lease import Lease, Phase, Seen, Timeline, Watch
from tests.unit.lease_world import BROKEN, World

ME, OTHER = UUID(int=1), UUID(int=2)
SIX = Timings.derive(9)  # T = 6 s
D, W = SIX.trust, wait_seconds(6.0)


def follower() -> Lease:
    return Lease(ME, SIX)


def holder(token: int = 7, sent_at: float = 100.0) -> Lease:
    lease = follower()
    assert lease.acquired(token, sent_at, sent_at)
    return lease


def row(node: UUID | None = OTHER, token: int = 7, seq: int = 1, **changes) -> Seen:
    return Seen(node, token, seq, **{"lease_seconds": 6.0, "timeline": 1, **changes})


# -- the holder ----------------------------------------------------------------------------------
def test_the_wait_is_longer_than_the_trust_by_more_than_two_clocks_can_differ():
    assert D * 1.001 < W * 0.999


def test_a_holder_trusts_itself_from_before_it_asked():
    lease = follower()
    lease.acquired(7, sent_at=100.0, received_at=103.0)
    assert lease.valid(100.0 + D - 0.001)
    assert not lease.valid(100.0 + D)


def test_an_acquisition_that_was_answered_too_late_is_no_term():
    lease = follower()
    assert not lease.acquired(7, sent_at=100.0, received_at=100.0 + D)
    assert lease.phase is Phase.FOLLOWER
    lease.observe(row(node=ME), 110.0)
    assert lease.wants(110.0) == row(node=ME), "it takes a new term at once"


def test_a_renewal_moves_the_deadline_to_its_own_start():
    lease = holder()
    lease.renewed(7, sent_at=102.0, received_at=104.0)
    assert lease.deadline == 102.0 + D


def test_an_answer_from_before_never_takes_time_away():
    lease = holder()
    lease.renewed(7, sent_at=103.0, received_at=103.5)
    lease.renewed(7, sent_at=101.0, received_at=103.6)
    assert lease.deadline == 103.0 + D


def test_a_renewal_of_another_term_is_thrown_away():
    lease = holder()
    lease.renewed(6, sent_at=104.0, received_at=104.0)
    assert lease.deadline == 100.0 + D


def test_an_expired_term_is_never_renewed():
    lease = holder()
    lease.renewed(7, sent_at=104.0, received_at=100.0 + D)
    assert not lease.valid(100.0 + D)
    assert lease.expire(100.0 + D)
    lease.renewed(7, sent_at=106.0, received_at=106.0)
    assert not lease.valid(106.0)


def test_the_expiry_is_told_once():
    lease = holder()
    assert not lease.expire(100.0 + D - 0.001)
    assert lease.expire(100.0 + D)
    assert not lease.expire(100.0 + D + 1)
    assert lease.why_down == "expired"


def test_a_refused_renewal_ends_the_term_at_once():
    lease = holder()
    lease.refused(7, 101.0)
    assert not lease.valid(101.0)
    assert not lease.overdue(101.0)
    assert lease.overdue(101.0 + SIX.grace)


def test_a_refusal_of_an_older_term_ends_nothing():
    lease = holder(token=8)
    lease.refused(7, 101.0)
    assert lease.valid(101.0)


def test_a_holder_that_sees_a_higher_token_steps_down():
    lease = holder(token=7)
    lease.observe(row(token=8), 101.0)
    assert not lease.valid(101.0)
    assert lease.why_down == "replaced"


def test_while_something_still_runs_nothing_is_acquired():
    lease = holder()
    lease.observe(row(node=None), 101.0)
    lease.step_down("asked to")
    assert lease.wants(1e9) is None
    lease.stopped()
    assert lease.wants(1e9) == row(node=None)


def test_what_runs_on_after_the_grace_is_overdue():
    lease = holder()
    lease.expire(100.0 + D)
    assert not lease.overdue(100.0 + D + SIX.grace - 0.001)
    assert lease.overdue(100.0 + D + SIX.grace)
    lease.stopped()
    assert not lease.overdue(1e9)


def test_a_process_that_was_stopped_past_its_deadline_has_its_grace_when_it_goes_on():
    lease = holder()
    lease.expire(300.0)
    assert not lease.overdue(300.0 + SIX.grace - 0.001)
    assert lease.overdue(300.0 + SIX.grace)


# -- the candidate -------------------------------------------------------------------------------
def test_a_candidate_waits_a_whole_lease_from_when_it_was_told():
    lease = follower()
    lease.observe(row(), 50.0)
    lease.observe(row(), 55.0)
    assert lease.wants(50.0 + W - 0.001) is None
    assert lease.wants(50.0 + W) == row()


@pytest.mark.parametrize(
    "change",
    [{"seq": 2}, {"token": 8}, {"node": ME}, {"lease_seconds": 7.0}, {"timeline": 2}],
    ids=lambda change: next(iter(change)),
)
def test_every_change_of_the_row_starts_the_wait_again(change):
    lease = Lease(UUID(int=3), SIX)
    lease.observe(row(), 50.0)
    lease.observe(row(**change), 55.0)
    assert lease.may_act_at() >= 55.0 + W


def test_the_wait_is_by_the_lease_that_the_holder_stored():
    lease = follower()
    lease.observe(row(lease_seconds=10.0), 50.0)
    assert lease.may_act_at() == 50.0 + wait_seconds(10.0)


def test_a_resigned_row_is_free_at_once_but_for_the_jitter():
    lease = follower()
    lease.jitter = 0.25
    lease.observe(row(node=None), 50.0)
    assert lease.may_act_at() == 50.25


@pytest.mark.parametrize("named", [None, ME])
def test_no_row_from_before_a_promotion_is_free_at_once(named: UUID | None):
    """An acquisition may be lost with the commits that the promotion lost: its holder believes."""
    lease = follower()
    lease.observe(row(node=named, token=7, timeline=2), 100.0)
    assert lease.may_act_at() == 100.0 + W
    lease.observe(row(node=named, token=(1 << 32) + 1, timeline=2), 200.0)
    assert lease.may_act_at() == 200.0


def test_after_a_promotion_the_wait_counts_from_the_first_sight_of_the_timeline():
    """Not from the last change of the row: who resigns, or is buried, frees it."""
    lease = follower()
    lease.observe(row(timeline=1), 50.0)
    lease.observe(row(timeline=2), 100.0)
    lease.observe(row(timeline=2, seq=2), 103.0)
    assert lease.may_act_at() == 103.0 + W, "its holder renews"
    lease.observe(row(node=None, timeline=2, seq=3), 104.0)
    assert lease.may_act_at() == 100.0 + W
    lease.observe(row(node=None, timeline=3, seq=3), 120.0)
    assert lease.may_act_at() == 120.0 + W, "and again with the next one"


def test_after_a_promotion_the_wait_is_that_of_the_longest_lease():
    lease = follower()
    lease.timeline.longest = 30.0
    lease.observe(row(timeline=2), 100.0)
    assert lease.may_act_at() == 100.0 + wait_seconds(30.0)


def test_on_a_settled_timeline_a_row_from_before_it_is_free_at_once():
    lease = follower()
    lease.observe(row(node=None, timeline=2), 100.0)
    lease.timeline.settled = 2
    assert lease.may_act_at() == 100.0
    lease.observe(row(node=None, timeline=3), 120.0)
    assert lease.may_act_at() == 120.0 + W, "the next one is not settled"


def test_a_timeline_is_settled_when_it_was_seen_for_the_longest_wait():
    timeline = Timeline()
    timeline.saw(2, 100.0)
    assert timeline.settles(1e9) == 0, "no heartbeat has told the leases yet"
    timeline.longest = 30.0
    assert timeline.settles(100.0 + wait_seconds(30.0) - 0.1) == 0
    assert timeline.settles(100.0 + wait_seconds(30.0)) == 2
    timeline.settled = 2
    assert timeline.settles(1e9) == 0, "once"
    timeline.saw(3, 2e9)
    assert timeline.settles(2e9) == 0, "each timeline has a wait of its own"


def test_nobody_acts_on_a_row_that_was_not_seen():
    lease = follower()
    assert lease.wants(1e9) is None
    lease.observe(row(), 50.0)
    lease.watch.forget()
    assert lease.wants(1e9) is None


# -- two processes -------------------------------------------------------------------------------
WALKS, STEPS = 1000, 250


def test_two_processes_never_believe_at_once_whatever_the_network_and_the_clocks_do():
    terms = takeovers = 0
    for seed in range(WALKS):
        world = World(random.Random(seed))
        world.walk(STEPS)
        terms += len(world.terms)
        takeovers += world.takeovers
    assert terms > WALKS, "the walks are too tame to show anything"
    assert takeovers > WALKS


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_the_walks_catch(broken):
    """Each protection taken out: the walks above would have found it."""
    for seed in range(WALKS):
        try:
            World(random.Random(seed), broken=broken).walk(STEPS)
        except AssertionError:
            return
    pytest.fail(f"{broken.__name__} went unnoticed")


class TwoProcesses(RuleBasedStateMachine):
    """The same world, steered (and its failures made short) by hypothesis."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(random.Random(0))

    processes = st.sampled_from([0, 1])

    @rule(seconds=st.one_of(st.floats(0.001, 2.0), st.sampled_from([D, W - D, W, 2 * W])))
    def time_passes(self, seconds):
        self.world.advance(seconds)

    @rule(who=processes, step=st.sampled_from(World.STEPS))
    def one_of_them_acts(self, who, step):
        self.world.act(who, step)

    @precondition(lambda self: self.world.requests)
    @rule(which=st.integers(0, 99))
    def the_database_gets_a_request(self, which):
        self.world.serve(which % len(self.world.requests))

    @precondition(lambda self: self.world.answers)
    @rule(which=st.integers(0, 99), lost=st.sampled_from([False, False, False, True]))
    def an_answer_arrives(self, which, lost):
        self.world.deliver(which % len(self.world.answers), lost)

    @rule()
    def a_replica_is_promoted(self):
        self.world.promote()


TestTwoProcesses = TwoProcesses.TestCase
TestTwoProcesses.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


# -- when a holder was last alive ------------------------------------------------------------------
def lately(seq: int, **changes) -> Seen:
    return row(seq=seq, lease_seconds=10.0, **changes)


def test_a_holder_was_alive_after_the_last_answer_without_its_renewal() -> None:
    watch = Watch()
    watch.observe(lately(1), 100.0)
    assert watch.alive_at == 100.0, "at the earliest: nothing is known of before"
    watch.observe(lately(1), 101.9)
    watch.observe(lately(2), 104.0)
    assert (watch.since, watch.alive_at) == (104.0, 101.9)
    watch.forget()
    watch.observe(lately(2), 106.0)
    assert (watch.since, watch.alive_at) == (106.0, 101.9)


def test_a_promotion_is_no_sign_of_life() -> None:
    watch = Watch()
    watch.observe(lately(1), 100.0)
    watch.observe(lately(1, timeline=2), 170.0)
    assert (watch.since, watch.alive_at) == (170.0, 100.0)


def test_renewals_that_were_not_seen_took_their_time() -> None:
    watch = Watch()
    watch.observe(lately(1), 100.0)
    watch.observe(lately(31), 3700.0)
    assert watch.alive_at == 100.0 + 29 * 2.0
    watch.observe(lately(1000), 3701.0)
    assert watch.alive_at == 3701.0, "not in the future"


def test_a_resignation_and_another_holder_are_seen_at_once() -> None:
    watch = Watch()
    watch.observe(lately(1), 100.0)
    watch.observe(lately(2, node=None), 103.0)
    assert watch.alive_at == 103.0
    watch.observe(lately(3, node=ME, token=8), 107.0)
    assert watch.alive_at == 107.0


def test_nobody_knows_when_a_holder_ended_that_was_not_watched() -> None:
    watch = Watch()
    watch.observe(lately(1), 100.0)
    watch.observe(lately(1), 102.0)
    watch.forget()
    watch.observe(lately(2, node=None), 120.0)
    assert watch.alive_at == 102.0, "it may have resigned at once"
