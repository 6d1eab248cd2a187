"""Claims by advisory locks, beside claims by row locks: the same jobs in the same order."""

from __future__ import annotations

from uuid import UUID

import pytest

from leasework.jobs.producer import claim_by_advisory_locks
from leasework.model.outcome import Decision
from leasework.model.states import State
from tests.contract.world import Session, World, at

RETRY = Decision(State.RETRYABLE, run_in=60.0, error="boom")


async def claim(session: Session, limit: int = 100, not_tasks: tuple[str, ...] = ()) -> list[UUID]:
    jobs, _ = await claim_by_advisory_locks(
        session.store, session.id, session.epoch, "default", not_tasks, limit, session.world.now
    )
    assert len({job.claim_token for job in jobs}) == len(jobs)
    return [job.id for job in jobs]


async def test_the_best_come_first_and_only_what_was_asked_for(world: World) -> None:
    late = await world.enqueue(2, priority=1)
    soon = await world.enqueue(3, priority=-1)
    await world.enqueue(1, priority=-9, queue="other")
    await world.enqueue(1, priority=-9, task="unknown")
    await world.enqueue(1, priority=-9, run_in=60.0)
    assert await claim(world.a, 2, ("unknown",)) == soon[:2]
    assert await claim(world.b, 2, ("unknown",)) == [soon[2], late[0]]
    assert await claim(world.a, 9, ("unknown",)) == [late[1]]
    assert await claim(world.a, 9, ("unknown",)) == []


async def test_a_claim_counts_an_attempt_and_is_completed_under_its_token(world: World) -> None:
    [job] = await world.enqueue()
    jobs, _ = await claim_by_advisory_locks(
        world.a.store, world.a.id, 1, "default", (), 5, world.now
    )
    assert [(j.id, j.attempt) for j in jobs] == [(job, 1)]
    assert await world.state(job) == "running"
    assert job in (await world.a.ack(jobs[0])).written


async def test_both_ways_share_a_queue(world: World) -> None:
    jobs = await world.enqueue(6)
    assert await claim(world.a, 2) == jobs[:2]
    assert [job.id for job in await world.b.claim(2)] == jobs[2:4]
    assert await claim(world.a, 9) == jobs[4:]


@pytest.mark.parametrize("fate", ["claimed", "finished", "to be retried", "cancelled", "later"])
async def test_a_stale_list_is_looked_at_once_more(world: World, fate: str) -> None:
    """Candidates 1, 2, 3; another worker does something with 1 before this one tries it."""
    jobs = await world.enqueue(3)
    listed = await world.a.store.candidates("default", (), 0, 10)
    assert listed == jobs
    if fate == "cancelled":
        assert await world.b.store.cancel(jobs[0], "no", world.now)
    else:
        [other] = await world.b.claim(1)
        if fate == "finished":
            await world.b.ack(other)
        elif fate == "to be retried":
            await world.b.ack(other, RETRY)
        elif fate == "later":
            snooze = Decision(State.SCHEDULED, run_in=60.0, counts=False, held_because="snoozed")
            await world.b.ack(other, snooze)
    before = await world.get(jobs[0])
    claimed = await world.a.store.claim_candidates(world.a.id, 1, listed, 10, world.now)
    assert [job.id for job in claimed] == jobs[1:]
    assert await world.get(jobs[0]) == before


async def test_a_row_that_a_transaction_holds_is_passed_over(world: World) -> None:
    jobs = await world.enqueue(3)
    async with world.hold(jobs[1]):
        assert await claim(world.a) == [jobs[0], jobs[2]]
    assert await claim(world.a) == [jobs[1]]


async def test_a_claim_of_another_epoch_or_of_a_buried_node_takes_nothing(world: World) -> None:
    jobs = await world.enqueue(2)
    store = world.a.store
    assert await store.claim_candidates(world.a.id, 2, jobs, 10, world.now) == []
    assert await store.claim_candidates(world.c.id, 1, jobs, 10, world.now) == []
    assert await store.new_epoch(world.a.id, world.a.token, 2) == 2
    assert await store.claim_candidates(world.a.id, 1, jobs, 10, world.now) == []
    assert len(await store.claim_candidates(world.a.id, 2, jobs, 10, world.now)) == 2


async def test_candidates_come_in_pages_and_only_what_is_due(world: World) -> None:
    jobs = await world.enqueue(5)
    await world.enqueue(1, run_at=at(60))
    store = world.a.store
    assert await store.candidates("default", (), 0, 2) == jobs[:2]
    assert await store.candidates("default", (), 2, 2) == jobs[2:4]
    assert await store.candidates("default", (), 4, 2) == jobs[4:]
    assert await store.candidates("default", ("t",), 0, 2) == []
