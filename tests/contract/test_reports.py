"""What people read. These tests run on PostgreSQL alone, because the simulation has no reports."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from leasework.model.filter import JobFilter
from leasework.model.outcome import Decision
from leasework.model.states import State
from leasework.store.jobs import AckItem
from tests.contract.test_deadlines import FAILED, promise, sweep
from tests.contract.test_operator import DAY, event
from tests.contract.test_put_schedules import document
from tests.contract.world import DONE, LEASE, World, at, identity, plan, planned


async def test_what_failed_lately_is_found_among_other_events(world: World):
    store = world.a.store
    old, late = event("service_failed", 700.0), event("service_failed", 1.0)
    await store.record([old, late, event("a")], world.now)
    kinds = ["service_failed", "lock_lost"]
    [found] = await world.reports.lately(kinds, 600.0, 10, world.now)
    assert (found.kind, found.at, found.fields) == ("service_failed", at(-1), {"x": 1})
    assert await world.reports.lately(kinds, 0.5, 10, world.now) == []
    assert await world.reports.lately(["lock_lost"], 600.0, 10, world.now) == []


async def test_many_events_of_one_kind_do_not_hide_another_kind(world: World):
    store = world.a.store
    breaches = [event("deadline_breached", 1.0 + n / 10) for n in range(9)]
    await store.record([event("service_failed", 5.0), *breaches], world.now)
    found = await world.reports.lately(["deadline_breached", "service_failed"], 600.0, 3, world.now)
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
    summary = await world.reports.summary(world.now)
    assert (summary.waiting, summary.unknown, summary.quarantined) == (3, 2, 0)
    assert (summary.stranded, summary.unknown_tasks) == (0, ["u", "v (version 2)"])
    claimed, waiting = await world.reports.queues(world.now)
    assert (claimed.queue, claimed.available, claimed.running) == ("default", 0, 2)
    assert (waiting.queue, waiting.available, waiting.oldest_seconds) == ("other", 1, 9.0)


async def test_nodes_and_leaders_are_listed(world: World):
    await world.a.lead()
    await world.a.beat(world.a.term, info={"running": 1})
    [node] = [n for n in await world.reports.nodes(10) if n.id == world.a.id]
    assert (node.worker_id, node.app) == (world.a.identity.worker_id, "default")
    assert (node.heartbeat, node.lease_seconds, node.info) == (
        world.now, LEASE, {"running": 1},
    )  # fmt: skip
    [leader] = await world.reports.leaders(10)
    assert (leader.holder, leader.term) == (node.worker_id, world.a.term.token)
    assert (leader.node, leader.acquired_at) == (world.a.id, world.now)


async def test_the_schema_is_right_and_nobody_pins(world: World):
    await world.reports.check_schema()
    assert await world.reports.transactions(10, world.now) == []


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
    [send] = await world.reports.failures("discarded", 600.0, at(5))
    [other] = await world.reports.failures("retryable", 600.0, at(5), 1)
    assert (send.task, send.discarded, send.failed) == ("send", 3, 0)
    assert send.error.startswith("ValueError: ")
    assert (other.task, other.discarded, other.failed) == ("other", 0, 1)
    assert other.error == "KeyError: 1"
    assert await world.reports.finished(send.counted_until) == {"send": 4, "third": 1}
    assert await store.retry(job.id, at(5)) == "finished"
    [send] = await world.reports.failures("discarded", 600.0, at(5))
    assert send.discarded == 2, "one was run again"
    assert await world.reports.failures("discarded", 600.0, at(661)) == []


async def test_jobs_that_each_stop_interrupts_are_counted_by_task_until_a_run_ends(world: World):
    stopped = Decision(State.SCHEDULED, counts=False, held_because="stopped")

    async def interrupt(*decisions: Decision) -> None:
        for decision in decisions:
            await world.a.stage()
            [claimed] = await world.a.claim(1)
            await world.a.ack(claimed, decision)

    await world.a.lead()
    [job] = await world.enqueue(task="long")
    await interrupt(stopped, stopped)
    assert await world.reports.interrupted(3) == []
    await interrupt(stopped)
    assert await world.reports.interrupted(3) == [("long", 1, job, 0.5)]
    await interrupt(Decision(State.SCHEDULED, counts=False, held_because="snoozed"))
    assert await world.reports.interrupted(3) == [], "a run has ended since"
    await interrupt(stopped, stopped, stopped)
    assert [row.task for row in await world.reports.interrupted(3)] == ["long"]
    await interrupt(DONE)
    assert await world.reports.interrupted(3) == []


async def test_a_task_with_many_failures_hides_no_other(world: World):
    store = world.a.store
    for task in ("quiet", "noisy", "noisy"):
        job = await world.claimed(task=task)
        await world.a.ack(job, Decision(State.DISCARDED, error="no"))
    await store.roll_up(at(0), at(90))
    world.now = at(95)
    rows = await world.reports.failures("discarded", 600.0, at(95), 2)
    assert {row.task: row.discarded for row in rows} == {"noisy": 2, "quiet": 1}
    assert all(type(row.discarded) is type(row.finished) is int for row in rows)
    assert await world.reports.failures("discarded", 600.0, at(900), 2) == []


async def test_finished_jobs_are_counted_once_whether_the_history_has_them_or_not(world: World):
    store = world.a.store
    for _ in range(4):
        await world.a.ack(await world.claimed(task="send"))
    world.now = at(90)
    await store.roll_up(at(0), at(90))
    await world.a.ack(await world.claimed(task="send"))
    job = await world.claimed(task="send")
    await world.a.ack(job, Decision(State.DISCARDED, error="no"))
    [row] = await world.reports.failures("discarded", 600.0, at(95))
    assert (row.discarded, row.finished) == (1, 4)
    assert row.counted_until == at(60)
    assert await world.reports.finished(row.counted_until) == {"send": 2}


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
    rows = await world.reports.schedule_lags(10, at(11))
    assert [row[1:] for row in rows] == [
        ("late", False, 11.0, 0.0),
        ("ahead", False, 0.0, 48.0),
        ("paused", True, 0.0, 0.0),
        ("ended", False, 0.0, 0.0),
        ("fine", False, 0.0, 0.0),
    ]
    assert [row.name for row in await world.reports.schedule_lags(1, at(11))] == ["late"]


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
        rows = await world.reports.failing_schedules(600.0, 10, at(now))
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
    [row] = await world.reports.failing_schedules(600.0, 1, at(1))
    assert row.name == "s8"


async def test_jobs_are_listed_newest_first_and_by_what_is_asked(world: World):
    [old] = await world.enqueue()
    world.now = at(1)
    [new] = await world.enqueue(task="u", queue="other")

    async def listed(limit: int = 10, **wanted: str) -> list[UUID]:
        return [job.id for job in await world.reports.jobs(JobFilter(**wanted), limit)]

    assert await listed() == [new, old]
    assert await listed(limit=1) == [new]
    assert await listed(queue="other") == [new]
    assert await listed(task="t") == [old]
    [claimed] = await world.a.claim()
    await world.a.ack(claimed)
    assert await listed(state="completed") == [old]
    assert await listed(state="available") == [new]


async def test_running_jobs_are_listed_oldest_first_and_waiting_ones_by_their_time(world: World):
    later = [await world.enqueue(run_in=float(seconds)) for seconds in (90, 60, 120)]
    due = [await world.enqueue() for _ in range(2)]
    assert len(await world.a.claim()) == 2

    async def listed(state: str) -> list[UUID]:
        return [job.id for job in await world.reports.jobs(JobFilter(state=state), 10)]

    assert await listed("running") == [id_ for [id_] in due]
    [first], [second], [third] = later
    assert await listed("scheduled") == [second, first, third]


async def test_a_tag_finds_waiting_and_finished_jobs_and_matches_as_a_whole(world: World):
    done = await world.claimed(tags=["eu", "late"])
    await world.a.ack(done)
    [waits] = await world.enqueue(tags=["eu"])
    await world.enqueue(tags=["europe"])
    await world.enqueue()

    async def found(**wanted: str) -> list[UUID]:
        return [record.id for record in await world.reports.jobs(JobFilter(**wanted), 10)]

    assert await found(tag="eu") == [waits, done.id]
    assert await found(tag="eu", state="completed") == await found(tag="late") == [done.id]
    assert await found(tag="e") == await found(tag="") == []


async def test_they_are_listed_page_by_page_and_by_the_beginning_of_their_names(world: World):
    store, payload = world.a.store, {"customer": 42}
    for app in ("app-b", "app-a"):
        for name in ("b-2", "a-1", "a-2", "A-%"):
            job = {"task": "t", "payload": payload}
            assert await store.put_schedule(app, document(name, job=job), world.now)

    async def listed(**wanted: Any) -> list[str]:
        return [f"{row.app} {row.name}" for row in await world.reports.schedules(3, **wanted)]

    first = await listed()
    assert first == ["app-a A-%", "app-a a-1", "app-a a-2"]
    second = await listed(after_app="app-a", after="a-2")
    assert second == ["app-a b-2", "app-b A-%", "app-b a-1"]
    assert await listed(after_app="app-b", after="b-2") == []
    assert await listed(app="app-b", prefix="a-") == ["app-b a-1", "app-b a-2"]
    assert await listed(name="b-2") == ["app-a b-2", "app-b b-2"]
    assert await listed(prefix="%") == [] and await listed(prefix="A-%x") == []
    [whole], [short] = await world.reports.schedules(1), await world.reports.schedules(1, longest=5)
    assert whole.job == {"task": "t", "payload": payload} and short.job == {"task": "t"}


async def test_a_breach_whose_callback_nobody_knows_is_told(world: World):
    await world.enqueue(deadline=promise(60))
    world.now = at(61)
    [breach] = await sweep(world)
    found = await world.reports.unhandled_breaches(7, 100, world.now)
    assert [(row.task, row.callback_job, row.why) for row in found] == [
        ("page", breach.callback_job, "unknown")
    ]
    knows = identity(9, tasks=("page",), queues={"pages": 1})
    await world.a.store.register(knows, 6.0, world.now)
    assert await world.reports.unhandled_breaches(7, 100, world.now) == []
    [job] = await world.a.store.claim(knows.id, 1, {"pages": 1}, [], world.now)
    item = AckItem(job.id, job.claim_token, FAILED, 0.1)
    await world.a.store.ack(knows.id, [item], world.now)
    [row] = await world.reports.unhandled_breaches(7, 100, world.now)
    assert row.why == "discarded"
    assert await world.a.store.retry(job.id, world.now) == "finished"
    assert await world.a.store.cancel(job.id, "it is too late now", world.now) == "waiting"
    assert await world.reports.unhandled_breaches(7, 100, world.now) == []


async def test_a_job_that_was_taken_away_at_its_last_attempt_counts_as_a_failure(world: World):
    claimed = await world.claimed(max_attempts=1, requeue_after=60.0)
    assert await world.b.store.requeue(claimed.id, claimed.claim_token, world.now)
    [failing] = await world.reports.failures("discarded", 600.0, world.now)
    assert failing.discarded == 1


async def test_a_quarantined_job_is_counted_until_somebody_decides(world: World):
    claimed = await world.claimed(world.b)
    await world.b.store.start(world.b.id, claimed.id, claimed.claim_token, world.now)
    await world.b.leave()
    await world.a.store.rescue([world.b.id], 1, 100, world.now)
    assert (await world.reports.summary(world.now)).quarantined == 1
    await world.a.store.discard(claimed.id, "why", world.now)
    assert (await world.reports.summary(world.now)).quarantined == 0
