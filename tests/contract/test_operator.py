"""The Store's operations for events, housekeeping and people who look."""

from __future__ import annotations

from leasehold_lab.sim.store import SimStore

from leasehold.model.outcome import Decision
from leasehold.model.states import State
from leasehold.pg.store import PgStore
from leasehold.ports import Store
from tests.contract.world import LEASE, World, at, plan, planned

DAYS = {"events": 30, "ticks": 30, "attempts": 30, "history": 14}
DAY = 86400


def event(kind: str, age: float = 0.0) -> dict:
    return {
        "age": age, "kind": kind, "level": "info", "node": None, "worker_id": "w",
        "fields": {"x": 1},
    }  # fmt: skip


def test_every_operation_of_the_port_is_there():
    operations = {name for name in dir(Store) if not name.startswith("_")}
    for kind in (SimStore, PgStore):
        assert operations <= set(dir(kind))


async def test_events_are_listed_newest_first(world: World):
    store = world.a.store
    await store.record([event("a", 2.0), event("b")], world.now)
    newest, oldest = await store.events(None, None, 10)
    assert (newest["kind"], oldest["kind"], oldest["at"]) == ("b", "a", at(-2))
    assert (newest["fields"], newest["worker_id"]) == ({"x": 1}, "w")
    assert await store.events("a", None, 10) == [oldest]
    assert await store.events(None, oldest["id"], 10) == [newest]
    assert await store.events(None, None, 1) == [newest]


async def test_what_failed_lately_is_found_among_other_events(world: World):
    store = world.a.store
    old, late = event("service_failed", 700.0), event("service_failed", 1.0)
    await store.record([old, late, event("a")], world.now)
    kinds = ["service_failed", "lock_lost"]
    [found] = await store.lately(kinds, 600.0, 10, world.now)
    assert (found["kind"], found["at"], found["fields"]) == ("service_failed", at(-1), {"x": 1})
    assert await store.lately(kinds, 0.5, 10, world.now) == []
    assert await store.lately(["lock_lost"], 600.0, 10, world.now) == []


async def test_the_summary_counts(world: World):
    await world.a.lead()
    await world.enqueue(2)
    await world.enqueue(run_in=60)
    await world.enqueue(queue="other", run_at=at(-9))
    odd = await world.claimed(task="u", priority=-1)
    await world.a.ack(
        odd, Decision(State.SCHEDULED, run_in=5, counts=False, held_because="unknown_task")
    )
    await world.b.leave()
    summary = await world.a.store.summary(world.now)
    assert (summary.ready, summary.waiting, summary.unknown, summary.quarantined) == (3, 2, 1, 0)
    assert (summary.oldest_seconds, summary.unknown_tasks) == (9.0, ("u",))
    assert summary.queues == ("other",), "those of the default one are claimed"


async def test_nodes_and_leaders_are_listed(world: World):
    await world.a.lead()
    await world.a.beat(world.a.term, info={"running": 1})
    [node] = [n for n in await world.b.store.nodes(10) if n["id"] == world.a.id]
    assert (node["worker_id"], node["app"]) == (world.a.identity.worker_id, "default")
    assert (node["heartbeat"], node["lease_seconds"], node["info"]) == (
        world.now, LEASE, {"running": 1},
    )  # fmt: skip
    [leader] = await world.b.store.leaders(10)
    assert (leader["holder"], leader["term"]) == (node["worker_id"], world.a.term.token)
    assert (leader["node"], leader["acquired_at"]) == (world.a.id, world.now)


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
    assert len(await store.events(None, None, 10)) == len(await store.ticks(None, 10)) == 1
    assert await store.prune(DAYS, 100, at(31 * DAY)) >= 3, "the event, the tick, the attempt"
    assert await store.events(None, None, 10) == await store.ticks(None, 10) == []


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


async def test_the_schema_is_right_and_nobody_pins(world: World):
    await world.a.store.check_schema()
    assert await world.a.store.pins(0.0, 10, world.now) == []
