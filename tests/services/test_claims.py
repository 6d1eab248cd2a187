"""The claimer: claims without an answer, and answers that come too late."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from leasework import errors
from leasework.config import Settings, Timings
from leasework.env import Env
from leasework.jobs.executor import LocalQueue
from leasework.jobs.producer import Claimer
from leasework.lease.membership import Membership
from leasework.loops.service import ServiceContext
from leasework.model.job import ClaimedJob
from leasework.model.lease import Lease
from leasework.store.nodes import NodeIdentity

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job(token: int) -> ClaimedJob:
    return ClaimedJob(uuid4(), "t", "default", {}, 0, 1, 5, 0, token, None, None, NOW, True, None)


class World:
    """Stands for the store, the guard and the executor around the claimer."""

    def __init__(self) -> None:
        self.env = Env()
        self.statements: list[Any] = []
        self.handed_over: list[int] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.answer: Callable[[], list[ClaimedJob]] = lambda: []
        self.epoch: int | None = 2
        self.membership = self.member()
        self.queue = LocalQueue("default", 10)
        stands: Any = self
        context = ServiceContext(Settings(), self.env, self.emit, stands, stands)
        self.claimer = Claimer(context, stands, stands, stands, ())

    def member(self) -> Membership:
        identity = NodeIdentity(uuid4(), "default", "r", "host", 1, "0", True, ("t",), {})
        lease = Lease(identity.id, Timings.derive(15))
        lease.acquired(1, self.env.boot_now(), self.env.boot_now())
        return Membership(identity, lease)

    def emit(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))

    # -- the store -------------------------------------------------------------------------------
    async def claim(
        self, node: UUID, epoch: int, limits: Any, not_tasks: Any, now: Any, begins: Any
    ) -> list[ClaimedJob]:
        self.statements.append(("claim", epoch))
        return self.answer()

    async def new_epoch(self, node: UUID, token: int, epoch: int) -> int | None:
        self.statements.append(("new_epoch", epoch))
        return self.epoch

    async def give_back_unknown(self, node: UUID, epoch: int, known: list[int]) -> int:
        self.statements.append(("give_back", epoch, known))
        return 3

    async def candidates(self, *_: Any) -> list[UUID]:
        raise errors.Unavailable("no connection")

    # -- the executor ----------------------------------------------------------------------------
    def submit(self, queue: LocalQueue, claims: list[Any]) -> None:
        self.handed_over += [claim.job.claim_token for claim in claims]

    def known_tokens(self) -> list[int]:
        return list(self.handed_over)

    def take_waiting(self) -> list[Any]:
        self.let_go = True
        return []

    # -- what tests do ---------------------------------------------------------------------------
    async def claims(self) -> int | None:
        """How many jobs were found; None: nobody was asked."""
        found = await self.claimer.claim({self.queue: 10}, None)
        if found is None:
            return None
        self.more = found[self.queue].more
        return len(found[self.queue].jobs)

    def loses(self, *, sent: bool) -> None:
        def answer() -> list[ClaimedJob]:
            raise errors.Unavailable("the link is down", sent=sent)

        self.answer = answer


@pytest.fixture
def world() -> World:
    return World()


async def test_a_claim_goes_to_the_executor(world):
    world.answer = lambda: [job(7), job(8)]
    assert await world.claims() == 2
    assert world.handed_over == [7, 8]


async def test_without_a_lease_nothing_is_asked(world):
    world.membership.lease.step_down("expired")
    assert await world.claims() is None
    assert world.statements == []


async def test_after_a_claim_without_an_answer_what_we_do_not_know_is_given_back(world):
    world.answer = lambda: [job(7)]
    await world.claims()
    world.loses(sent=True)
    with pytest.raises(errors.Unavailable):
        await world.claims()
    world.answer = lambda: []
    world.statements.clear()
    assert await world.claims() == 0
    assert world.statements == [("new_epoch", 2), ("give_back", 2, [7]), ("claim", 2)]
    assert world.events == [("claim_unknown", {"given_back": 3})]
    world.statements.clear()
    await world.claims()
    assert world.statements == [("claim", 2)], "once"


async def test_a_claim_that_was_never_sent_leaves_nothing_to_give_back(world):
    world.loses(sent=False)
    with pytest.raises(errors.Unavailable):
        await world.claims()
    world.statements.clear()
    world.answer = lambda: []
    await world.claims()
    assert world.statements == [("claim", 1)]


async def test_an_unknown_claim_of_a_node_that_is_gone_is_left_to_the_rescuer(world):
    world.loses(sent=True)
    with pytest.raises(errors.Unavailable):
        await world.claims()
    world.epoch = None
    world.answer = lambda: []
    world.statements.clear()
    await world.claims()
    assert world.statements == [("new_epoch", 2), ("claim", 1)]


async def test_an_unknown_claim_of_a_lost_identity_is_no_matter_of_the_next_one(world):
    world.loses(sent=True)
    with pytest.raises(errors.Unavailable):
        await world.claims()
    world.membership = world.member()
    world.answer = lambda: []
    world.statements.clear()
    await world.claims()
    assert world.statements == [("claim", 1)]


async def test_what_the_rows_gave_is_given_back_if_the_claim_by_advisory_locks_fails(world):
    world.answer = lambda: [job(7)]
    both = {world.queue: 10, LocalQueue("other", 10, claim="advisory"): 10}
    with pytest.raises(errors.Unavailable):
        await world.claimer.claim(both, None)
    assert world.claimer.in_doubt and not world.handed_over
    await world.claimer.settle()
    assert ("give_back", 2, []) in world.statements


class Apart:
    """Stands for the connection that long claims use."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked = 0

    async def claim(self, *_: Any) -> list[ClaimedJob]:
        self.asked += 1
        if self.error:
            raise self.error
        return []


@pytest.mark.parametrize(
    "error",
    [errors.Unavailable("none is free"), errors.WrongPassword("it was changed")],
    ids=lambda error: type(error).__name__,
)
async def test_where_no_further_connection_opens_claims_use_the_one_for_everything(world, error):
    apart: Any = Apart(error)
    world.claimer._claims = apart
    world.answer = lambda: [job(n) for n in range(100)]
    for _ in range(3):
        assert await world.claims() == 100
    assert apart.asked == 1, "it does not try again at once"
    assert not world.claimer.in_doubt


@pytest.mark.parametrize(
    "error",
    [errors.Unavailable("no answer", sent=True), errors.Conflict("a deadlock")],
    ids=lambda error: type(error).__name__,
)
async def test_what_was_sent_over_the_further_connection_is_not_sent_again_at_once(world, error):
    apart: Any = Apart(error)
    world.claimer._claims = apart
    world.answer = lambda: [job(n) for n in range(100)]
    await world.claims()
    world.statements.clear()
    with pytest.raises(errors.Unavailable):
        await world.claims()
    assert apart.asked == 1 and not world.statements


@pytest.mark.parametrize("joined_again", [False, True])
async def test_a_claim_that_is_answered_after_the_fencing_is_not_handed_over(world, joined_again):
    """It would stand first in its queue, never allowed to start, and hold up all that follow."""

    def answer() -> list[ClaimedJob]:
        world.membership.lease.step_down("expired")
        if joined_again:
            world.membership = world.member()
        return [job(7)]

    world.answer = answer
    assert await world.claims() is None
    assert world.handed_over == []


async def test_a_doubt_that_comes_while_another_is_answered_is_not_forgotten(world):
    """A failover took the new epoch back, and the answer came from after it. Found by the
    simulation: leasework sim --seed 6147, at the commit before."""
    world.loses(sent=True)
    with pytest.raises(errors.Unavailable):
        await world.claims()
    world.answer = lambda: []
    answered = world.give_back_unknown

    async def meanwhile(*given: Any) -> int:
        world.claimer.doubt()
        world.give_back_unknown = answered
        return 0

    world.give_back_unknown = meanwhile
    await world.claims()
    assert world.claimer.in_doubt
    await world.claims()
    assert not world.claimer.in_doubt
    assert [kind for kind, *_ in world.statements].count("new_epoch") == 2


async def test_a_claim_that_is_answered_after_a_failover_is_settled_before_it_runs(world):
    """The claim may be lost, and others may have its jobs. Found by the simulation: leasework sim
    --seed 801, at the commit before."""

    def answer() -> list[ClaimedJob]:
        world.claimer.doubt()
        return [job(7)]

    world.answer = answer
    assert await world.claims() == 0
    assert world.handed_over == []
    assert world.more, "it looks again at once"
    world.answer = lambda: [job(8)]
    await world.claims()
    assert world.handed_over == [8]
    assert ("give_back", 2, []) in world.statements


async def test_what_waits_is_let_go_of_when_a_failover_may_have_lost_its_claim(world):
    world.claimer.doubt()
    assert world.let_go
