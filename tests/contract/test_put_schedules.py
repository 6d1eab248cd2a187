"""Schedules that are put at run time: what the store keeps of them beside those of the code."""

from __future__ import annotations

from typing import Any

from msgspec import structs

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
