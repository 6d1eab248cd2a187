"""The job that is enqueued when another one fails for good."""

from __future__ import annotations

from typing import Any

from leasework.model.deadline import Callback
from leasework.model.filter import JobFilter
from leasework.model.job import JobRecord
from leasework.model.outcome import Decision
from leasework.model.states import State
from tests.contract.world import World

TELL = Callback("tell", {"queue": "alerts", "priority": 3, "tags": ["pager"]})
DISCARDED = Decision(State.DISCARDED, error="ValueError: no")


async def told(world: World) -> list[JobRecord]:
    return [job for job in await world.reports.jobs(JobFilter.only(task="tell"), 100)]


async def failure(world: World) -> dict[str, Any]:
    [record] = await told(world)
    assert set(record.payload) == {"failure"}
    found: dict[str, Any] = record.payload["failure"]
    return found


async def test_a_discarded_job_is_told_with_all_that_a_person_needs(world: World):
    job = await world.claimed(on_failure=TELL, tags=["eu"])
    await world.a.ack(job, DISCARDED)
    assert await failure(world) == {
        "job": str(job.id), "task": "t", "queue": "default", "state": "discarded",
        "error": "ValueError: no", "reason": None, "attempt": 1, "tags": ["eu"],
        "schedule": None, "tick": None,
    }  # fmt: skip
    [record] = await told(world)
    assert (record.queue, record.priority, record.tags) == ("alerts", 3, ("pager",))


async def test_a_job_that_completes_or_will_be_tried_again_is_not_told(world: World):
    good, bad = [await world.claimed(on_failure=TELL) for _ in range(2)]
    await world.a.ack(good)
    await world.a.ack(bad, Decision(State.RETRYABLE, run_in=60, error="once"))
    assert await told(world) == []


async def test_a_job_without_history_is_told_as_well(world: World):
    job = await world.claimed(on_failure=TELL, history=False)
    await world.a.ack(job, DISCARDED)
    assert (await failure(world))["job"] == str(job.id)


async def test_a_cancelled_job_is_told_whether_it_waits_or_runs(world: World):
    [waiting] = await world.enqueue(on_failure=TELL)
    await world.b.store.cancel(waiting, "not wanted", world.now)
    found = await failure(world)
    assert (found["state"], found["error"], found["reason"]) == ("cancelled", None, "not wanted")
    running = await world.claimed(on_failure=TELL)
    await world.b.store.cancel(running.id, "too late", world.now)
    assert len(await told(world)) == 1, "it has not ended"
    await world.a.ack(running, Decision(State.CANCELLED, error="the worker ended it"))
    assert len(await told(world)) == 2


async def test_a_quarantined_job_is_told_once_also_when_a_person_discards_it(world: World):
    [job] = await world.enqueue(on_failure=TELL)
    for _ in range(3):
        [claimed] = await world.b.claim()
        await world.b.store.start(world.b.id, job, claimed.claim_token, world.now)
        await world.b.leave()
        await world.a.rescue(world.b)
        await world.b.join()
    assert await world.state(job) == "quarantined"
    found = await failure(world)
    assert found["state"] == "quarantined" and "worker died" in found["error"]
    await world.a.store.discard(job, "seen", world.now)
    assert await world.state(job) == "discarded"
    assert len(await told(world)) == 1


async def test_a_job_that_runs_again_is_told_of_its_next_failure(world: World):
    job = await world.claimed(on_failure=TELL)
    await world.a.ack(job, DISCARDED)
    await world.a.store.retry(job.id, world.now)
    [again] = [j for j in await world.a.claim() if j.id == job.id]
    assert len(await told(world)) == 1
    await world.a.ack(again, DISCARDED)
    assert len(await told(world)) == 2


async def test_the_outcome_of_a_lost_claim_tells_nothing(world: World):
    job = await world.claimed(by=world.b, on_failure=TELL)
    await world.b.leave()
    await world.a.rescue(world.b)
    await world.b.ack(job, DISCARDED)
    assert await told(world) == []
