"""The Store's operations on jobs that leaders and people call: rescue, stage, cancel, retry."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from uuid import uuid4

import pytest

from leasework.config import Limits
from leasework.duties import leading
from leasework.errors import Conflict
from leasework.model.outcome import Decision
from leasework.model.states import State
from leasework.store.operation import Term
from leasework.tuning import Tuning
from tests.contract.test_deadlines import promise
from tests.contract.world import ELECTION, Session, World, at, identity, planned


async def crash(world: World, *, started: bool = True) -> Session:
    """A new node that claims everything, maybe starts it, and dies."""
    victim = replace(world.c, identity=identity(9))
    await victim.join()
    for job in await victim.claim():
        if started:
            assert await victim.store.start(victim.id, job.id, job.claim_token, world.now)
    await victim.leave()
    return victim


# -- rescue ---------------------------------------------------------------------------------------
async def test_the_jobs_of_a_node_that_is_gone_are_freed(world: World):
    claimed = await world.claimed(world.b)
    assert await world.a.rescue(world.b) == [], "it lives"
    await world.b.leave()
    async with world.hold(claimed.id):
        assert await world.a.rescue(world.b) == [], "somebody completes it"
    assert await world.a.rescue(world.b) == [(claimed.id, True, False)]
    assert await world.a.rescue(world.b) == []
    [again] = await world.a.claim()
    assert (again.attempt, again.crashes) == (2, 1)
    assert not (await world.b.ack(claimed)).written


async def test_nodes_whose_rows_somebody_holds_hide_none_that_died_after_them(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Tuning, "rescue_page", 2)
    events: list[str] = []

    async def free() -> int:
        count = await leading.free_the_dead(
            world.a.store, Limits(), lambda kind, **_: events.append(kind), world.now
        )
        return count

    jobs = []
    for _ in range(6):
        jobs += await world.enqueue()
        await crash(world)
    async with AsyncExitStack() as held:
        for job in jobs[:3]:
            await held.enter_async_context(world.hold(job))
        assert await free() == 3 and events == ["job_rescued"] * 3
        assert len(await world.a.store.deaths(10)) == 3
        assert await free() == 0, "and they stay"
    assert await free() == 3 and await world.a.store.deaths(10) == []
    assert [await world.state(job) for job in jobs] == ["available"] * 6


@pytest.mark.parametrize("forgotten", ["node", "claimed_to", "death"])
async def test_jobs_whose_node_does_not_exist_are_freed_whatever_somebody_deleted(
    world: World, forgotten: str
):
    mine, lost = await world.claimed(world.a), await world.claimed(world.b)
    if forgotten != "node":
        await world.b.leave()
    await world.forget(forgotten)
    store = world.c.store
    if forgotten == "node":
        await world.a.join()  # the same id, as if it had not gone
    await leading.free_the_dead(store, Limits(), lambda *_, **__: None, world.now)
    assert await world.state(lost.id) == "running", "nothing leads to it"

    assert await store.note_stranded(0, 100) == (0, [world.b.id])
    assert await store.note_stranded(0, 100) == (0, []), "the rescuer finds it now"
    freed = await leading.free_the_dead(store, Limits(), lambda *_, **__: None, world.now)
    assert (freed, await world.state(lost.id), await world.state(mine.id)) == (
        1, "available", "running",
    )  # fmt: skip
    record = await world.get(lost.id)
    assert (record.crashes, record.last_error) == (1, "its worker died"), "like any rescue"
    assert await store.deaths(10) == [] and await store.note_stranded(0, 100) == (0, [])
    assert not (await world.b.ack(lost)).written


async def test_who_did_not_start_is_not_blamed_twice(world: World):
    [job] = await world.enqueue()
    assert await world.a.rescue(await crash(world, started=False)) == [(job, True, False)]
    assert await world.a.rescue(await crash(world, started=False)) == [(job, False, False)]
    record = await world.get(job)
    assert (record.crashes, record.attempt, record.last_error) == (1, 1, "its worker died")


async def test_what_ran_at_three_crashes_is_quarantined(world: World):
    [job] = await world.enqueue(unique="k")
    for _ in range(2):
        assert await world.a.rescue(await crash(world)) == [(job, True, False)]
    assert await world.a.rescue(await crash(world)) == [(job, True, True)]
    record = await world.get(job)
    assert (record.state, record.crashes) == ("quarantined", 3)
    assert record.last_error == "its worker died 3 times while it ran"
    [fresh] = await world.enqueue(unique="k")
    assert fresh != job


async def test_what_should_be_cancelled_ends_with_its_node(world: World):
    claimed = await world.claimed(world.b)
    await world.a.store.cancel(claimed.id, "why", world.now)
    await world.b.leave()
    await world.a.rescue(world.b)
    record = await world.get(claimed.id)
    assert (record.state, record.crashes) == ("cancelled", 1)
    assert (record.last_error, record.reason) == (None, "why; its worker died")


async def test_a_rescue_wakes_who_sleeps(world: World):
    await world.claimed(world.b)
    await world.b.leave()
    await world.a.store.set_sleeping(world.a.id, ["default"])
    await world.heard()
    await world.a.rescue(world.b)
    assert await world.heard() == ["q:default"]


# -- stage ----------------------------------------------------------------------------------------
async def test_what_is_due_becomes_available(world: World):
    await world.a.lead()
    [job] = await world.enqueue(run_in=10)
    await world.enqueue(run_in=30)
    assert await world.a.stage() == (0, 0, 10.0)
    world.now = at(10)
    async with world.hold(job):
        assert await world.a.stage() == (0, 0, 20.0)
    assert await world.a.stage() == (1, 0, 20.0)
    assert await world.state(job) == "available"
    assert (await world.get(job)).scheduled_for == at(10)


async def test_a_stage_tells_of_deadlines_and_of_the_dead(world: World):
    await world.a.lead()
    term = world.a.term

    async def told() -> tuple[float | None, bool]:
        staged = await world.a.store.stage(term, 100, world.now)
        return staged.deadline_in, staged.dead

    assert await told() == (None, False)
    await world.enqueue(deadline=promise(5))
    assert await told() == (5.0, False)
    world.now = at(7)
    assert await told() == (-2.0, False)
    await world.b.store.sweep(100, world.now)
    assert await told() == (None, False)
    beat = await world.a.beat()
    [seen] = [node.seen for node in beat.nodes if node.id == world.b.id]
    assert await world.a.store.bury(term, world.b.id, seen.token, seen.seq)
    assert await told() == (None, True)
    await world.a.store.settle([world.b.id])
    assert await told() == (None, False)


async def test_a_stage_tells_of_due_schedules(world: World):
    term = await world.a.lead()

    async def due() -> bool:
        return (await world.a.store.stage(term, 100, world.now)).schedules

    await world.a.store.sync_schedules("another", "r1", [planned()], world.now)
    assert not await due(), "it is not of this application"
    await world.a.store.sync_schedules(ELECTION, "r1", [planned(next_at=at(3))], world.now)
    assert not await due()
    world.now = at(3)
    assert await due()
    await world.a.store.pause_schedule(ELECTION, "tick", True)
    assert not await due()


async def test_whoever_does_not_lead_stages_nothing(world: World):
    await world.a.lead()
    [job] = await world.enqueue(run_in=10)
    world.now = at(11)
    await world.b.lead()
    assert await world.a.stage() == (0, 0, None)
    assert await world.state(job) == "scheduled"
    world.b.term = Term(ELECTION, world.b.term.token + 1)
    assert await world.b.stage() == (0, 0, None)


@pytest.mark.parametrize(
    ("version", "why", "others", "knows"),
    [
        (1, "unknown_task", (), "u"),
        (2, "unknown_version", ("u", "u (version 3)"), "u (version 2)"),
        (1, "unknown_version", ("u (version 2)",), "u"),
    ],
)
async def test_a_task_or_a_version_that_nobody_knows_waits_on(
    world: World, version: int, why: str, others: tuple[str, ...], knows: str
):
    world.a.identity = identity(1, tasks=others)
    await world.a.join()
    await world.a.lead()
    claimed = await world.claimed(task="u", version=version)
    unknown = Decision(State.SCHEDULED, run_in=5, counts=False, held_because=why)
    await world.a.ack(claimed, unknown)
    world.now = at(5)
    assert await world.a.stage() == (0, 1, None)
    assert await world.a.stage() == (0, 0, 10.0)
    world.c.identity = identity(3, tasks=(knows,))
    await world.c.join()
    world.now = at(15)
    assert await world.a.stage() == (1, 0, None)
    assert (await world.get(claimed.id)).held_because is None


async def test_staging_wakes_who_sleeps(world: World):
    await world.a.lead()
    await world.enqueue(run_in=10)
    await world.b.store.set_sleeping(world.b.id, ["default"])
    await world.heard()
    world.now = at(10)
    await world.a.stage()
    assert await world.heard() == ["q:default"]
    await world.enqueue(run_in=10)
    world.now = at(30)
    await world.a.stage()
    assert await world.heard() == ["q:default"], "nobody staged it for ten seconds"


# -- cancel and retry -----------------------------------------------------------------------------
async def test_a_waiting_job_is_cancelled_at_once_and_its_key_is_free(world: World):
    [job] = await world.enqueue(unique="k", run_in=60)
    assert await world.b.store.cancel(job, "why", world.now) == "waiting"
    record = await world.get(job)
    assert (record.state, record.last_error, record.reason) == ("cancelled", None, "why")
    assert record.claim_token is None and record.completed_at == world.now
    assert await world.b.store.cancel(job, "why", world.now) == "finished"
    [again] = await world.enqueue(unique="k")
    assert again != job


async def test_a_running_job_is_flagged_and_its_node_told_until_it_heard(world: World):
    claimed = await world.claimed()
    await world.heard()
    assert await world.b.store.cancel(claimed.id, "why", world.now) == "running"
    assert await world.heard() == [f"c:{world.a.id}"]
    assert (await world.get(claimed.id)).cancel_requested
    assert (await world.b.beat()).signals == ()
    for _ in range(2):
        [signal] = (await world.a.beat()).signals
        assert (signal.job, signal.token) == (claimed.id, claimed.claim_token)
        assert signal.kind == "cancel"
    assert (await world.a.beat(heard=[signal])).signals == ()
    assert (await world.a.beat()).signals == ()


async def test_a_job_that_is_cancelled_again_in_its_next_attempt_is_told_again(world: World):
    """Its node has not yet said that it heard of the first cancel."""
    claimed = await world.claimed()
    await world.a.store.cancel(claimed.id, "why", world.now)
    [first] = (await world.a.beat()).signals
    await world.a.ack(claimed, Decision(State.CANCELLED))
    assert await world.b.store.retry(claimed.id, world.now) == "finished"
    [again] = await world.a.claim()
    await world.b.store.cancel(claimed.id, "why", world.now)
    for _ in range(2):
        [second] = (await world.a.beat(heard=[first])).signals
        assert (second.job, second.token) == (claimed.id, again.claim_token)
    assert (await world.a.beat(heard=[second])).signals == ()


async def test_a_locked_job_is_not_cancelled_now(world: World):
    [job] = await world.enqueue()
    async with world.hold(job):
        with pytest.raises(Conflict):
            await world.b.store.cancel(job, "why", world.now)


async def test_what_is_not_there_is_neither_cancelled_nor_tried_again(world: World):
    assert await world.a.store.cancel(uuid4(), "why", world.now) is None
    assert await world.a.store.retry(uuid4(), world.now) is None
    assert await world.a.store.get(uuid4()) is None


async def test_a_waiting_job_is_due_now(world: World):
    claimed = await world.claimed()
    await world.a.ack(claimed, Decision(State.RETRYABLE, run_in=60, error="boom"))
    world.now = at(5)
    assert await world.b.store.retry(claimed.id, world.now) == "waiting"
    record = await world.get(claimed.id)
    assert (record.state, record.scheduled_for, record.held_because) == ("available", at(5), None)


async def test_a_running_job_is_left(world: World):
    claimed = await world.claimed()
    assert await world.b.store.retry(claimed.id, world.now) == "running"


async def test_a_finished_job_begins_again(world: World):
    claimed = await world.claimed(history=False)
    await world.a.ack(claimed, Decision(State.DISCARDED, error="boom"))
    world.now = at(5)
    assert await world.b.store.retry(claimed.id, world.now) == "finished"
    [again] = await world.a.claim()
    assert (again.id, again.attempt, again.crashes) == (claimed.id, 1, 0)
    assert again.history and again.scheduled_for == at(5)
    record = await world.get(claimed.id)
    assert (record.last_error, record.completed_at) == ("boom", None)
