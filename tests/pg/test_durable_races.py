"""Steps, signals and batches in two real sessions at the same time.

Each test was seen to fail with its protection taken out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from leasework import App
from leasework.jobs.family import cancel_family
from leasework.model.job import ClaimedJob
from leasework.model.outcome import Decision, StepItem
from leasework.model.states import State
from leasework.pg.sql import statement
from leasework.store.jobs import Acked, AckItem
from leasework.store.limits import Asked
from leasework.store.store import Store
from tests.pg.bench import Bench
from tests.support.requests import job_request
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]
SIGNAL = "select leasework.send_signal(%s, %s, %s)"
FAR = 1e6
ENDS = "select ended from leasework.end_batches()"


@pytest.fixture
async def bench(app: App, migrated: str) -> AsyncIterator[Bench]:
    async with await psycopg.AsyncConnection.connect(migrated) as user:
        yield await Bench.make(await app.store(), user)


async def suspend(bench: Bench, job: ClaimedJob, because: str, waits: str) -> Acked:
    decision = Decision(State.SCHEDULED, FAR, counts=False, held_because=because, waits=waits)
    item = AckItem(job.id, job.claim_token, decision, 0.1)
    return await bench.store.ack(bench.node, [item], None)


async def wait_for(bench: Bench, job: ClaimedJob, seconds: float | None = None) -> Any:
    mine = (bench.node, job.id, job.claim_token)
    return await bench.store.wait_in_step(*mine, "go", "event", "go", seconds, None)


async def row(sql: Sql, job: UUID) -> Any:
    [found] = await sql(
        "select ready, held_because, node, attempt from leasework.job where id = %s", [job]
    )
    return found


AVAILABLE = (True, None, None, 0)


# -- signals ---------------------------------------------------------------------------------------
async def test_a_signal_before_the_suspend_is_seen_by_it(bench: Bench, sql: Sql) -> None:
    job = await bench.claimed()
    state = await wait_for(bench, job)
    assert state.open
    assert await bench.store.signal(job.id, "go", "1", None) == "kept"
    assert job.id in (await suspend(bench, job, "event", "event:go")).written
    [(run_at,)] = await sql("select run_at <= now() from leasework.job where id = %s", [job.id])
    assert run_at, "it continues at once"


async def test_a_signal_whose_transaction_is_open_holds_up_the_suspend(
    bench: Bench, sql: Sql
) -> None:
    job = await bench.claimed()
    await wait_for(bench, job)
    await bench.user.execute(SIGNAL, [job.id, "go", "1"])
    assert (await suspend(bench, job, "event", "event:go")).locked == {job.id}
    await bench.user.commit()
    assert (await suspend(bench, job, "event", "event:go")).written == {job.id}
    [(run_at,)] = await sql("select run_at <= now() from leasework.job where id = %s", [job.id])
    assert run_at


@pytest.mark.parametrize("because", ["event", "gather"])
async def test_a_suspend_that_looked_before_its_wait_ended_is_written_again(
    bench: Bench, sql: Sql, migrated: str, because: str
) -> None:
    """What it waits for commits between the snapshot of the acker's statement and its lock."""
    job = await bench.claimed()
    if because == "event":
        await wait_for(bench, job)
        waits = "event:go"
    else:
        waits = f"gather:{(await gathered(bench, job)).result}"
        await bench.ack(*await bench.claim())
    await sql(
        "create function public.looked(uuid) returns boolean language plpgsql volatile as $$ begin "
        "perform pg_advisory_xact_lock(4242); return true; end $$"
    )
    claimed = "j.id = a.id and j.claim_token = a.token and j.node = %(node)s\n                  for"
    text = statement("job/ack", "leasework")
    assert text.count(claimed) == 1
    text = text.replace(claimed, f"public.looked(a.id) and {claimed}")
    params = {
        "node": bench.node, "ids": [job.id], "tokens": [job.claim_token], "states": ["scheduled"],
        "run_in": [FAR], "errors": [None], "results": [None], "ran": [0.1], "counts": [False],
        "held": [because], "tracebacks": [None], "waits": [waits], "now": None, "fingerprints": [],
        "logs": [],
    }  # fmt: skip
    async with (
        await psycopg.AsyncConnection.connect(migrated) as gate,
        await psycopg.AsyncConnection.connect(migrated, autocommit=True) as acker,
    ):
        await gate.execute("select pg_advisory_xact_lock(4242)")
        cursor = asyncio.create_task(acker.execute(text.encode(), params))
        await until_async(lambda: blocked(sql, acker), what="the acker has its snapshot")
        if because == "event":
            assert await bench.store.signal(job.id, "go", "1", None) == "kept"
        else:
            assert await ended(bench.store) == 1
        await gate.commit()
        left = await (await cursor).fetchall()
    assert left == [(job.id, True)], "it is still ours, and not suspended"
    assert (await suspend(bench, job, because, waits)).written == {job.id}
    [(run_at,)] = await sql("select run_at <= now() from leasework.job where id = %s", [job.id])
    assert run_at


async def blocked(sql: Sql, session: psycopg.AsyncConnection[Any]) -> bool:
    pid = session.info.backend_pid
    [[found]] = await sql("select cardinality(pg_blocking_pids(%s)) > 0", [pid])
    return bool(found)


async def test_a_signal_after_the_suspend_makes_the_job_available(bench: Bench, sql: Sql) -> None:
    job = await bench.claimed()
    await wait_for(bench, job)
    await suspend(bench, job, "event", "event:go")
    assert await row(sql, job.id) == (False, "event", None, 0)
    assert await bench.store.signal(job.id, "go", "1", None) == "woken"
    assert await row(sql, job.id) == AVAILABLE
    assert await bench.store.signal(job.id, "go", "2", None) == "kept"


async def test_signals_to_one_job_wait_for_each_other(
    bench: Bench, sql: Sql, migrated: str
) -> None:
    job = await bench.claimed()
    await wait_for(bench, job)
    await suspend(bench, job, "event", "event:go")
    async with await psycopg.AsyncConnection.connect(migrated) as other:
        await bench.user.execute(SIGNAL, [job.id, "go", "1"])
        second = asyncio.create_task(other.execute(SIGNAL, [job.id, "go", "2"]))
        await until_async(lambda: blocked(sql, other), what="the second signal waits")
        await bench.user.commit()
        assert await (await second).fetchone() == ("kept",)
        await other.commit()
    [again] = await bench.claim()
    assert (await wait_for(bench, again)).result == {"payload": 1}
    assert await sql("select payload from leasework.inbox") == [(2,)]


async def test_a_signal_is_taken_by_the_live_claim_only(bench: Bench, sql: Sql) -> None:
    job = await bench.claimed()
    await bench.store.signal(job.id, "go", "1", None)
    await bench.store.give_back(bench.node, [(job.id, job.claim_token)])
    [again] = await bench.claim()
    assert await wait_for(bench, job) is None
    assert (await wait_for(bench, again)).result == {"payload": 1}
    assert await sql("select count(*) from leasework.inbox") == [(0,)]


async def test_a_wait_whose_time_is_over_stays_over(bench: Bench) -> None:
    job = await bench.claimed()
    state = await wait_for(bench, job, 0.0)
    assert (state.open, state.result) == (False, None)
    await bench.store.signal(job.id, "go", "1", None)
    assert (await wait_for(bench, job, 0.0)).result is None


# -- steps -----------------------------------------------------------------------------------------
async def recorded(bench: Bench, job: ClaimedJob, name: str = "a") -> bool:
    items = [StepItem(job.id, job.claim_token, name, "1", 0.1)]
    return (job.id, name) in await bench.store.record_steps(bench.node, items, None)


async def test_a_lost_claim_records_no_step(bench: Bench, sql: Sql) -> None:
    job = await bench.claimed()
    assert await recorded(bench, job)
    assert await recorded(bench, job), "a repetition finds its own"
    await bench.store.give_back(bench.node, [(job.id, job.claim_token)])
    assert not await recorded(bench, job, "b")
    [again] = await bench.claim()
    assert not await recorded(bench, job, "b")
    assert not await recorded(bench, again, "a"), "another claim has recorded it"
    assert await sql("select name, token from leasework.step") == [("a", job.claim_token)]


STEP = {"result": "1", "seconds": 0.1, "idle_ms": 10_000, "now": None}


async def test_nobody_takes_the_job_while_a_step_commits(bench: Bench, sql: Sql) -> None:
    job = await bench.claimed()
    params = {
        **STEP, "job": str(job.id), "node": str(bench.node), "token": job.claim_token,
        "name": json.dumps({"name": "a"}),
    }  # fmt: skip
    await bench.user.execute(statement("user/step", "leasework").encode(), params)
    taken = await bench.store.requeue(job.id, job.claim_token)
    assert taken is State.RUNNING, "its row is locked"
    await bench.user.commit()
    assert await bench.store.requeue(job.id, job.claim_token) is State.AVAILABLE
    params["name"] = json.dumps({"name": "b"})
    with pytest.raises(psycopg.Error, match="the claim was lost"):
        await bench.user.execute(statement("user/step", "leasework").encode(), params)
    await bench.user.rollback()
    assert await sql("select name from leasework.step") == [("a",)]


async def test_nobody_takes_the_job_while_it_takes_a_signal(bench: Bench, sql: Sql) -> None:
    job = await bench.claimed()
    await bench.store.signal(job.id, "go", "1", None)
    await bench.user.execute(
        "select * from leasework.wait_in_step(%s, %s, %s, 'go', 'event', 'go', null)",
        [job.id, job.claim_token, bench.node],
    )
    assert await bench.store.requeue(job.id, job.claim_token) is State.RUNNING
    await bench.user.rollback()
    assert await bench.store.requeue(job.id, job.claim_token) is State.AVAILABLE
    assert await sql("select count(*) from leasework.inbox") == [(1,)]


# -- batches ---------------------------------------------------------------------------------------
async def batch_of(bench: Bench, count: int = 1, **definition: Any) -> tuple[UUID, list[UUID]]:
    batch, jobs = uuid4(), [{"task": "t", "id": str(uuid4())} for _ in range(count)]
    made = await bench.store.make_batch(batch, definition, jobs, None)
    return batch, [job for job, _ in made]


async def ended(store: Store) -> int:
    return (await store.end_batches(None))[0]


async def gathered(bench: Bench, job: ClaimedJob, count: int = 1) -> Any:
    jobs = [{"task": "t", "priority": -1} for _ in range(count)]
    mine = (bench.node, job.id, job.claim_token)
    return await bench.store.gather(*mine, "parts", "gather", uuid4(), jobs, None)


async def test_a_batch_that_ends_before_its_parent_is_suspended_is_seen(
    bench: Bench, sql: Sql
) -> None:
    parent = await bench.claimed()
    state = await gathered(bench, parent)
    [child] = await bench.claim()
    await bench.ack(child)
    assert await ended(bench.store) == 1
    assert (await suspend(bench, parent, "gather", f"gather:{state.result}")).written
    [(due,)] = await sql("select run_at <= now() from leasework.job where id = %s", [parent.id])
    assert due
    again = await gathered(bench, parent)
    assert again is None, "the old claim makes nothing"


async def test_a_repeated_gather_makes_no_further_jobs(bench: Bench, sql: Sql) -> None:
    parent = await bench.claimed()
    first, second = await gathered(bench, parent, 3), await gathered(bench, parent, 3)
    assert first.result == second.result
    assert await sql("select count(*) from leasework.job where batch is not null") == [(3,)]
    await bench.store.give_back(bench.node, [(parent.id, parent.claim_token)])
    [again] = [job for job in await bench.claim() if job.id == parent.id]
    assert (await gathered(bench, again, 3)).result == first.result
    assert await sql("select count(*) from leasework.job where batch is not null") == [(3,)]


async def test_a_batch_that_ends_after_it_makes_its_parent_available(
    bench: Bench, sql: Sql
) -> None:
    parent = await bench.claimed()
    state = await gathered(bench, parent)
    await suspend(bench, parent, "gather", f"gather:{state.result}")
    [child] = await bench.claim()
    assert await ended(bench.store) == 0
    await bench.ack(child)
    assert await ended(bench.store) == 1
    assert await row(sql, parent.id) == AVAILABLE


async def test_two_processes_end_a_batch_once(bench: Bench, sql: Sql) -> None:
    await batch_of(bench, on_done="report")
    [job] = await bench.claim()
    await bench.ack(job)
    ends = await (await bench.user.execute("select ended from leasework.end_batches()")).fetchone()
    assert ends == (1,)
    assert await ended(bench.store) == 0, "it neither waits nor ends it again"
    await bench.user.commit()
    assert await ended(bench.store) == 0
    assert await sql("select task_name from leasework.job") == [("report",)]


async def test_a_locked_parent_holds_up_only_its_own_batch(bench: Bench, sql: Sql) -> None:
    parent = await bench.claimed()
    state = await gathered(bench, parent)
    await suspend(bench, parent, "gather", f"gather:{state.result}")
    other, _ = await batch_of(bench)
    await bench.ack(*await bench.claim())
    await bench.user.execute("select 1 from leasework.job where id = %s for update", [parent.id])
    assert await ended(bench.store) == 1
    assert (await bench.store.get_batch(other)).ended_at is not None  # type: ignore[union-attr]
    await bench.user.rollback()
    assert await ended(bench.store) == 1
    assert await row(sql, parent.id) == AVAILABLE


async def test_a_member_that_runs_again_keeps_an_open_batch_open(bench: Bench, sql: Sql) -> None:
    batch, [job] = await batch_of(bench, on_done="report")
    [claimed] = await bench.claim()
    await bench.ack(claimed, state=State.DISCARDED)
    await bench.store.retry(job, None)  # before the batch has ended
    assert await ended(bench.store) == 0
    [claimed] = await bench.claim()
    await bench.ack(claimed, state=State.DISCARDED)
    assert await ended(bench.store) == 1
    await bench.store.retry(job, None)  # after it
    [claimed] = [one for one in await bench.claim() if one.id == job]
    await bench.ack(claimed)
    assert await ended(bench.store) == 0
    assert await sql("select task_name from leasework.job") == [("report",)]
    view = await bench.store.get_batch(batch)
    assert view and (view.total, view.unfinished, view.failed) == (1, 0, 0)


# -- families --------------------------------------------------------------------------------------
async def test_a_job_that_is_being_cancelled_makes_no_jobs(bench: Bench, sql: Sql) -> None:
    parent = await bench.claimed()
    assert await bench.store.cancel(parent.id, "no", None) == "running"
    assert await gathered(bench, parent) is None
    assert await sql("select count(*) from leasework.job where batch is not null") == [(0,)]


async def test_a_job_whose_cancel_is_being_committed_makes_no_jobs(
    bench: Bench, sql: Sql, migrated: str
) -> None:
    parent = await bench.claimed()
    await bench.user.execute("select 1 from leasework.job where id = %s for update", [parent.id])
    await bench.user.execute("update leasework.job set cancel_requested = true")
    async with await psycopg.AsyncConnection.connect(migrated, autocommit=True) as maker:
        making = asyncio.create_task(
            maker.execute(
                "select * from leasework.gather(%s, %s, %s, 'parts', 'gather', %s, %s)",
                [parent.id, parent.claim_token, bench.node, uuid4(), '[{"task": "t"}]'],
            )
        )
        await until_async(lambda: blocked(sql, maker), what="it waits for the cancel")
        await bench.user.commit()
        assert await (await making).fetchall() == []
    assert await sql("select count(*) from leasework.job where batch is not null") == [(0,)]


async def test_a_cancel_finds_the_jobs_that_are_just_being_made(bench: Bench, sql: Sql) -> None:
    parent = await bench.claimed()
    await bench.user.execute(
        "select * from leasework.gather(%s, %s, %s, 'parts', 'gather', %s, %s)",
        [parent.id, parent.claim_token, bench.node, uuid4(), json.dumps([{"task": "t"}] * 3)],
    )
    cancel = asyncio.create_task(cancel_family(bench.store, parent.id, "no", None))
    # its first look finds the row locked
    [(flagged,)] = await sql("select cancel_requested from leasework.job where node is not null")
    assert not flagged
    await bench.user.commit()
    assert await cancel == "running"
    assert await sql("select count(*) from leasework.job where batch is not null") == [(0,)]
    assert await sql("select count(*) from leasework.job_done where state = 'cancelled'") == [(3,)]


async def test_a_suspended_job_gives_the_room_of_its_limits_back(bench: Bench, sql: Sql) -> None:
    await sql("insert into leasework.limits (name, concurrency) values ('vendor', 1)")
    jobs = await sql(
        "select id from leasework.enqueue(%s)",
        [json.dumps([{"task": "t", "limits": ["vendor"]}] * 2)],
    )

    async def claim() -> list[Any]:
        found = await bench.store.claim_limited(
            bench.node, 1, "default", Asked(5, [], "", 100, 0.5, {}), [], 0.0
        )
        return found.jobs

    [first] = await claim()
    assert await claim() == []
    await wait_for(bench, first)
    await suspend(bench, first, "event", "event:go")
    [second] = await claim()
    assert {first.id, second.id} == {job for [job] in jobs}
    await bench.store.signal(first.id, "go", "1", None)
    assert await row(sql, first.id) == (False, "limit", None, 0)
    assert await claim() == [], "the other one has the room"
    await bench.ack(second)
    assert [job.id for job in await claim()] == [first.id]


# -- jobs that run again, and keys that are held ---------------------------------------------------
async def two_children(bench: Bench, parent: ClaimedJob) -> Any:
    jobs = [job_request().as_request(UUID(int=number), 1 << 20) for number in (1, 2)]
    mine = (bench.node, parent.id, parent.claim_token)
    return await bench.store.gather(*mine, "gather", "gather", uuid4(), jobs, None)


async def results(bench: Bench, parent: ClaimedJob) -> Any:
    return await bench.store.gathered(bench.node, parent.id, parent.claim_token, "gather", None)


async def test_a_child_that_runs_again_before_its_result_is_recorded_is_waited_for(
    bench: Bench,
) -> None:
    """A record without it would fail its parent for good."""
    parent = await bench.claimed()
    await two_children(bench, parent)
    good, bad = await bench.claim()
    await bench.ack(good)
    await bench.ack(bad, state=State.DISCARDED)
    assert await bench.store.end_batches(None) == (1, False)
    assert (await two_children(bench, parent)).ended
    assert await bench.store.retry(bad.id, None) == "finished"
    assert await results(bench, parent) is False
    assert not (await two_children(bench, parent)).ended
    assert await bench.store.end_batches(None) == (0, True)
    await bench.ack(*await bench.claim())
    assert await bench.store.end_batches(None) == (1, False)
    assert (await two_children(bench, parent)).ended
    assert [row[1] for row in await results(bench, parent)] == ["completed", "completed"]


async def test_a_record_of_results_whose_answer_was_lost_is_repeated(bench: Bench) -> None:
    parent = await bench.claimed()
    await two_children(bench, parent)
    await bench.ack(*await bench.claim())
    await bench.store.end_batches(None)
    first = await results(bench, parent)
    assert len(first) == 2
    assert await results(bench, parent) == first


CALL = {"task": "told", "unique": "u"}
STOP = """
create function stop() returns trigger language plpgsql set lock_timeout = 0 as $$
begin perform pg_advisory_xact_lock(7); return null; end $$;
create trigger stop after update on leasework.batch for each row when (new.total = 0)
execute function stop();
"""


async def stopped(
    bench: Bench, migrated: str, sql: Sql, meanwhile: Callable[[], Awaitable[Any]]
) -> None:
    """End batches. After the first one's end, it is stopped until ``meanwhile`` is over."""
    await sql(STOP)
    await bench.store.make_batch(uuid4(), {}, [], None)
    async with await psycopg.AsyncConnection.connect(migrated, autocommit=True) as ender:
        await bench.user.execute("select pg_advisory_xact_lock(7)")

        ending = asyncio.create_task(ender.execute(ENDS))
        await until_async(lambda: blocked(sql, ender), what="the end waits")
        await meanwhile()
        await bench.user.rollback()
        await ending


async def test_a_job_that_runs_again_while_its_batch_ends_keeps_it_open(
    app: App, bench: Bench, migrated: str, sql: Sql
) -> None:
    """Its on_success would be enqueued, because nothing is known to have failed."""
    batch = uuid4()

    async def run_again() -> None:
        assert await bench.store.retry(member.id, None) == "finished"

    job = job_request().as_request(uuid4(), 1 << 20)
    await bench.store.make_batch(batch, {"on_success": {"task": "good"}}, [job], None)
    await sql("update leasework.batch set made_at = now() + interval '1 minute'")
    [member] = await bench.claim()
    await bench.ack(member, state=State.DISCARDED)
    await stopped(bench, migrated, sql, run_again)
    assert (await app.get_batch(batch)).ended_at is None
    assert await sql("select 1 from leasework.job where task_name = 'good'") == []


@pytest.mark.parametrize("count", [1, 150])
async def test_batches_whose_calls_find_their_key_held_end_later_and_stop_no_other(
    bench: Bench, sql: Sql, count: int
) -> None:
    """The calls would be lost, as those that cannot be enqueued."""
    for _ in range(count):
        await bench.store.make_batch(uuid4(), {"on_done": CALL}, [], None)
    await bench.store.make_batch(uuid4(), {"on_done": {"task": "other"}}, [], None)
    await bench.user.execute("select leasework.enqueue(%s)", [json.dumps(CALL)])
    assert await bench.store.end_batches(None) == (1, True)
    await bench.user.rollback()
    while (await bench.store.end_batches(None))[1]:
        pass
    tasks = await sql("select task_name from leasework.job order by 1")
    assert tasks == [("other",), ("told",)]
