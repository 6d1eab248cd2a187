"""Runs that are taken away or given back, and what somebody asked of them meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leasework.model.deadline import Callback, Promise
from leasework.model.job import ClaimedJob
from leasework.model.outcome import Decision
from leasework.model.states import State
from tests.contract.world import World, at, identity

WHY = "ran longer than its requeue_after of 60 s"


async def take(world: World, claimed: ClaimedJob) -> State | None:
    return await world.b.store.requeue(claimed.id, claimed.claim_token, world.now)


async def give_back(world: World, *claims: ClaimedJob) -> int:
    pairs = [(claim.id, claim.claim_token) for claim in claims]
    return await world.a.store.give_back(world.a.id, pairs, world.now)


# -- requeue_after has an end ---------------------------------------------------------------------
async def test_a_job_that_hangs_at_each_attempt_is_discarded_after_the_last(world: World):
    [job] = await world.enqueue(max_attempts=3, requeue_after=60.0, unique="k")
    for attempt in (1, 2, 3):
        world.now = at(60 * attempt)
        [claimed] = await world.a.claim()
        assert claimed.attempt == attempt
        state = await take(world, claimed)
        assert state is (State.DISCARDED if attempt == 3 else State.AVAILABLE)
        assert (await world.get(job)).last_error == WHY
    record = await world.get(job)
    assert (record.state, record.attempt, record.completed_at) == ("discarded", 3, at(180))
    assert record.started_at == at(180) and record.claim_token == claimed.claim_token
    tried = await world.reports.attempts(job, 10)
    assert [(row.attempt, row.outcome, row.error) for row in tried] == [
        (3, "discarded", WHY), (2, "requeued", WHY), (1, "requeued", WHY),
    ]  # fmt: skip
    assert await world.a.claim() == [] and await take(world, claimed) is None
    [again] = await world.enqueue(unique="k")
    assert again != job, "its key is free"


async def test_a_crash_is_no_attempt_of_a_job_that_hangs(world: World):
    await world.enqueue(max_attempts=2, requeue_after=60.0)
    victim = replace(world.c, identity=identity(9))
    await victim.join()
    await victim.claim()
    await victim.leave()
    await world.a.rescue(victim)
    for state in (State.AVAILABLE, State.DISCARDED):
        [claimed] = await world.a.claim()
        assert await take(world, claimed) is state
    assert (claimed.attempt, claimed.crashes) == (3, 1)


async def test_what_a_failure_left_is_what_a_hanging_job_has(world: World):
    claimed = await world.claimed(max_attempts=2, requeue_after=60.0)
    await world.a.ack(claimed, Decision(State.RETRYABLE, error="boom"))
    assert await world.b.store.retry(claimed.id, world.now) == "waiting"
    [second] = await world.a.claim()
    assert await take(world, second) is State.DISCARDED


async def test_a_discarded_job_that_hung_begins_again_on_retry(world: World):
    claimed = await world.claimed(max_attempts=1, requeue_after=60.0)
    assert await take(world, claimed) is State.DISCARDED
    assert await world.b.store.retry(claimed.id, world.now) == "finished"
    [again] = await world.a.claim()
    assert (again.id, again.attempt) == (claimed.id, 1)


# -- a cancel is not lost --------------------------------------------------------------------------
async def test_a_flagged_run_that_is_taken_away_ends_as_cancelled(world: World):
    claimed = await world.claimed(requeue_after=60.0, unique="k")
    assert await world.b.store.cancel(claimed.id, "why", world.now) == "running"
    world.now = at(60)
    async with world.hold(claimed.id):
        assert await take(world, claimed) is State.RUNNING
    assert await take(world, claimed) is State.CANCELLED
    record = await world.get(claimed.id)
    assert (record.state, record.reason) == ("cancelled", f"why; it {WHY}")
    assert record.completed_at == at(60) and await world.a.claim() == []
    assert (await world.enqueue(unique="k")) != [claimed.id]


async def test_a_flagged_claim_that_is_given_back_ends_as_cancelled(world: World):
    [flagged], [plain] = await world.enqueue(unique="k"), await world.enqueue()
    jobs = await world.a.claim(2)
    await world.b.store.cancel(flagged, "why", world.now)
    await world.b.store.set_sleeping(world.b.id, ["default"])
    await world.heard()
    assert await give_back(world, *jobs) == 2
    record = await world.get(flagged)
    assert (record.state, record.attempt, record.completed_at) == ("cancelled", 0, world.now)
    assert (record.started_at, record.worker_id) == (None, None)
    assert record.reason == "why; its worker gave it back"
    assert await world.state(plain) == "available" and await world.heard() == ["q:default"]
    assert await give_back(world, *jobs) == 0
    assert (await world.enqueue(unique="k")) != [flagged]


async def test_a_cancel_alone_wakes_nobody(world: World):
    claimed = await world.claimed()
    await world.b.store.cancel(claimed.id, "why", world.now)
    await world.b.store.set_sleeping(world.b.id, ["default"])
    await world.heard()
    assert await give_back(world, claimed) == 1
    assert await world.heard() == []


async def test_what_nobody_was_told_of_ends_if_it_is_flagged_and_wakes_who_sleeps_if_not(
    world: World,
):
    [flagged], [plain] = await world.enqueue(unique="k"), await world.enqueue()
    await world.a.claim(2)
    await world.b.store.cancel(flagged, "why", world.now)
    await world.b.store.set_sleeping(world.b.id, ["default"])
    await world.heard()
    assert await world.a.store.give_back_unknown(world.a.id, 1, [], world.now) == 2
    assert await world.state(flagged) == "cancelled" and await world.state(plain) == "available"
    assert (await world.get(flagged)).completed_at == world.now
    assert await world.heard() == ["q:default"], "an older job: who looks from a mark looks anew"
    assert (await world.enqueue(unique="k")) != [flagged]


async def test_a_run_that_is_given_back_counts_for_nothing_and_shows_no_progress(world: World):
    claimed = await world.claimed()
    args = (claimed.id, claimed.claim_token)
    await world.a.store.progress(world.a.id, *args, 0.5, "half")
    assert await give_back(world, claimed) == 1
    record = await world.get(claimed.id)
    assert (record.state, record.attempt, record.crashes) == ("available", 0, 0)
    assert (record.progress, record.progress_note) == (None, None)
    assert not (await world.a.ack(claimed)).written, "its late outcome is refused"


async def test_a_locked_row_keeps_no_other_from_being_given_back(world: World):
    held, free = await world.claimed(), await world.claimed()
    async with world.hold(held.id):
        assert await give_back(world, held, free) == 1
        assert await world.state(held.id) == "running"
        assert await world.state(free.id) == "available"
    assert await give_back(world, held, free) == 1


@pytest.mark.parametrize("way", ["requeue", "give_back", "give_back_unknown"])
async def test_a_deadline_of_what_is_cancelled_so_is_cancelled_with_it(world: World, way: str):
    promise = Promise(Callback("page"), since="enqueued", seconds=30.0)
    claimed = await world.claimed(deadline=promise)
    await world.b.store.cancel(claimed.id, "why", world.now)
    if way == "requeue":
        await take(world, claimed)
    elif way == "give_back":
        await give_back(world, claimed)
    else:
        await world.a.store.give_back_unknown(world.a.id, 1, [], world.now)
    [row] = [d for d in await world.reports.deadlines(None, None, 10) if d.id == claimed.id]
    assert row.state == "cancelled"
