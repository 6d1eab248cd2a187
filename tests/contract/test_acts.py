"""The Store's operations with which people act, and the history."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from uuid import UUID, uuid4

from leasework_lab.sim.store_operator import class_of

from leasework.model.begins import Begins
from leasework.model.filter import JobFilter
from leasework.model.outcome import COMPLETED, Decision
from leasework.model.states import State
from leasework.store.jobs import AckItem
from tests.contract.test_operator import DAYS
from tests.contract.world import IDS, World, at, planned

RETRY = Decision(State.RETRYABLE, run_in=60, error="no")


async def test_discarded_jobs_are_over_and_keep_the_reason(world: World):
    [waiting, later] = [(await world.enqueue())[0], (await world.enqueue(run_in=60))[0]]
    found = await world.a.store.discard_many([waiting, later], "enough", world.now)
    assert found == dict.fromkeys((waiting, later), "waiting")
    for job in (waiting, later):
        record = await world.get(job)
        assert (record.state, record.last_error) == (State.DISCARDED, "enough")
        assert record.completed_at == world.now
    assert await world.a.store.discard(waiting, "again", world.now) == "finished"
    assert await world.a.store.discard(uuid4(), "unknown", world.now) is None


async def test_a_discard_leaves_running_and_locked_jobs(world: World):
    claimed = await world.claimed()
    [held] = await world.enqueue()
    async with world.hold(held):
        found = await world.b.store.discard_many([claimed.id, held], "why", world.now)
        assert found == {claimed.id: "running", held: "locked"}
    assert await world.state(claimed.id) == "running"
    assert await world.state(held) == "available"


async def test_a_discard_frees_the_unique_key(world: World):
    [first] = await world.enqueue(unique="k")
    await world.a.store.discard(first, "why", world.now)
    [second] = await world.enqueue(unique="k")
    assert await world.state(second) == "available"


async def test_a_quarantined_job_can_be_discarded_and_retried(world: World):
    jobs = []
    for _ in range(2):
        claimed = await world.claimed(world.b)
        await world.b.store.start(world.b.id, claimed.id, claimed.claim_token, world.now)
        jobs.append(claimed.id)
    await world.b.leave()
    await world.a.store.rescue([world.b.id], 1, 100, world.now)
    assert [await world.state(job) for job in jobs] == ["quarantined"] * 2
    found = await world.a.store.discard_many(jobs[:1], "why", world.now)
    assert found == {jobs[0]: "quarantined"}
    assert await world.a.store.retry_many(jobs[1:], world.now) == {jobs[1]: "finished"}
    record = await world.get(jobs[0])
    assert record.state == "discarded" and "worker died" in (record.last_error or "")
    assert (record.last_error or "").endswith("; why")
    assert await world.state(jobs[1]) == "available"


async def test_many_are_cancelled_and_running_ones_are_asked(world: World):
    claimed = await world.claimed()
    done = await world.claimed(world.b)
    await world.b.ack(done)
    waiting = await world.enqueue(3)
    asked = [claimed.id, *waiting, done.id, uuid4()]
    changed = await world.b.store.cancel_many(asked, "enough", world.now)
    assert changed == {
        claimed.id: "running", **dict.fromkeys(waiting, "waiting"), done.id: "finished"
    }  # fmt: skip
    assert (await world.get(claimed.id)).cancel_requested
    assert (await world.get(waiting[0])).reason == "enough"
    assert [s.job for s in (await world.a.beat()).signals] == [claimed.id]
    await world.a.ack(claimed, RETRY)
    assert await world.state(claimed.id) == "cancelled", "it would have been tried again"


async def test_many_are_retried_and_running_ones_are_left(world: World):
    claimed = await world.claimed()
    done = await world.claimed(world.b, priority=-1)
    await world.b.ack(done, Decision(State.DISCARDED, error="no"))
    [later] = await world.enqueue(run_in=60)
    changed = await world.a.store.retry_many([claimed.id, done.id, later], world.now)
    assert changed == {claimed.id: "running", done.id: "finished", later: "waiting"}
    assert await world.state(claimed.id) == "running"
    record = await world.get(done.id)
    assert (record.state, record.attempt, record.last_error) == ("available", 0, "no")
    assert await world.state(later) == "available"


async def test_a_retry_by_state_leaves_a_job_that_has_completed_meanwhile(world: World):
    done, failed = await world.claimed(), await world.claimed()
    await world.a.ack(done)
    await world.a.ack(failed, Decision(State.DISCARDED, error="no"))
    [later] = await world.enqueue(run_in=60)
    jobs = [done.id, failed.id, later]
    for state, restarted in (("retryable", None), ("discarded", failed.id)):
        found = await world.a.store.retry_many(jobs[:2], world.now, state)
        want = dict.fromkeys(jobs[:2], "unchanged")
        assert found == (want | {restarted: "finished"} if restarted else want)
    assert await world.a.store.retry_many([later], world.now, "scheduled") == {later: "waiting"}
    assert [await world.state(job) for job in jobs] == ["completed", "available", "available"]


async def test_waiting_jobs_are_given_another_priority(world: World):
    running, done = await world.claimed(priority=7), await world.claimed(world.b)
    await world.b.ack(done)
    low, there, mine = [(await world.enqueue(priority=p))[0] for p in (9, 5, 5)]
    [later], [held] = await world.enqueue(run_in=60), await world.enqueue(priority=5)
    await world.a.lead()
    await world.heard()
    async with world.hold(held):
        found = await world.a.store.reprioritize_many(
            [low, mine, later, held, running.id, done.id, uuid4()], 5
        )
    assert found == {
        low: "waiting", mine: "waiting", later: "waiting", held: "locked",
        running.id: "running", done.id: "finished",
    }  # fmt: skip
    assert (await world.get(later)).state == State.SCHEDULED
    claimed = await world.b.claim()
    assert [job.id for job in claimed] == [there, mine, held, low], "behind those of this priority"
    assert {job.priority for job in claimed} == {5}
    assert await world.a.store.reprioritize(later, -2) == "waiting"
    assert await world.a.store.reprioritize(uuid4(), -2) is None
    assert ((await world.get(later)).priority, (await world.get(running.id)).priority) == (-2, 7)


async def test_a_worker_that_is_ahead_finds_a_job_of_another_priority(world: World):
    """Its claims begin behind the old seat of the job, at each priority."""
    [waits] = await world.enqueue(priority=9)
    begins = Begins(lambda: 0.0)

    async def claim(limit: int) -> list[UUID]:
        found = await world.b.store.claim(
            world.b.id, world.b.epoch, {"default": limit}, [], world.now, begins
        )
        return [job.id for job in found]

    for _ in range(3):
        [job] = await world.enqueue(priority=1)
        assert await claim(1) == [job]
    assert await world.a.store.reprioritize(waits, 1) == "waiting"
    assert await claim(1) == [waits]


async def test_the_attempts_of_a_job_are_kept(world: World):
    claimed = await world.claimed()
    await world.a.ack(claimed, RETRY)
    await world.b.store.retry(claimed.id, world.now)
    [again] = await world.b.claim()
    await world.b.ack(again)
    [attempt] = await world.reports.attempts(claimed.id, 10)
    assert attempt.attempt == 1 and attempt.token == claimed.claim_token
    assert (attempt.outcome, attempt.error) == ("retryable", "no")
    assert attempt.worker_id == world.a.identity.worker_id
    assert attempt.ended_at == world.now
    assert attempt.started_at == world.now - timedelta(seconds=0.5)


async def test_a_schedule_runs_now_beside_its_ticks(world: World):
    store, job = world.a.store, IDS.new()
    await store.sync_schedules("default", "r1", [planned()], world.now)
    assert await store.run_schedule("default", "tick", job, world.now)
    assert await store.run_schedule("default", "tick", job, world.now), "again: the same job"
    record = await world.get(job)
    assert (record.task_name, record.state, record.scheduled_for) == ("t", "available", world.now)
    assert [r.id for r in await world.reports.jobs(JobFilter(), 10)] == [job]
    [tick] = await world.reports.ticks("tick", 10)
    assert (tick.state, tick.job_id, tick.outcome) == ("manual", job, "waiting")
    assert (await world.reports.schedules(10))[0].high_water is None
    assert not await store.run_schedule("default", "other", IDS.new(), world.now)


async def test_a_schedule_is_removed(world: World):
    store = world.a.store
    await store.sync_schedules("default", "r1", [planned()], world.now)
    assert not await store.delete_schedule("other", "tick", in_code=True)
    assert await store.delete_schedule("default", "tick", in_code=True)
    assert await world.reports.schedules(10) == []
    assert not await store.delete_schedule("default", "tick", in_code=True)


async def test_history_counts_what_finished_in_each_minute(world: World):
    store = world.a.store
    first, second, third = [await world.claimed() for _ in range(3)]
    world.now = at(3)
    await world.a.ack(first)
    await world.a.ack(second, Decision(State.DISCARDED, error="no"))
    await world.a.ack(third, RETRY)
    assert await store.roll_up(at(0), at(69)) == at(0), "the minute may still get rows"
    assert await world.reports.history(at(-600), None, 10) == []
    assert await store.roll_up(at(0), at(71)) == at(60)
    [row] = await world.reports.history(at(-600), None, 10)
    assert (row.at, row.queue, row.task_name) == (at(0), "default", "t")
    assert (row.completed, row.discarded, row.failed, row.cancelled) == (1, 1, 2, 0)
    assert row.wait == {"42": 2}, "2.5 s from due to started"
    assert row.run == {"34": 2}, "half a second"
    for since, queue in ((-600, "other"), (1, None)):
        assert await world.reports.history(at(since), queue, 10) == []


async def test_history_gives_each_run_the_same_class_as_the_model_also_at_the_bounds(world: World):
    ran = [0.0, 0.001199, 0.0012, 0.001439, 0.00144, 0.002073, 0.002074, 1.499999, 59.3, 723.456141]
    jobs = [await world.claimed() for _ in ran]
    items = [
        AckItem(job.id, job.claim_token, COMPLETED, seconds)
        for job, seconds in zip(jobs, ran, strict=True)
    ]
    await world.a.store.ack(world.a.id, items, world.now)
    await world.a.store.roll_up(at(0), at(75))
    [row] = await world.reports.history(at(-600), None, 10)
    assert row.run == {str(k): n for k, n in Counter(class_of(s) for s in ran).items()}


async def test_history_counts_no_wait_of_a_job_that_never_started(world: World):
    [job] = await world.enqueue()
    await world.a.store.cancel(job, "not wanted", world.now)
    await world.a.store.roll_up(at(0), at(75))
    [row] = await world.reports.history(at(-600), None, 10)
    assert (row.cancelled, row.wait, row.run) == (1, {}, {})


async def test_history_counted_again_is_the_same_and_takes_in_what_came_late(world: World):
    store = world.a.store
    first, second = [await world.claimed() for _ in range(2)]
    await world.a.ack(first)
    await store.roll_up(at(0), at(75))
    before = await world.reports.history(at(-600), None, 10)
    assert await store.roll_up(at(60), at(80)) == at(60)
    assert await world.reports.history(at(-600), None, 10) == before
    await world.a.ack(second)
    assert await store.roll_up(at(60), at(129)) == at(60), "no other minute has ended"
    assert await world.reports.history(at(-600), None, 10) == before
    assert await store.roll_up(at(60), at(131)) == at(120)
    [row] = await world.reports.history(at(-600), None, 10)
    assert row.completed == 2


async def test_history_catches_up_in_bounded_steps(world: World):
    store = world.a.store
    assert await store.roll_up(at(0), at(7200)) == at(300)
    assert await store.roll_up(at(300), at(7200)) == at(600)


async def test_old_history_goes(world: World):
    store = world.a.store
    await world.a.ack(await world.claimed())
    await store.roll_up(at(0), at(75))
    await store.prune(DAYS, 100, at(13 * 86400))
    assert len(await world.reports.history(at(-600), None, 10)) == 1
    await store.prune(DAYS, 100, at(15 * 86400))
    assert await world.reports.history(at(-600), None, 10) == []


# -- the stack of a running job --------------------------------------------------------------------
async def test_a_stack_is_asked_for_answered_once_and_kept_for_an_hour(world: World):
    store = world.a.store
    [waiting] = await world.enqueue()
    assert not await store.ask_stack(waiting, ids[0], world.now), "no node holds it"
    assert not await store.ask_stack(uuid4(), ids[0], world.now)
    [job] = await world.a.claim()
    assert await world.b.store.ask_stack(job.id, ids[0], world.now)
    assert (found := await world.reports.stack(job.id)) and found.says is None
    [signal] = (await world.a.beat()).signals
    assert (signal.job, signal.token, signal.kind) == (ids[0], job.claim_token, "stack")
    assert not (await world.a.beat(heard=[signal])).signals

    assert await world.b.store.ask_stack(job.id, ids[1], world.now)
    assert not await store.answer_stack(world.a.id, ids[0], "old", world.now)
    assert not await store.answer_stack(world.b.id, ids[1], "a stranger's", world.now)
    assert await store.answer_stack(world.a.id, ids[1], "File x", world.now)
    found = await world.reports.stack(job.id) or {}
    assert (found.says, found.request) == ("File x", ids[1])
    assert found.claim_token == job.claim_token and found.answered_at == world.now

    days = {"events": 30, "ticks": 30, "attempts": 30, "history": 14}
    await store.prune(days, 100, world.now + timedelta(minutes=59))
    assert await world.reports.stack(job.id)
    await store.prune(days, 100, world.now + timedelta(minutes=61))
    assert await world.reports.stack(job.id) is None


ids = [uuid4() for _ in range(2)]


async def test_of_a_long_history_the_newest_minutes_are_told(world: World):
    store = world.a.store
    for minute in (0, 60, 120):
        world.now = at(minute)
        await world.a.ack(await world.claimed(task="send"))
    await store.roll_up(at(0), at(240))
    times = [row.at for row in await world.reports.history(at(-600), None, 2)]
    assert times == [at(60), at(120)]
