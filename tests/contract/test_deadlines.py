"""Deadlines: what arms them, what keeps them, and that each has one verdict."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from leasework.config import Limits, Settings
from leasework.duties.deadlines import DeadlineSweeper
from leasework.env import Env
from leasework.errors import BadDeadline
from leasework.loops.service import ServiceContext
from leasework.model.deadline import Breach, Callback, DueDeadline, Promise
from leasework.model.filter import JobFilter
from leasework.model.job import ClaimedJob
from leasework.model.outcome import Decision
from leasework.model.states import State
from leasework.store.operation import Term
from tests.contract.world import DONE, IDS, World, at, plan, planned
from tests.support.requests import job_request

PAGE = Callback("page", {"queue": "pages", "priority": -1, "max_attempts": 9})
FAILED = Decision(State.DISCARDED, error="no")
CANCELLED = Decision(State.CANCELLED, error="stop")


def promise(seconds: float = 60, **other: Any) -> Promise:
    return Promise(**{"callback": PAGE, "seconds": seconds, **other})


async def states(world: World, job: UUID | None = None) -> list[str]:
    rows = [row for row in await world.reports.deadlines(None, None, 100) if job in (None, row.id)]
    return [row.state for row in sorted(rows, key=lambda row: row.id)]


async def sweep(world: World, limit: int = 100) -> list[Breach]:
    return list((await world.b.store.sweep(limit, world.now)).breaches)


async def pages(world: World) -> list[dict[str, Any]]:
    """The facts that the callbacks' jobs carry."""
    jobs = await world.reports.jobs(JobFilter(None, "pages", "page"), 1000)
    return [job.payload["breach"] for job in reversed(jobs)]


async def test_a_breach_has_one_verdict_and_one_callback_with_the_facts(world: World):
    [job] = await world.enqueue(deadline=promise(60, name="report"))
    world.now = at(59)
    swept = await world.a.store.sweep(100, world.now)
    assert (swept.breaches, swept.next_in) == ((), 1.0)
    world.now = at(61.5)
    [breach] = await sweep(world)
    assert await sweep(world) == []
    assert breach[:5] == (job, "report", job, at(60), 1.5)
    [facts] = await pages(world)
    assert facts == {
        "deadline": str(job),
        "name": "report",
        "due": "2026-01-01T12:01:00.000000Z",
        "late_seconds": 1.5,
        "job": str(job),
        "state": "available",
        "schedule": None,
        "tick": None,
        "since": "scheduled",
        "until": "success",
    }
    callback = await world.get(breach.callback_job)
    assert (callback.queue, callback.priority, callback.max_attempts) == ("pages", -1, 9)


async def test_a_completion_in_time_meets_it_and_a_later_sweep_finds_nothing(world: World):
    job = await world.claimed(deadline=promise(60))
    assert job.deadlines
    assert (await world.a.ack(job, DONE)).written
    world.now = at(100)
    assert await states(world) == ["met"]
    assert await sweep(world) == [] and await pages(world) == []


async def test_a_verdict_stays_when_the_job_completes_after_it(world: World):
    job = await world.claimed(deadline=promise(60))
    world.now = at(61)
    assert len(await sweep(world)) == 1
    assert (await world.a.ack(job, DONE)).written
    assert await states(world) == ["breached"]
    [row] = await world.reports.deadlines("breached", None, 10)
    assert (row.job_state, row.late_seconds, row.closed_at) == ("running", 1.0, at(61))


async def test_a_job_without_a_deadline_is_not_marked(world: World):
    assert not (await world.claimed()).deadlines
    assert await states(world) == []


@pytest.mark.parametrize(
    ("decision", "options", "state"),
    [
        (DONE, {}, "met"),
        (DONE, {"until": "finished"}, "met"),
        (FAILED, {}, "armed"),
        (FAILED, {"until": "finished"}, "met"),
        (CANCELLED, {}, "cancelled"),
        (CANCELLED, {"until": "finished"}, "cancelled"),
        (Decision(State.RETRYABLE, run_in=1.0, error="x"), {}, "armed"),
        (Decision(State.SCHEDULED, run_in=1.0), {"until": "finished"}, "armed"),
    ],
)
async def test_how_a_job_ends_decides(
    world: World, decision: Decision, options: dict[str, Any], state: str
):
    job = await world.claimed(deadline=promise(60, **options))
    assert (await world.a.ack(job, decision)).written
    assert await states(world) == [state]
    world.now = at(61)
    breaches = await sweep(world)
    assert len(breaches) == (state == "armed")


async def test_without_history_a_completion_meets_it_as_well(world: World):
    job = await world.claimed(history=False, deadline=promise(60))
    assert (await world.a.ack(job, DONE)).written
    assert await states(world) == ["met"]


async def test_a_refused_ack_meets_nothing(world: World):
    job = await world.claimed(deadline=promise(60))
    assert not (await world.a.ack(job, DONE, token=job.claim_token + 1)).written
    assert await states(world) == ["armed"]


async def test_cancelling_a_waiting_job_ends_its_deadline(world: World):
    [job] = await world.enqueue(deadline=promise(60))
    assert await world.a.store.cancel(job, "why", world.now) == "waiting"
    assert await states(world) == ["cancelled"]


async def test_giving_up_a_waiting_job_does_not_keep_its_promise(world: World):
    [success] = await world.enqueue(deadline=promise(60))
    [finished] = await world.enqueue(deadline=promise(60, until="finished"))
    found = await world.a.store.discard_many([success, finished], "why", world.now)
    assert found == dict.fromkeys((success, finished), "waiting")
    assert await states(world, success) == ["armed"]
    assert await states(world, finished) == ["met"]


@pytest.mark.parametrize(("until", "state"), [("success", "armed"), ("finished", "met")])
async def test_a_rescue_and_a_requeue_leave_it_armed_and_quarantine_counts_as_failed(
    world: World, until: str, state: str
):
    job = await world.claimed(deadline=promise(60, until=until))
    await world.a.leave()
    assert await world.b.rescue(world.a) == [(job.id, True, False)]
    assert await states(world) == ["armed"]
    [again] = await world.b.claim()
    assert await world.b.store.requeue(again.id, again.claim_token)
    assert await states(world) == ["armed"]
    await world.c.join()
    [again] = await world.c.claim()
    assert again.deadlines and await world.c.store.start(
        world.c.id, again.id, again.claim_token, world.now
    )
    await world.c.leave()
    assert (await world.b.store.rescue([world.c.id], 2, 100, world.now))[0].quarantined
    assert await states(world) == [state]


@pytest.mark.parametrize(("until", "marked"), [("success", True), ("finished", False)])
async def test_a_job_that_is_tried_again_keeps_the_promise_that_is_open(
    world: World, until: str, marked: bool
):
    job = await world.claimed(deadline=promise(60, until=until))
    assert (await world.a.ack(job, FAILED)).written
    assert await world.a.store.retry(job.id, world.now) == "finished"
    [again] = await world.a.claim()
    assert again.deadlines == marked
    assert (await world.a.ack(again, DONE)).written
    assert await states(world) == ["met"]


@pytest.mark.parametrize(("since", "due"), [("enqueued", 60), ("scheduled", 160)])
async def test_what_the_interval_is_counted_from(world: World, since: str, due: float):
    await world.enqueue(run_in=100.0, deadline=promise(60, since=since))
    assert (await world.a.store.sweep(1, world.now)).next_in == due


async def test_a_fixed_time(world: World):
    [job] = await world.enqueue(deadline=promise(0, since="fixed", at=at(42)))
    assert (await world.a.store.sweep(1, world.now)).next_in == 42
    world.now = at(43)
    assert [b.id for b in await sweep(world)] == [job]


async def test_since_started_is_armed_by_the_first_start_alone(world: World):
    job = await world.claimed(deadline=promise(60, since="started"))
    world.now = at(500)
    assert await states(world) == ["waiting"] and await sweep(world) == []
    assert await start(world, job) == (True, DueDeadline(job.id, "t", at(560), "armed"))
    world.now = at(510)
    assert await start(world, job) == (True, DueDeadline(job.id, "t", at(560), "armed"))
    world.now = at(561)
    assert [b.due_at for b in await sweep(world)] == [at(560)]
    assert await start(world, job) == (True, DueDeadline(job.id, "t", at(560), "breached"))


async def start(
    world: World, job: ClaimedJob, token: int | None = None
) -> tuple[bool, DueDeadline | None]:
    return await world.a.store.start_deadline(
        world.a.id, job.id, token or job.claim_token, world.now
    )


async def test_an_old_claim_starts_no_deadline(world: World):
    job = await world.claimed(deadline=promise(60, since="started"))
    assert await start(world, job, job.claim_token + 1) == (False, None)
    assert await states(world) == ["waiting"]


async def test_a_job_that_ends_before_it_started_leaves_nothing_waiting(world: World):
    [job] = await world.enqueue(deadline=promise(60, since="started"))
    await world.a.store.cancel(job, "why", world.now)
    assert await states(world) == ["cancelled"]


@pytest.mark.parametrize("since", ["scheduled", "tick"])
async def test_the_job_of_a_tick_counts_from_its_moment(world: World, since: str):
    term: Term = await world.a.lead()
    job = {
        "queue": "default", "priority": 0, "max_attempts": 5, "history": True, "payload": {},
        "deadline": promise(5, since=since).as_json(),
    }  # fmt: skip
    await world.a.store.sync_schedules("default", "r1", [planned(job=job)], world.now)
    world.now = at(3)
    assert len(await world.a.store.fire(term, "default", [plan(None, 1)], world.now)) == 1
    [row] = await world.reports.deadlines(None, None, 10)
    assert (row.due_at, row.schedule) == (at(6), "tick")
    world.now = at(7)
    assert len(await sweep(world)) == 1
    [facts] = await pages(world)
    assert (facts["schedule"], facts["tick"]) == ("tick", "2026-01-01T12:00:01.000000Z")
    [claimed] = [job for job in await world.a.claim() if job.schedule]
    assert claimed.deadlines


@pytest.mark.parametrize("since", ["scheduled", "tick"])
async def test_a_schedule_that_runs_now_counts_from_this_moment_as_from_a_tick(
    world: World, since: str
):
    store, job = world.a.store, IDS.new()
    definition = planned(job={**planned().job, "deadline": promise(5, since=since).as_json()})
    await store.sync_schedules("default", "r1", [definition], world.now)
    world.now = at(2)
    assert await store.run_schedule("default", "tick", job, world.now)
    [row] = await world.reports.deadlines(None, None, 10)
    assert (row.since, row.due_at) == (since, at(7))
    world.now = at(10)
    [breach] = await sweep(world)
    facts = (await world.get(breach.callback_job)).payload["breach"]
    assert (facts["schedule"], facts["tick"]) == ("tick", "2026-01-01T12:00:02.000000Z")


async def test_a_tick_deadline_needs_a_tick_and_no_job_is_left(world: World):
    with pytest.raises(BadDeadline, match="schedule"):
        await world.enqueue(deadline=promise(5, since="tick"))
    assert await world.a.claim() == []


async def test_a_deadline_in_the_past_is_refused_and_no_job_is_left(world: World):
    with pytest.raises(BadDeadline, match="past"):
        await world.enqueue(unique="k", deadline=promise(0, since="fixed", at=at(-1)))
    assert await world.a.claim() == [] and await states(world) == []
    [job] = await world.enqueue(unique="k")
    assert [found.id for found in await world.a.claim()] == [job]


async def test_another_job_for_the_same_key_moves_the_promise_and_adds_none(world: World):
    await world.enqueue(unique="k", run_in=50.0, deadline=promise(60))
    await world.enqueue(unique="k", run_in=90.0, deadline=promise(60))
    assert (await world.a.store.sweep(1, world.now)).next_in == 110
    await world.enqueue(unique="k", run_in=90.0, on_conflict="replace", deadline=promise(60))
    assert (await world.a.store.sweep(1, world.now)).next_in == 150
    assert await states(world) == ["armed"]


async def test_a_job_enqueued_again_after_an_unknown_outcome_has_one_deadline(world: World):

    job, request = uuid4(), job_request(deadline=promise(60))
    for retried in (False, True):
        await world.a.store.enqueue([(job, request)], 1 << 20, retried, world.now)
    assert await states(world) == ["armed"]
    [claimed] = await world.a.claim()
    await world.a.ack(claimed, DONE)
    await world.a.store.enqueue([(job, request)], 1 << 20, True, world.now)
    assert await states(world) == ["met"]


async def test_a_sweep_is_bounded_and_takes_the_oldest_first(world: World):
    for seconds in (30, 10, 20):
        await world.enqueue(deadline=promise(seconds))
    world.now = at(100)
    assert [b.late_seconds for b in await sweep(world, 2)] == [90, 80]
    assert [b.late_seconds for b in await sweep(world, 2)] == [70]


async def test_who_sleeps_on_the_callbacks_queue_is_woken(world: World):
    await world.enqueue(deadline=promise(60))
    await world.b.store.set_sleeping(world.b.id, ["pages"])
    await world.heard()
    world.now = at(61)
    await sweep(world)
    assert await world.heard() == ["q:pages"]


# -- standing alone --------------------------------------------------------------------------------
async def arm(world: World, name: str, given: Promise) -> tuple[UUID, bool]:
    return await world.a.store.arm_deadline(uuid4(), name, given.as_json(), world.now)


async def test_one_that_stands_alone_is_met_once(world: World):
    deadline, created = await arm(world, "books", promise(60))
    assert created and await world.b.store.find_deadline("books") == deadline
    for _ in range(2):
        assert await world.b.store.end_deadline(deadline, "met", world.now) == "met"
    world.now = at(61)
    assert await sweep(world) == []
    assert await world.b.store.end_deadline(deadline, "cancelled", world.now) == "met"


async def test_one_that_stands_alone_breaches_once(world: World):
    deadline, _ = await arm(world, "books", promise(60))
    world.now = at(61)
    [breach] = await sweep(world)
    assert breach[:3] == (deadline, "books", None)
    [facts] = await pages(world)
    assert (facts["deadline"], facts["job"], facts["state"]) == (str(deadline), None, None)
    assert await world.b.store.end_deadline(deadline, "met", world.now) == "breached"


async def test_a_name_is_armed_once_until_its_verdict(world: World):
    first, created = await arm(world, "books", promise(60))
    assert created and await arm(world, "books", promise(90)) == (first, False)
    await world.a.store.end_deadline(first, "met", world.now)
    second, created = await arm(world, "books", promise(90))
    assert created and second != first
    assert await world.a.store.find_deadline("books") == second


async def test_a_name_and_a_moment_are_there_once_whatever_the_verdict(world: World):
    fixed = promise(0, since="fixed", at=at(60))
    first, _ = await arm(world, "books", fixed)
    await world.a.store.end_deadline(first, "met", world.now)
    assert await arm(world, "books", fixed) == (first, False)
    other, created = await arm(world, "books", promise(0, since="fixed", at=at(70)))
    assert created and other != first


async def test_one_that_lies_in_the_past_is_refused(world: World):
    with pytest.raises(BadDeadline, match="past"):
        await arm(world, "books", promise(0, since="fixed", at=at(0)))
    assert await world.a.store.find_deadline("books") is None
    assert await world.a.store.end_deadline(uuid4(), "met", world.now) is None


async def test_a_jobs_deadline_cannot_be_ended_as_one_that_stands_alone(world: World):
    [job] = await world.enqueue(deadline=promise(60))
    assert await world.a.store.end_deadline(job, "met", world.now) is None
    assert await states(world) == ["armed"]


async def test_verdicts_are_kept_for_a_while_and_what_is_open_stays(world: World):
    for seconds in (60, 8 * 86400):
        await world.enqueue(deadline=promise(seconds))
    done = await world.claimed(deadline=promise(60))
    await world.a.ack(done, DONE)
    world.now = at(61)
    assert len(await sweep(world)) == 1
    world.now = at(7 * 86400 + 100)
    [row] = await world.reports.deadlines("breached", "t", 10)
    assert (row.on_breach, row.late_seconds) == ("page", 1.0)
    assert await world.a.store.prune_deadlines(7, 100, world.now) == 2
    assert await states(world) == ["armed"]
    assert await world.reports.deadlines(None, "nobody", 10) == []


async def test_old_verdicts_are_deleted_batch_after_batch_without_a_pause(world: World):
    for _ in range(5):
        done = await world.claimed(deadline=promise(60))
        await world.a.ack(done, DONE)
    world.now = at(61)
    await sweep(world)
    world.now = at(100 * 86400)
    settings = Settings(limits=Limits(batch_rows=2))
    store = world.a.store
    context = ServiceContext(settings, Env(), lambda kind, **fields: None, store, store)
    sweeper = DeadlineSweeper(context, lambda: True)
    assert [await sweeper.tick(world.now) > 0 for _ in range(3)] == [False, False, True]
    assert await states(world) == []
