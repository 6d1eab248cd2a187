"""The queue through a node in this process: what an application sees of its jobs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasework import App, Cancel, Context, Discard, Snooze, SyncContext
from leasework.errors import (
    BadJob,
    JobCancelled,
    JobFailed,
    JobNotFound,
    Unavailable,
    UniqueConflict,
)
from leasework.model.backoff import Backoff
from leasework.model.job import JobRecord
from leasework.model.states import State
from leasework.store.store import Store
from tests.support.wait import forever, until_async

Sql = Callable[..., Awaitable[list[Any]]]
AT_ONCE = Backoff(base=0, jitter=0)


async def reaches(app: App, job: Any, state: State) -> JobRecord:
    async def there() -> JobRecord | None:
        record = await app.get(job.id)
        return record if record.state is state else None

    found = await until_async(there, what=f"{state}")
    assert found
    return found


async def test_a_job_counts_as_created_although_the_first_answer_was_lost(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue = Store.enqueue

    async def loses_the_first_answer(
        self: Any, jobs: Any, most: int, retried: bool, now: Any
    ) -> Any:
        answers = await enqueue(self, jobs, most, retried, now)
        if not retried:
            raise Unavailable("the connection was lost", sent=True)
        return answers

    monkeypatch.setattr(Store, "enqueue", loses_the_first_answer)
    send = app.task(name="send")(lambda: None)
    first = await send.using(unique="k").enqueue()
    again = await send.using(unique="k").enqueue()
    many = await app.enqueue_many([send.job(), send.using(unique="k").job()])
    assert [job.created for job in (first, again, *many)] == [True, False, True, False]
    assert again.id == many[1].id == first.id


# -- results ---------------------------------------------------------------------------------------
async def test_a_job_runs_and_its_result_is_there(app: App) -> None:
    @app.task()
    async def add(a: int, b: int = 2) -> dict[str, Any]:
        return {"sum": a + b, "text": "☃"}

    async with app.node():
        job = await add.enqueue(a=1)
        assert await job.wait(60) == {"sum": 3, "text": "☃"}
    record = await job.get()
    assert record.state is State.COMPLETED and record.attempt == 1 and record.last_error is None
    assert record.created_at <= record.started_at <= record.completed_at  # type: ignore[operator]


# -- order and time --------------------------------------------------------------------------------
async def test_small_priorities_run_first_and_equals_in_their_order(app: App) -> None:
    ran: list[str] = []

    @app.task()
    async def note(name: str) -> None:
        ran.append(name)

    requests = [
        note.using(priority=5).job(name="later"),
        note.job(name="a"),
        note.job(name="b"),
        note.using(priority=-5).job(name="first"),
    ]
    jobs = await app.enqueue_many(requests)
    async with app.node(queues={"default": 1}):
        await asyncio.gather(*[job.wait(60) for job in jobs])
    assert ran == ["first", "a", "b", "later"]


async def test_a_delayed_job_waits_for_its_time(app: App) -> None:
    @app.task()
    async def late(ctx: Context) -> str:
        return ctx.scheduled_for.isoformat()

    due = (datetime.now(UTC) + timedelta(seconds=2)).replace(microsecond=0)  # more than one ahead
    job = await late.using(run_at=due).enqueue()
    far = await late.using(run_in=3600).enqueue()
    assert (await job.get()).state is State.SCHEDULED, "nobody stages it yet"
    async with app.node():
        assert await job.wait(60) == due.isoformat()
        record = await far.get()
    assert (await job.get()).started_at >= due  # type: ignore[operator]
    assert record.state is State.SCHEDULED and record.held_because == "scheduled"
    assert 3500 < (record.scheduled_for - record.created_at).total_seconds() <= 3600


async def test_queues_run_beside_each_other(app: App) -> None:
    together = threading.Barrier(2)

    @app.task(queue="left")
    def left() -> None:
        together.wait(60)

    @app.task(queue="right")
    def right() -> None:
        together.wait(60)

    async with app.node(queues={"left": 1, "right": 1}):
        jobs = [await left.enqueue(), await right.enqueue()]
        await asyncio.gather(*[job.wait(60) for job in jobs])


# -- unique keys -----------------------------------------------------------------------------------
async def test_a_key_is_held_until_its_job_has_finished(app: App) -> None:
    @app.task()
    async def work(n: int = 0) -> int:
        return n

    first = await work.using(unique="k").enqueue(n=1)
    again = await work.using(unique="k").enqueue(n=2)
    other = await work.using(unique="another").enqueue(n=3)
    assert (first.created, again.created, other.created) == (True, False, True)
    assert again.id == first.id
    async with app.node():
        assert await again.wait(60) == 1
        free = await work.using(unique="k").enqueue(n=4)
        assert free.created and await free.wait(60) == 4


@pytest.mark.parametrize("end", ["cancel", "discard", "complete"])
async def test_a_key_is_free_however_its_job_ended(app: App, end: str) -> None:
    @app.task()
    async def work() -> Any:
        return {"cancel": Cancel("no"), "discard": Discard("no"), "complete": 1}[end]

    async with app.node():
        job = await work.using(unique="k").enqueue()
        await until_async(lambda: finished(app, job))
        assert (await work.using(unique="k").enqueue()).created
    waiting = await work.using(unique="w").enqueue()
    await waiting.cancel()
    assert (await work.using(unique="w").enqueue()).created


async def finished(app: App, job: Any) -> bool:
    return (await app.get(job.id)).completed_at is not None


async def test_a_key_is_not_free_while_its_job_is_tried_again(app: App) -> None:
    @app.task(backoff=Backoff(base=3600, longest=3600))
    async def fails() -> None:
        raise LookupError

    async with app.node():
        job = await fails.using(unique="k").enqueue()
        await reaches(app, job, State.RETRYABLE)
        assert not (await fails.using(unique="k").enqueue()).created


async def test_a_key_can_be_held_for_longer_than_its_job(app: App, sql: Sql) -> None:
    @app.task()
    async def work() -> None: ...

    async with app.node():
        job = await work.using(unique="k", unique_for=3600).enqueue()
        await job.wait(60)
        again = await work.using(unique="k", unique_for=3600).enqueue()
        assert not again.created and again.id == job.id
        await sql("update leasework.job_key set held_until = now() - interval '1 second'")
        assert (await work.using(unique="k", unique_for=3600).enqueue()).created


async def test_a_conflict_can_raise(app: App) -> None:
    @app.task()
    async def work() -> None: ...

    await work.using(unique="k").enqueue()
    with pytest.raises(UniqueConflict, match="holds the unique key"):
        await work.using(unique="k", on_conflict="raise").enqueue()
    with pytest.raises(UniqueConflict):
        await app.enqueue_many([work.job(), work.using(unique="k", on_conflict="raise").job()])
    assert len(await app.jobs()) == 1
    with pytest.raises(BadJob, match="Did you mean 'replace'"):
        work.using(unique="k", on_conflict="replac").job()


async def test_a_conflict_can_replace_a_waiting_job_but_not_a_running_one(app: App) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.task()
    async def work(n: int) -> int:
        started.set()
        await go_on.wait()
        return n

    first = await work.using(unique="k", run_in=3600).enqueue(n=1)
    async with app.node():
        newer = await work.using(unique="k", on_conflict="replace", priority=7).enqueue(n=2)
        assert newer.id == first.id and not newer.created
        await asyncio.wait_for(started.wait(), 20)  # it is due now
        assert (await first.get()).priority == 7
        too_late = await work.using(unique="k", on_conflict="replace").enqueue(n=3)
        assert too_late.id == first.id
        go_on.set()
        assert await first.wait(60) == 2


async def test_two_tasks_may_use_one_key(app: App) -> None:
    @app.task(name="a")
    async def a() -> None: ...

    @app.task(name="b")
    async def b() -> None: ...

    assert (await a.using(unique="k").enqueue()).created and (
        await b.using(unique="k").enqueue()
    ).created


# -- failing ---------------------------------------------------------------------------------------
async def test_a_failure_is_tried_again_after_its_backoff(app: App) -> None:
    @app.task(max_attempts=3, backoff=Backoff(base=60, jitter=0))
    async def fails(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise LookupError("no such user\x00\ud800")
        return f"attempt {ctx.attempt}"

    async with app.node():
        job = await fails.enqueue()
        record = await reaches(app, job, State.RETRYABLE)
        assert record.attempt == 1 and record.held_because == "retryable"
        assert record.last_error == "LookupError: no such user\\0\\ud800"
        assert record.traceback and "raise LookupError" in record.traceback
        wait = record.scheduled_for - datetime.now(UTC)
        assert timedelta(seconds=50) < wait <= timedelta(seconds=60)
        assert await app.retry(job.id)
        assert await job.wait(60) == "attempt 2"
        record = await app.get(job.id)
        assert (record.last_error, record.reason, record.traceback) == (None, None, None)


async def test_out_of_attempts_is_discarded_and_a_retry_begins_anew(app: App, sql: Sql) -> None:
    works = False

    @app.task(max_attempts=3, backoff=AT_ONCE)
    async def fails() -> str:
        if works:
            return "done"
        raise LookupError("no such user")

    async with app.node():
        job = await fails.enqueue()
        with pytest.raises(JobFailed, match=r"discarded.*no such user"):
            await job.wait(60)
        record = await job.get()
        assert (record.attempt, record.state) == (3, State.DISCARDED)
        tries = await sql("select attempt, outcome from leasework.attempt order by 1")
        assert tries == [(1, "retryable"), (2, "retryable"), (3, "discarded")]
        works = True
        assert await app.retry(job.id)
        assert await job.wait(60) == "done"
    assert (await job.get()).attempt == 1


async def test_a_timeout_is_a_failure(app: App) -> None:
    ended: list[str] = []

    @app.task(timeout=0.1, max_attempts=1)
    async def slow() -> None:
        try:
            await forever()
        finally:
            ended.append("ended")

    @app.task(max_attempts=1)
    async def own() -> None:
        raise TimeoutError("from somewhere else")

    async with app.node():
        job, other = await slow.enqueue(), await own.enqueue()
        with pytest.raises(JobFailed, match=r"timeout of 0\.1 s"):
            await job.wait(60)
        with pytest.raises(JobFailed, match="from somewhere else"):
            await other.wait(60)
    assert ended == ["ended"]


async def test_a_thread_sees_its_timeout_and_its_result_counts(app: App) -> None:
    @app.task(timeout=0.1)
    def slow(ctx: SyncContext) -> str:
        while not ctx.cancelled:
            time.sleep(0.01)
        return "as far as I came"

    async with app.node():
        assert await (await slow.enqueue()).wait(60) == "as far as I came"


async def test_outcomes_that_a_handler_returns(app: App) -> None:
    @app.task()
    async def decides(ctx: Context, what: str) -> Any:
        match what:
            case "snooze":
                return Snooze(3600)
            case "cancel":
                return Cancel("not wanted \x00")
            case _:
                return Discard("cannot \ud800")

    async with app.node():
        snoozed = await reaches(app, await decides.enqueue(what="snooze"), State.SCHEDULED)
        assert (snoozed.attempt, snoozed.held_because) == (0, "snoozed")
        job = await decides.enqueue(what="cancel")
        with pytest.raises(JobCancelled, match="not wanted"):
            await job.wait(60)
        job = await decides.enqueue(what="discard")
        with pytest.raises(JobFailed, match=r"cannot \\ud800"):
            await job.wait(60)
        await app.retry(snoozed.id)  # due now; it snoozes again, and no run was counted
        await until_async(lambda: snoozed_again(app, snoozed))


async def snoozed_again(app: App, before: JobRecord) -> bool:
    now = await app.get(before.id)
    return now.scheduled_for > before.scheduled_for and now.attempt == 0


# -- cancel ----------------------------------------------------------------------------------------
async def test_a_waiting_job_is_cancelled_at_once(app: App) -> None:
    @app.task()
    async def work() -> None: ...

    for options in ({}, {"run_in": 60}):
        job = await work.using(**options).enqueue()
        assert await app.cancel(job.id, "changed my mind")
        record = await job.get()
        assert (record.state, record.last_error, record.reason) == (
            State.CANCELLED,
            None,
            "changed my mind",
        )
        with pytest.raises(JobCancelled, match="changed my mind"):
            await job.wait(60)
        assert not await job.cancel()
        assert await app.retry(job.id) and (await job.get()).state is State.AVAILABLE


async def test_a_running_handler_is_cancelled(app: App) -> None:
    @app.task()
    async def slow() -> None:
        await forever()

    @app.task()
    def thread(ctx: SyncContext) -> None:
        while not ctx.cancelled:
            time.sleep(0.01)

    @app.task()
    async def deaf() -> str:
        try:
            await forever()
        except asyncio.CancelledError:
            return "finished all the same"
        return ""

    async with app.node():
        for task in (slow, thread):
            job = await task.enqueue()
            await reaches(app, job, State.RUNNING)
            assert not await app.retry(job.id) and await job.cancel()
            with pytest.raises(JobCancelled, match="the worker ended it"):
                await job.wait(30)
        job = await deaf.enqueue()
        await reaches(app, job, State.RUNNING)
        await job.cancel()
        assert await job.wait(30) == "finished all the same"


async def test_a_job_that_fails_while_a_cancel_is_on_its_way_is_cancelled(
    app: App, sql: Sql
) -> None:
    @app.task()
    async def fails(ctx: Context) -> None:
        await sql("update leasework.job set cancel_requested = true where id = %s", [ctx.job_id])
        raise LookupError

    async with app.node():
        job = await fails.enqueue()
        with pytest.raises(JobCancelled, match="LookupError"):
            await job.wait(60)


# -- the rest --------------------------------------------------------------------------------------
async def test_without_history_nothing_is_left_of_a_completed_job(app: App, sql: Sql) -> None:
    @app.task(history=False, max_attempts=1)
    async def work(fail: bool = False) -> None:
        if fail:
            raise LookupError

    async with app.node():
        job = await work.using(unique="k").enqueue()
        await until_async(lambda: gone(app, job))
        assert (await work.using(unique="k").enqueue()).created
        with pytest.raises(JobFailed):  # a failure is kept
            await (await work.enqueue(fail=True)).wait(60)
    assert await sql("select state from leasework.jobs") == [("discarded",)]
    with pytest.raises(JobNotFound, match="once the transaction that enqueued it has committed"):
        await app.cancel(job.id)


async def gone(app: App, job: Any) -> bool:
    try:
        await app.get(job.id)
    except JobNotFound:
        return True
    return False


async def test_ten_thousand_jobs_go_in_by_copy_and_run_once_each(app: App, sql: Sql) -> None:
    ran: list[int] = []

    @app.task()
    async def note(i: int) -> None:
        ran.append(i)

    jobs = await app.enqueue_many([note.job(i=i) for i in range(10_000)])
    assert len({job.id for job in jobs}) == 10_000 and all(job.created for job in jobs)
    async with app.node(queues={"default": 500}):
        await until_async(lambda: len(ran) >= 10_000, 60, "10,000 runs")
    assert sorted(ran) == list(range(10_000))
    assert await sql("select state, count(*) from leasework.jobs group by 1") == [
        ("completed", 10_000)
    ]


async def test_jobs_with_all_kinds_of_options_go_in_together(app: App) -> None:
    @app.task(queue="q", priority=3, max_attempts=2, timeout=9)
    async def work(n: int = 0) -> None: ...

    moment = datetime(2030, 1, 1, tzinfo=UTC)
    requests = [work.job(n=i) for i in range(25)] + [
        work.using(run_at=moment, priority=1).job(),
        work.using(unique="k", queue="other").job(),
        work.using(unique="k").job(),
        work.using(run_in=60, max_attempts=9, history=False).job(),
    ]
    jobs = await app.enqueue_many(requests)
    assert [job.created for job in jobs] == [True] * 27 + [False, True]
    assert jobs[27].id == jobs[26].id
    records = {record.id: record for record in await app.jobs()}
    assert len(records) == 28
    at, keyed, later = (records[jobs[i].id] for i in (25, 26, 28))
    assert (at.scheduled_for, at.priority, at.state) == (moment, 1, State.SCHEDULED)
    assert (keyed.queue, keyed.state, keyed.max_attempts) == ("other", State.AVAILABLE, 2)
    assert (later.max_attempts, later.state) == (9, State.SCHEDULED)


async def test_an_enqueue_that_is_repeated_after_a_lost_answer_doubles_nothing(app: App) -> None:
    @app.task()
    async def work() -> int:
        return 1

    store, job_id = await app.store(), app.env.new_id()
    request = [(job_id, work.using(unique="k").job())]
    assert await store.enqueue(request, 1000, False, None) == [(job_id, True)]
    assert await store.enqueue(request, 1000, True, None) == [(job_id, False)]  # it waits still
    async with app.node():
        await until_async(lambda: finished_id(app, job_id))
        assert await store.enqueue(request, 1000, True, None) == [(job_id, False)]  # it is done
        plain = [(job_id, work.job())]
        assert await store.enqueue(plain, 1000, True, None) == [(job_id, False)]
    assert [record.id for record in await app.jobs()] == [job_id]


async def finished_id(app: App, job_id: Any) -> bool:
    return (await app.get(job_id)).state is State.COMPLETED


async def test_jobs_are_listed_by_what_they_are(app: App) -> None:
    @app.task(name="a", queue="x")
    async def a() -> None: ...

    @app.task(name="b")
    async def b() -> None: ...

    jobs = [await a.enqueue(), await b.using(run_in=60).enqueue(), await b.enqueue()]
    assert [r.id for r in await app.jobs()] == [job.id for job in reversed(jobs)]
    assert [r.id for r in await app.jobs(queue="x")] == [jobs[0].id]
    assert [r.id for r in await app.jobs(task="b", state="scheduled")] == [jobs[1].id]
    assert len(await app.jobs(limit=1)) == 1
    with pytest.raises(BadJob, match="Did you mean 'running'"):
        await app.jobs(state="runing")
    with pytest.raises(BadJob, match="limit"):
        await app.jobs(limit=0)
    for unknown in ("no uuid", "00000000-0000-0000-0000-000000000000"):
        for act in (app.get, app.cancel, app.retry):
            with pytest.raises(JobNotFound):
                await act(unknown)
