"""The Store's operations for events and housekeeping, and the dead that people have seen."""

from __future__ import annotations

from leasework.model.outcome import Decision
from leasework.model.states import State
from tests.contract.world import World, at, plan, planned

DAYS = {"events": 30, "ticks": 30, "attempts": 30, "history": 14}
DAY = 86400


def event(kind: str, age: float = 0.0) -> dict:
    return {
        "age": age, "kind": kind, "level": "info", "node": None, "worker_id": "w",
        "fields": {"x": 1},
    }  # fmt: skip


async def test_events_are_listed_newest_first(world: World):
    store = world.a.store
    await store.record([event("a", 2.0), event("b")], world.now)
    newest, oldest = await world.reports.events(None, None, 10)
    assert (newest.kind, oldest.kind, oldest.at) == ("b", "a", at(-2))
    assert (newest.fields, newest.worker_id) == ({"x": 1}, "w")
    assert await world.reports.events("a", None, 10) == [oldest]
    assert await world.reports.events(None, oldest.id, 10) == [newest]
    assert await world.reports.events(None, None, 1) == [newest]


async def test_a_dead_nodes_name_is_remembered(world: World):
    claimed = await world.claimed(world.b)
    await world.b.leave()
    assert (await world.get(claimed.id)).worker_id == world.b.identity.worker_id


async def test_what_is_past_keeping_goes_and_the_rest_stays(world: World):
    store = world.a.store
    await world.a.lead()
    await store.sync_schedules("default", "r1", [planned()], world.now)
    await store.fire(world.a.term, "default", [plan(None, 0)], world.now)
    await store.record([event("a")], world.now)
    [tick_job] = await world.a.claim()
    await world.a.ack(tick_job, Decision(State.DISCARDED, error="no"))
    held = await world.claimed(unique="k", unique_for=60.0)
    await world.a.ack(held)
    assert await store.prune(DAYS, 100, at(59)) == 0
    assert await store.prune(DAYS, 100, at(61)) == 1, "the key"
    assert await world.state(held.id) == "completed"
    assert await store.prune_days(7, at(6 * DAY)) == 0
    assert await store.get(held.id)
    await store.prune_days(7, at(9 * DAY))
    assert await store.get(held.id) is None
    [_], [_] = await world.reports.events(None, None, 10), await world.reports.ticks(None, 10)
    assert await store.prune(DAYS, 100, at(31 * DAY)) >= 3, "the event, the tick, the attempt"
    assert await world.reports.events(None, None, 10) == await world.reports.ticks(None, 10) == []


async def test_signals_to_the_dead_go(world: World):
    claimed = await world.claimed(world.b)
    await world.a.store.cancel(claimed.id, "why", world.now)
    assert await world.a.store.prune(DAYS, 100, world.now) == 0
    await world.b.leave()
    assert await world.a.store.prune(DAYS, 100, world.now) == 1


async def test_tallies_are_folded_once_and_a_bounded_number_at_a_time(world: World):
    store = world.a.store
    await store.record([event("a"), event("a"), event("b")], world.now)
    await store.record([event("a")], world.now)
    assert await store.fold_counts(2) == 2
    assert await store.fold_counts(100) == 1
    assert await store.fold_counts(100) == 0


async def test_a_node_that_died_is_told_until_a_person_has_seen_it(world: World):
    store, b, c = world.a.store, world.b, world.c
    await c.join()
    assert await world.reports.died(DAY, 10, None) == []
    await store.certify(b.id, 10.0, process=True)
    [dead] = await world.reports.died(DAY, 10, None)
    assert (dead.node, dead.worker_id, dead.app) == (b.id, b.identity.worker_id, "default")
    assert dead.rescued == 0
    await store.certify(c.id, 10.0, process=True)
    assert {row.node for row in await world.reports.died(DAY, 10, None)} == {b.id, c.id}
    assert len(await world.reports.died(DAY, 1, None)) == 1
    assert await store.seen("nobody:1:abcdef", None) == 0
    assert await store.seen(b.identity.worker_id, None) == 1
    assert [row.node for row in await world.reports.died(DAY, 10, None)] == [c.id]
    assert await store.seen(None, None) == 1
    assert await store.seen(None, None) == 0
    assert await world.reports.died(DAY, 10, None) == []


async def test_who_left_in_good_order_or_lives_on_under_another_id_has_not_died(world: World):
    store = world.a.store
    await world.b.leave()
    await world.c.join()
    await store.certify(world.c.id, 10.0)  # by itself: its lease was lost, and it joins again
    assert await world.reports.died(DAY, 10, None) == []
