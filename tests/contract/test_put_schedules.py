"""Schedules that are put at run time: what the store keeps of them beside those of the code."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from msgspec import structs

from leasework.store.schedules import TickDecision
from tests.contract.test_deadlines import promise
from tests.contract.world import ELECTION, T0, World, at, plan, planned


def document(name: str = "mine", **other: Any) -> dict[str, Any]:
    definition = structs.asdict(planned(name, **other))
    return {**definition, "next_at": definition["next_at"].isoformat()}


async def put(world: World, name: str = "mine", **other: Any) -> bool:
    return await world.b.store.put_schedule(ELECTION, document(name, **other), world.now)


async def fired(world: World, *moments: float, release: str, seen: Any = None) -> list[Any]:
    given = plan(seen, *moments, name="mine", release=release)
    return list(await world.a.store.fire(world.a.term, ELECTION, [given], world.now))


async def release_of(world: World) -> str:
    found = await world.reports.get_schedule(ELECTION, "mine")
    assert found
    return found.release


async def test_a_sync_of_the_code_leaves_them_as_they_are(world: World):
    assert await put(world)
    synced = await world.a.store.sync_schedules(ELECTION, "r1", [planned("tick")], world.now)
    assert (list(synced.kept), list(synced.dropped)) == (["tick"], [])
    names = {s.name: s.in_code for s in await world.reports.schedules(100, app=ELECTION)}
    assert names == {"mine": False, "tick": True}


async def test_a_name_of_the_code_cannot_be_put_or_deleted(world: World):
    await world.a.store.sync_schedules(ELECTION, "r1", [planned("mine")], world.now)
    assert not await put(world, seconds=9.0)
    assert not await world.b.store.delete_schedule(ELECTION, "mine")
    found = await world.reports.get_schedule(ELECTION, "mine")
    assert found and found.in_code and found.spec["seconds"] == 1.0


async def test_the_code_takes_over_one_of_the_same_name(world: World):
    await put(world)
    await world.a.store.sync_schedules(ELECTION, "r1", [planned("mine", 2.0)], world.now)
    found = await world.reports.get_schedule(ELECTION, "mine")
    assert found and found.in_code and found.spec["seconds"] == 2.0
    synced = await world.a.store.sync_schedules(ELECTION, "r1", [], world.now)
    assert list(synced.dropped) == ["mine"]


async def test_a_decision_about_a_definition_that_was_replaced_or_deleted_is_refused(world: World):
    await world.a.lead()
    await put(world)
    before = await release_of(world)
    await put(world, seconds=7.0)
    assert await fired(world, 0, release=before) == []
    await world.b.store.delete_schedule(ELECTION, "mine")
    await put(world)
    assert await fired(world, 0, release=before) == []
    assert len(await fired(world, 0, release=await release_of(world))) == 1


async def test_putting_the_same_again_keeps_what_was_decided(world: World):
    await world.a.lead()
    await put(world)
    await fired(world, 0, release=await release_of(world))
    await put(world)
    found = await world.reports.get_schedule(ELECTION, "mine")
    assert found and (found.high_water, found.next_at) == (T0, at(1))
    assert found.grace_seconds == planned("mine").grace_seconds
    assert (found.last_fire_at, found.last_state) == (T0, "fired")


async def test_what_was_due_before_a_new_definition_stays_due(world: World):
    await put(world)
    world.now = at(3)
    definition = {**document(seconds=60.0), "next_at": at(60).isoformat()}
    assert await world.b.store.put_schedule(ELECTION, definition, world.now)
    found = await world.reports.get_schedule(ELECTION, "mine")
    assert found and found.next_at == T0
    [due] = await world.a.store.due_schedules(ELECTION, 10, world.now)
    assert due.former["stretches"][0]["spec"]["seconds"] == 1.0


async def test_a_pause_stays_when_the_definition_changes(world: World):
    await put(world)
    await world.b.store.pause_schedule(ELECTION, "mine", True)
    await put(world, seconds=5.0)
    found = await world.reports.get_schedule(ELECTION, "mine")
    assert found and found.paused and found.spec["seconds"] == 5.0


async def test_the_leader_is_told(world: World):
    await world.heard()
    await put(world)
    assert await world.heard() == [f"s:{ELECTION}"]


async def test_a_backfill_fires_each_moment_once_and_leaves_those_that_fired(world: World):
    await world.a.lead()
    await put(world)
    await fired(world, 0, release=await release_of(world))
    await world.a.claim()
    world.now = at(10)

    async def backfill(*seconds: float) -> list[Any]:
        moments = [at(s) for s in seconds]
        jobs = [uuid4() for _ in moments]
        after = moments[-1] + timedelta(seconds=1)
        found = await world.b.store.backfill(ELECTION, "mine", moments, jobs, after, world.now)
        return sorted(found)

    assert await backfill(0, 1, 2) == [], "the leader has yet to decide them"
    gone = tuple(TickDecision(at(second), "missed") for second in (1, 2))
    decided = plan(T0, 3, name="mine", release=await release_of(world))
    await world.a.store.fire(
        world.a.term, ELECTION, [structs.replace(decided, ticks=(*gone, *decided.ticks))], world.now
    )
    assert [job.scheduled_for for job in await world.a.claim()] == [at(3)]
    assert await backfill(0, 1, 2) == [at(1), at(2)]
    assert await backfill(1, 2, 3, 4) == []
    jobs = await world.a.claim()
    assert sorted(job.scheduled_for for job in jobs) == [at(1), at(2)]
    assert {job.schedule for job in jobs} == {"mine"}
    assert (
        await world.b.store.backfill(ELECTION, "other", [at(1)], [uuid4()], at(2), world.now) == []
    )


async def test_from_when_on_the_ledger_is_complete(world: World):
    store, days = world.a.store, {"events": 90, "attempts": 90, "history": 90}
    assert await store.ledger_begin() is None
    await world.a.lead()
    await put(world)
    await fired(world, 0, release=await release_of(world))
    world.now = at(86_400 * 5)
    await fired(world, 86_400, release=await release_of(world), seen=T0)
    await store.prune({**days, "ticks": 6}, 100, world.now)
    assert await store.ledger_begin() is None
    await store.prune({**days, "ticks": 4}, 100, world.now)
    assert await store.ledger_begin() == T0
    await store.prune({**days, "ticks": 5}, 100, world.now)
    assert await store.ledger_begin() == T0


@pytest.mark.parametrize(
    ("backfilled", "left"),
    [((0,), (1, 5)), ((0, 1), (2, 5)), ((0, 1, 2, 3, 4), (5, None)), ((0, 1, 2, 3, 4, 5), None)],
)
async def test_a_backfill_shortens_a_missed_stretch_that_begins_with_it(
    world: World, backfilled: tuple[int, ...], left: tuple[int, int | None] | None
):
    await world.a.lead()
    await put(world)
    missed = TickDecision(T0, "missed", until=at(5))
    decided = structs.replace(
        plan(None, 6, name="mine", release=await release_of(world)), ticks=(missed,)
    )
    await world.a.store.fire(world.a.term, ELECTION, [decided], world.now)
    moments = [at(second) for second in backfilled]
    jobs = [uuid4() for _ in moments]
    after = at(backfilled[-1] + 1)
    store = world.b.store
    assert sorted(await store.backfill(ELECTION, "mine", moments, jobs, after, at(9))) == moments
    assert await store.backfill(ELECTION, "mine", moments, jobs, after, at(9)) == []
    ticks = await world.reports.ticks("mine", 10)
    assert [(t.fire_at, t.until) for t in ticks if t.state == "missed"] == (
        [(at(left[0]), left[1] and at(left[1]))] if left else []
    )
    assert [t.until for t in ticks if t.state == "fired"] == [None] * len(moments)


@pytest.mark.parametrize(
    ("since", "state", "due"),
    [("scheduled", "armed", at(105)), ("tick", "armed", at(105)), ("started", "waiting", None)],
)
async def test_the_deadlines_of_a_backfill_count_from_now(
    world: World, since: str, state: str, due: datetime | None
):
    await put(
        world,
        job={**planned().job, "deadline": promise(5, since=since).as_json()},
        next_at=at(101),
    )
    world.now = at(100)
    store = world.b.store
    await store.backfill(ELECTION, "mine", [at(1)], [uuid4()], at(2), world.now)
    [row] = await world.reports.deadlines(None, None, 10)
    assert (row.state, row.due_at) == (state, due)
