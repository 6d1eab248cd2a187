"""The Store's operations for events, housekeeping and people who look."""

from __future__ import annotations

from leasehold_lab.sim.store import SimStore

from leasehold.model.outcome import Decision
from leasehold.model.states import State
from leasehold.pg.stores.store import PgStore
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
    assert (newest.kind, oldest.kind, oldest.at) == ("b", "a", at(-2))
    assert (newest.fields, newest.worker_id) == ({"x": 1}, "w")
    assert await store.events("a", None, 10) == [oldest]
    assert await store.events(None, oldest.id, 10) == [newest]
    assert await store.events(None, None, 1) == [newest]


async def test_what_failed_lately_is_found_among_other_events(world: World):
    store = world.a.store
    old, late = event("service_failed", 700.0), event("service_failed", 1.0)
    await store.record([old, late, event("a")], world.now)
    kinds = ["service_failed", "lock_lost"]
    [found] = await store.lately(kinds, 600.0, 10, world.now)
    assert (found.kind, found.at, found.fields) == ("service_failed", at(-1), {"x": 1})
    assert await store.lately(kinds, 0.5, 10, world.now) == []
    assert await store.lately(["lock_lost"], 600.0, 10, world.now) == []


async def test_many_events_of_one_kind_do_not_hide_another_kind(world: World):
    store = world.a.store
    breaches = [event("deadline_breached", 1.0 + n / 10) for n in range(9)]
    await store.record([event("service_failed", 5.0), *breaches], world.now)
    found = await store.lately(["deadline_breached", "service_failed"], 600.0, 3, world.now)
    assert [row.kind for row in found] == ["deadline_breached"] * 3 + ["service_failed"]


async def test_the_summary_counts(world: World):
    await world.a.lead()
    await world.enqueue(2)
    await world.enqueue(run_in=60)
    await world.enqueue(queue="other", run_at=at(-9))
    for odd, why in (({"task": "u"}, "task"), ({"task": "v", "version": 2}, "version")):
        claimed = await world.claimed(priority=-1, **odd)
        await world.a.ack(
            claimed,
            Decision(State.SCHEDULED, run_in=5, counts=False, held_because=f"unknown_{why}"),
        )
    await world.b.leave()
    summary = await world.a.store.summary(world.now)
    assert (summary.ready, summary.waiting, summary.unknown, summary.quarantined) == (3, 3, 2, 0)
    assert (summary.oldest_seconds, summary.unknown_tasks) == (9.0, ["u", "v (version 2)"])
    assert summary.queues == ("other",), "those of the default one are claimed"


async def test_nodes_and_leaders_are_listed(world: World):
    await world.a.lead()
    await world.a.beat(world.a.term, info={"running": 1})
    [node] = [n for n in await world.b.store.nodes(10) if n.id == world.a.id]
    assert (node.worker_id, node.app) == (world.a.identity.worker_id, "default")
    assert (node.heartbeat, node.lease_seconds, node.info) == (
        world.now, LEASE, {"running": 1},
    )  # fmt: skip
    [leader] = await world.b.store.leaders(10)
    assert (leader.holder, leader.term) == (node.worker_id, world.a.term.token)
    assert (leader.node, leader.acquired_at) == (world.a.id, world.now)


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
    assert await world.a.store.transactions(10, world.now) == []


async def test_a_node_that_died_is_told_until_a_person_has_seen_it(world: World):
    store, b, c = world.a.store, world.b, world.c
    await c.join()
    assert await store.died(DAY, 10, None) == []
    await store.certify(b.id, 10.0, process=True)
    [dead] = await store.died(DAY, 10, None)
    assert (dead.node, dead.worker_id, dead.app) == (b.id, b.identity.worker_id, "default")
    assert dead.rescued == 0
    await store.certify(c.id, 10.0, process=True)
    assert {row.node for row in await store.died(DAY, 10, None)} == {b.id, c.id}
    assert len(await store.died(DAY, 1, None)) == 1
    assert await store.seen("nobody:1:abcdef", None) == 0
    assert await store.seen(b.identity.worker_id, None) == 1
    assert [row.node for row in await store.died(DAY, 10, None)] == [c.id]
    assert await store.seen(None, None) == 1
    assert await store.seen(None, None) == 0
    assert await store.died(DAY, 10, None) == []


async def test_who_left_in_good_order_or_lives_on_under_another_id_has_not_died(world: World):
    store = world.a.store
    await world.b.leave()
    await world.c.join()
    await store.certify(world.c.id, 10.0)  # by itself: its lease was lost, and it joins again
    assert await store.died(DAY, 10, None) == []


async def test_failures_are_counted_by_task_with_the_newest_error(world: World):
    store = world.a.store
    for n in range(3):
        job = await world.claimed(task="send")
        await world.a.ack(job, Decision(State.DISCARDED, error=f"ValueError: {n}"))
    await world.a.ack(await world.claimed(task="send"))
    failed = await world.claimed(task="other")
    again = Decision(State.RETRYABLE, run_in=60.0, held_because="retryable", error="KeyError: 1")
    await world.a.ack(failed, again)
    await world.a.ack(await world.claimed(task="third"))
    [send] = await store.failures("discarded", 600.0, at(5))
    [other] = await store.failures("retryable", 600.0, at(5), 1)
    assert (send.task, send.discarded, send.failed) == ("send", 3, 0)
    assert send.error.startswith("ValueError: ")
    assert (other.task, other.discarded, other.failed) == ("other", 0, 1)
    assert other.error == "KeyError: 1"
    assert await store.finished(send.counted_until) == {"send": 4, "third": 1}
    assert await store.retry(job.id, at(5)) == "finished"
    [send] = await store.failures("discarded", 600.0, at(5))
    assert send.discarded == 2, "one was run again"
    assert await store.failures("discarded", 600.0, at(601)) == []


async def test_a_task_with_many_failures_hides_no_other(world: World):
    store = world.a.store
    for task in ("quiet", "noisy", "noisy"):
        job = await world.claimed(task=task)
        await world.a.ack(job, Decision(State.DISCARDED, error="no"))
    await store.roll_up(at(0), at(90))
    world.now = at(95)
    rows = await store.failures("discarded", 600.0, at(95), 2)
    assert {row.task: row.discarded for row in rows} == {"noisy": 2, "quiet": 1}
    assert all(type(row.discarded) is type(row.finished) is int for row in rows)
    assert await store.failures("discarded", 600.0, at(900), 2) == []


async def test_finished_jobs_are_counted_once_whether_the_history_has_them_or_not(world: World):
    store = world.a.store
    for _ in range(4):
        await world.a.ack(await world.claimed(task="send"))
    world.now = at(90)
    await store.roll_up(at(0), at(90))
    await world.a.ack(await world.claimed(task="send"))
    job = await world.claimed(task="send")
    await world.a.ack(job, Decision(State.DISCARDED, error="no"))
    [row] = await store.failures("discarded", 600.0, at(95))
    assert (row.discarded, row.finished) == (1, 4)
    assert row.counted_until == at(60)
    assert await store.finished(row.counted_until) == {"send": 2}


async def test_the_schedules_that_need_a_person_are_read_before_all_others(world: World):
    """Checks read a limited number of them."""
    store = world.a.store
    await world.a.lead()
    names = ["fine", "late", "paused", "ahead", "ended"]
    due = {"late": at(0), "paused": at(0), "ended": None}
    many = [planned(name, next_at=due.get(name, at(60))) for name in names]
    await store.sync_schedules("default", "r1", many, world.now)
    await store.pause_schedule("default", "paused", True)
    await store.fire(world.a.term, "default", [plan(None, 59, name="ahead")], world.now)
    rows = await store.schedule_lags(10, at(11))
    assert [row[1:] for row in rows] == [
        ("late", False, 11.0, 0.0),
        ("ahead", False, 0.0, 48.0),
        ("paused", True, 0.0, 0.0),
        ("ended", False, 0.0, 0.0),
        ("fine", False, 0.0, 0.0),
    ]
    assert [row.name for row in await store.schedule_lags(1, at(11))] == ["late"]


async def test_a_schedule_fails_while_its_newest_job_failed_and_none_completed_lately(world: World):
    store = world.a.store
    await world.a.lead()
    await store.sync_schedules("default", "r1", [planned()], world.now)

    async def tick(seen: float | None, moment: float, decision: Decision) -> None:
        world.now = at(moment)
        before = None if seen is None else at(seen)
        await store.fire(world.a.term, "default", [plan(before, moment)], world.now)
        [job] = await world.a.claim()
        await world.a.ack(job, decision)

    async def failing(now: float) -> list[tuple[str, str]]:
        rows = await store.failing_schedules(600.0, 10, at(now))
        return [(row.name, row.error) for row in rows]

    no = Decision(State.DISCARDED, error="KeyError: 'x'")
    assert await failing(0) == []
    await tick(None, 0, no)
    assert await failing(1) == [("tick", "KeyError: 'x'")]
    assert await failing(DAY) == [("tick", "KeyError: 'x'")], "until one of them completes"
    await tick(0, 60, Decision(State.COMPLETED))
    assert await failing(61) == []
    await tick(60, 120, no)
    assert await failing(121) == [], "one of several"
    assert await failing(661) == [("tick", "KeyError: 'x'")]
    await store.pause_schedule("default", "tick", True)
    assert await failing(662) == [], "a person stopped it"


async def test_a_schedule_that_fails_is_found_among_many_others(world: World):
    store = world.a.store
    await world.a.lead()
    names = [f"s{n}" for n in range(9)]
    many = [planned(name) for name in names]
    await store.sync_schedules("default", "r1", many, world.now)
    await store.fire(world.a.term, "default", [plan(None, 0, name="s8")], world.now)
    [job] = await world.a.claim()
    await world.a.ack(job, Decision(State.DISCARDED, error="no"))
    [row] = await store.failing_schedules(600.0, 1, at(1))
    assert row.name == "s8"
