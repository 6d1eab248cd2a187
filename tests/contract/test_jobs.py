"""The Store's operations on jobs that workers call: in, claimed, given back, acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from msgspec import structs

from leasework.errors import BadPayload, QueryFailed, UniqueConflict
from leasework.model.job import BulkJob, JobRequest
from leasework.model.outcome import Decision
from leasework.model.states import State
from leasework.store.jobs import Completion
from tests.contract.world import LIMIT, World, at
from tests.support.requests import job_request

RETRY = Decision(State.RETRYABLE, run_in=7.0, error="boom")
SNOOZE = Decision(State.SCHEDULED, run_in=3.0, counts=False, held_because="snoozed")


def request(**options) -> JobRequest:
    return job_request(**options)


def of_bulk(**options) -> BulkJob:
    job = request(**options)
    return uuid4().int, job.options, job.payload, job.trace


# -- in -------------------------------------------------------------------------------------------
async def test_a_job_is_as_it_was_asked_for(world: World):
    [job] = await world.enqueue(payload='{"x":1}', priority=3, max_attempts=2)
    record = await world.get(job)
    assert record.payload == {"x": 1} and record.state == "available"
    assert (record.priority, record.max_attempts, record.attempt) == (3, 2, 0)
    assert record.created_at == record.scheduled_for == world.now


@pytest.mark.parametrize("when", [{"run_in": 60.0}, {"run_at": at(60)}])
async def test_a_job_for_later_waits(world: World, when: dict):
    [job] = await world.enqueue(**when)
    record = await world.get(job)
    assert (record.state, record.held_because) == ("scheduled", "scheduled")
    assert record.scheduled_for == at(60) and await world.a.claim() == []


async def test_a_job_for_the_past_is_due(world: World):
    [job] = await world.enqueue(run_at=at(-60))
    assert await world.state(job) == "available"


async def test_the_same_id_again_makes_nothing(world: World):
    job = (uuid4(), request())
    store = world.a.store
    assert await store.enqueue([job], LIMIT, False, world.now) == [(job[0], True)]
    assert await store.enqueue([job], LIMIT, False, world.now) == [(job[0], False)]


async def test_a_payload_over_the_limit_is_refused_with_all_of_its_call(world: World):
    good, bad = (uuid4(), request()), (uuid4(), request(payload='{"x":"0123456789"}'))
    with pytest.raises(BadPayload):
        await world.a.store.enqueue([good, bad], 10, False, world.now)
    assert await world.a.store.get(good[0]) is None


async def test_a_unique_key_gives_the_job_that_holds_it(world: World):
    [first] = await world.enqueue(unique="k")
    answers = await world.b.store.enqueue(
        [(uuid4(), request(unique="k")), (other := uuid4(), request(task="u", unique="k"))],
        LIMIT, False, world.now,
    )  # fmt: skip
    assert answers == [(first, False), (other, True)]


async def test_a_unique_key_raises_where_asked_and_nothing_is_made(world: World):
    [holder] = await world.enqueue(unique="k")
    fresh = (uuid4(), request(unique="new"))
    refused = (uuid4(), request(unique="k", on_conflict="raise"))
    with pytest.raises(UniqueConflict, match="unique key t:k") as conflict:
        await world.a.store.enqueue([fresh, refused], LIMIT, False, world.now)
    assert conflict.value.job == holder and str(holder) in str(conflict.value)
    assert await world.a.store.get(fresh[0]) is None
    again = await world.a.store.enqueue([fresh], LIMIT, False, world.now)
    assert again == [(fresh[0], True)], "its key is free again"


async def test_replace_changes_a_waiting_job_and_leaves_a_running_one(world: World):
    [job] = await world.enqueue(unique="k", run_in=60)
    await world.enqueue(unique="k", on_conflict="replace", payload='{"x":2}', priority=5)
    record = await world.get(job)
    assert (record.payload, record.priority, record.state) == ({"x": 2}, 5, "available")
    await world.a.claim()
    await world.enqueue(unique="k", on_conflict="replace", payload='{"x":3}')
    assert (await world.get(job)).payload == {"x": 2}


async def test_a_key_is_free_when_its_job_has_finished(world: World):
    claimed = await world.claimed(unique="k")
    await world.a.ack(claimed)
    [again] = await world.enqueue(unique="k")
    assert await world.state(again) == "available"


async def test_a_key_with_a_time_is_held_so_long_whatever_becomes_of_the_job(world: World):
    claimed = await world.claimed(unique="k", unique_for=60.0)
    await world.a.ack(claimed)
    held = [(uuid4(), request(unique="k"))]
    assert await world.a.store.enqueue(held, LIMIT, False, at(59)) == [(claimed.id, False)]
    assert await world.a.store.enqueue(held, LIMIT, False, at(60)) == [(held[0][0], True)]


async def test_copy_inserts_all_or_none_and_wakes(world: World):
    store = world.a.store
    await store.set_sleeping(world.a.id, ["default"])
    await world.heard()
    jobs = [of_bulk() for _ in range(3)]
    await store.copy(jobs, len(jobs))
    assert await world.heard() == ["q:default"]
    with pytest.raises(QueryFailed):
        await store.copy([fresh := of_bulk(), jobs[0]], 2)
    assert await store.get(UUID(int=fresh[0])) is None
    assert {job.id.int for job in await world.a.claim()} == {number for number, *_ in jobs}


async def test_a_copied_job_is_as_it_was_asked_for(world: World):
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    asked = of_bulk(priority=3, max_attempts=2, timeout=4.0, history=False, trace=trace)
    await world.a.store.copy([of_bulk(), asked], 2)
    plain, job = await world.a.claim()
    assert job.id.int == asked[0]
    assert (job.priority, job.max_attempts, job.timeout) == (3, 2, 4.0)
    assert (plain.trace, job.trace) == (None, trace)
    await world.a.ack(job)
    assert await world.a.store.get(job.id) is None, "nothing is kept of it"


async def test_what_the_jobs_of_a_copy_raise_ends_it(world: World):
    def jobs() -> Iterator[BulkJob]:
        for _ in range(1500):
            yield of_bulk()
        raise LookupError("no more of them")

    with pytest.raises(LookupError, match="no more"):
        await world.a.store.copy(jobs(), 10_000)
    assert await world.a.claim() == []
    await world.a.store.copy([of_bulk()], 1)
    assert len(await world.a.claim()) == 1


async def test_copy_takes_whatever_text_there_is(world: World):
    """COPY has escapes of its own; a line's end in a payload must not become a row's."""
    odd = "a\\b\tc\nd\re\\N\\."
    payload = '{\n\t"text": "back\\\\slash \\n \\t \\\\N",\r\n "n": 1}'
    job = of_bulk(task=odd, queue=odd, payload=payload)
    await world.a.store.copy([job], 1)
    record = await world.get(UUID(int=job[0]))
    assert (record.task_name, record.queue) == (odd, odd)
    assert record.payload == {"text": "back\\slash \n \t \\N", "n": 1}


# -- claimed --------------------------------------------------------------------------------------
async def test_the_best_job_is_claimed_first(world: World):
    """By priority; then those that came back; then in the order in which they became available."""
    [low] = await world.enqueue(run_at=at(-9), priority=1)
    [back] = await world.enqueue()
    [claimed] = await world.a.claim(1, not_tasks=())
    [delayed] = await world.enqueue(run_at=at(1))
    [first] = await world.enqueue(run_at=at(-1))
    [second] = await world.enqueue(run_at=at(-2))
    [high] = await world.enqueue(priority=-1)
    assert await world.a.store.give_back(world.a.id, [(back, claimed.claim_token)])
    world.now = at(2)
    await world.a.store.stage(await world.a.lead(), 100, world.now)
    jobs = await world.a.claim(5)
    assert [job.id for job in jobs] == [high, back, first, second, delayed]
    assert [job.id for job in await world.a.claim()] == [low]


async def test_to_retry_an_available_job_leaves_it_in_its_place(world: World):
    first, second = await world.enqueue(2)
    assert await world.a.store.retry(first, world.now) == "waiting"
    assert [job.id for job in await world.a.claim()] == [first, second]


async def test_a_claim_is_one_attempt_under_a_fresh_token(world: World):
    [job] = await world.enqueue()
    [first] = await world.a.claim()
    assert (first.attempt, first.crashes) == (1, 0)
    assert await world.b.claim() == []
    record = await world.get(job)
    assert record.state == "running" and record.worker_id == world.a.identity.worker_id
    await world.a.store.give_back(world.a.id, [(job, first.claim_token)])
    [second] = await world.b.claim()
    assert second.attempt == 1 and second.claim_token > first.claim_token


async def test_a_claim_passes_over_other_queues_tasks_and_locked_rows(world: World):
    await world.enqueue(queue="other")
    [named] = await world.enqueue(task="u")
    [locked] = await world.enqueue()
    async with world.hold(locked):
        assert await world.a.claim(not_tasks=["u"]) == []
        assert [job.id for job in await world.a.claim()] == [named]
    assert [job.id for job in await world.a.claim()] == [locked]


async def test_nobody_claims_without_a_row_or_in_an_epoch_before(world: World):
    await world.enqueue()
    assert await world.c.claim() == []
    await world.a.store.new_epoch(world.a.id, world.a.token, 2)
    assert await world.a.claim() == []
    world.a.epoch = 2
    assert len(await world.a.claim()) == 1


async def test_what_nobody_was_told_of_goes_back_without_an_attempt(world: World):
    known = await world.claimed()
    [unknown] = await world.enqueue()
    await world.a.claim()
    others = await world.claimed(world.b)
    late = world.a.store.give_back_unknown(world.a.id, 2, [])
    assert await late == 0, "of another epoch: it does not know what was claimed since"
    assert await world.a.store.give_back_unknown(world.a.id, 1, [known.claim_token]) == 1
    [again] = await world.b.claim()
    assert (again.id, again.attempt) == (unknown, 1)
    assert await world.state(known.id) == await world.state(others.id) == "running"


async def test_only_the_own_claim_is_given_back_and_sleepers_are_woken(world: World):
    claimed = await world.claimed()
    await world.b.store.set_sleeping(world.b.id, ["default"])
    await world.heard()
    give_back = world.a.store.give_back
    assert await give_back(world.b.id, [(claimed.id, claimed.claim_token)]) == 0
    assert await give_back(world.a.id, [(claimed.id, claimed.claim_token + 1)]) == 0
    assert await give_back(world.a.id, [(claimed.id, claimed.claim_token)]) == 1
    assert await world.heard() == ["q:default"]


async def test_start_marks_only_the_own_claim(world: World):
    claimed = await world.claimed()
    start = world.a.store.start
    assert not await start(world.a.id, claimed.id, claimed.claim_token + 1, world.now)
    assert not await start(world.b.id, claimed.id, claimed.claim_token, world.now)
    assert await start(world.a.id, claimed.id, claimed.claim_token, at(1))
    assert (await world.get(claimed.id)).started_at == at(1)


async def test_progress_is_the_claims_and_brings_the_cancel(world: World):
    claimed = await world.claimed()
    args = (claimed.id, claimed.claim_token, 0.5, "half")
    assert await world.b.store.progress(world.b.id, *args) is None
    assert await world.a.store.progress(world.a.id, *args) is False
    record = await world.get(claimed.id)
    assert (record.progress, record.progress_note) == (0.5, "half")
    await world.b.store.cancel(claimed.id, "why", world.now)
    assert await world.a.store.progress(world.a.id, *args) is True
    async with world.hold(claimed.id):
        more = (claimed.id, claimed.claim_token, 0.9, "more")
        assert await world.a.store.progress(world.a.id, *more) is True
    assert (await world.get(claimed.id)).progress == 0.5
    await world.a.ack(claimed)
    record = await world.get(claimed.id)
    assert (record.state, record.progress, record.progress_note) == ("completed", 0.5, "half")


# -- acknowledged ---------------------------------------------------------------------------------
async def test_a_completed_job_is_kept_with_its_result(world: World):
    claimed = await world.claimed()
    acked = await world.a.ack(claimed, Decision(State.COMPLETED, result='{"x":1}'))
    assert acked.written == {claimed.id} and not acked.locked
    record = await world.get(claimed.id)
    assert (record.state, record.result, record.attempt) == ("completed", {"x": 1}, 1)
    assert record.started_at == at(-0.5) and record.completed_at == world.now
    assert record.claim_token == claimed.claim_token


async def test_an_error_is_kept_apart_from_its_traceback_and_from_a_reason(world: World):
    claimed = await world.claimed()
    failed = Decision(State.RETRYABLE, error="KeyError: 1", traceback="Traceback …")
    await world.a.ack(claimed, failed)
    record = await world.get(claimed.id)
    assert (record.last_error, record.traceback) == ("KeyError: 1", "Traceback …")
    [attempt] = await world.reports.attempts(claimed.id, 9)
    assert (attempt.error, attempt.traceback) == (record.last_error, record.traceback)
    store = world.a.store
    assert await store.cancel(claimed.id, "not needed", world.now) == "waiting"
    record = await world.get(claimed.id)
    assert (record.last_error, record.reason, record.traceback) == (None, "not needed", None)
    assert await store.retry(claimed.id, world.now) == "finished"
    record = await world.get(claimed.id)
    assert (record.last_error, record.reason, record.traceback) == (None, None, None)
    [again] = await world.a.claim()
    await world.a.ack(again, failed)
    assert await store.retry(claimed.id, world.now) == "waiting"
    [again] = await world.a.claim()
    await world.a.ack(again)
    record = await world.get(claimed.id)
    assert record.state == "completed"
    assert (record.last_error, record.reason, record.traceback) == (None, None, None)


async def test_without_history_nothing_is_kept_but_failures(world: World):
    claimed = await world.claimed(history=False)
    await world.a.ack(claimed)
    assert await world.a.store.get(claimed.id) is None
    failed = await world.claimed(history=False)
    await world.a.ack(failed, Decision(State.DISCARDED, error="no"))
    record = await world.get(failed.id)
    assert (record.state, record.last_error) == ("discarded", "no")


async def test_a_late_outcome_changes_nothing(world: World):
    claimed = await world.claimed()
    assert not (await world.b.ack(claimed)).written
    assert not (await world.a.ack(claimed, token=claimed.claim_token + 1)).written
    assert await world.state(claimed.id) == "running"
    assert (await world.a.ack(claimed)).written
    assert not (await world.a.ack(claimed)).written


async def test_a_failed_job_waits_for_its_next_attempt(world: World):
    claimed = await world.claimed()
    assert (await world.a.ack(claimed, RETRY)).written
    record = await world.get(claimed.id)
    assert (record.state, record.last_error, record.attempt) == ("retryable", "boom", 1)
    assert record.scheduled_for == at(7) and record.worker_id is None


async def test_a_snoozed_job_did_not_make_an_attempt(world: World):
    claimed = await world.claimed()
    await world.a.ack(claimed, SNOOZE)
    record = await world.get(claimed.id)
    assert (record.state, record.held_because, record.attempt) == ("scheduled", "snoozed", 0)


async def test_a_job_that_a_stop_interrupted_is_the_next_one(world: World):
    first = await world.claimed()
    snoozed = await world.claimed()
    [third] = await world.enqueue()
    await world.a.ack(snoozed, structs.replace(SNOOZE, run_in=0.0))
    await world.a.ack(first, Decision(State.SCHEDULED, counts=False, held_because="stopped"))
    await world.b.lead()
    assert (await world.b.stage())[0] == 2
    claimed = await world.a.claim()
    assert [job.id for job in claimed] == [first.id, third, snoozed.id]
    assert claimed[0].attempt == 1


async def test_a_job_that_should_be_cancelled_waits_no_more(world: World):
    claimed = await world.claimed(unique="k")
    assert await world.b.store.cancel(claimed.id, "why", world.now) == "running"
    assert (await world.a.ack(claimed, RETRY)).written
    record = await world.get(claimed.id)
    assert (record.state, record.last_error, record.reason) == ("cancelled", None, "why; boom")
    [again] = await world.enqueue(unique="k")
    assert again != claimed.id


async def test_a_locked_row_does_not_stop_the_others(world: World):
    held, free = await world.claimed(), await world.claimed()
    async with world.hold(held.id):
        acked = await world.a.ack(held)
        assert acked.locked == {held.id} and not acked.written
        assert (await world.a.ack(free)).written == {free.id}
    assert (await world.a.ack(held)).written == {held.id}


async def test_after_an_unknown_outcome_what_was_written_counts(world: World):
    for decision in (Decision(State.COMPLETED), RETRY):
        claimed = await world.claimed()
        await world.a.ack(claimed, decision)
        assert (await world.a.ack_again(claimed, decision)).written == {claimed.id}


async def test_after_an_unknown_outcome_what_was_written_counts_when_it_is_due_again(world: World):
    await world.a.lead()
    claimed = await world.claimed()
    await world.a.ack(claimed, RETRY)
    world.now = at(7)
    assert await world.a.stage() == (1, 0, None)
    assert (await world.a.ack_again(claimed, RETRY)).written, "under our token still"
    await world.b.claim()
    assert not (await world.a.ack_again(claimed, RETRY)).written, "another has it"


async def test_after_an_unknown_outcome_what_was_taken_is_refused(world: World):
    claimed = await world.claimed()
    await world.a.store.requeue(claimed.id, claimed.claim_token)
    assert not (await world.a.ack_again(claimed)).written, "it is available"
    [again] = await world.b.claim()
    assert not (await world.a.ack_again(claimed)).written, "another has it"
    await world.b.ack(again)
    assert not (await world.a.ack_again(claimed)).written, "another finished it"


async def test_after_an_unknown_outcome_what_was_taken_and_put_off_is_refused(world: World):
    claimed = await world.claimed(unique="k")
    await world.a.store.requeue(claimed.id, claimed.claim_token)
    await world.enqueue(unique="k", on_conflict="replace", run_in=60.0)
    assert (await world.get(claimed.id)).state == "scheduled"
    assert not (await world.a.ack_again(claimed)).written


async def test_after_an_unknown_outcome_a_locked_row_is_told(world: World):
    claimed = await world.claimed()
    async with world.hold(claimed.id):
        assert (await world.a.ack_again(claimed)).locked == {claimed.id}


async def test_a_completion_is_open_while_the_row_is_locked(world: World):
    claimed = await world.claimed()
    args = (world.a.id, claimed.id, claimed.claim_token)
    async with world.hold(claimed.id):
        assert await world.a.store.completion(*args) is Completion.OPEN
    assert await world.a.store.completion(*args) is Completion.ROLLED_BACK
    await world.a.ack(claimed)
    assert await world.a.store.completion(*args) is Completion.OVER


async def test_a_run_is_taken_away_by_its_token_unless_it_is_locked(world: World):
    claimed = await world.claimed()
    requeue = world.b.store.requeue
    assert await requeue(claimed.id, claimed.claim_token + 1) is None
    async with world.hold(claimed.id):
        assert await requeue(claimed.id, claimed.claim_token) is State.RUNNING
    assert await requeue(claimed.id, claimed.claim_token) is State.AVAILABLE
    assert await requeue(claimed.id, claimed.claim_token) is None
    [again] = await world.b.claim()
    assert again.attempt == 2, "the run counts"


async def test_a_run_whose_outcome_was_written_cannot_be_taken_away(world: World):
    """Its token still stands in the row, which waits; nothing runs, and nothing changes."""
    claimed = await world.claimed()
    await world.a.ack(claimed, Decision(State.RETRYABLE, run_in=5, error="no"))
    before = await world.get(claimed.id)
    assert await world.b.store.requeue(claimed.id, claimed.claim_token) is None
    assert await world.get(claimed.id) == before


async def test_keys_of_tasks_with_colons_in_their_names_are_apart(world: World):
    a, b = await world.enqueue(task="a:b", unique="c"), await world.enqueue(task="a", unique="b:c")
    assert await world.state(a[0]) == await world.state(b[0]) == State.AVAILABLE
