"""Steps and batches, in two real sessions at the same time.

Each test was seen to fail with its protection taken out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from leasework import App
from leasework.model.job import ClaimedJob, JobRequest
from leasework.model.states import State
from tests.pg.bench import Bench
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]
ENDS = "select ended from leasework.end_batches()"
BLOCKED = "select 1 where cardinality(pg_blocking_pids(%s)) > 0"


@pytest.fixture
async def bench(app: App, migrated: str) -> Any:
    async with await psycopg.AsyncConnection.connect(migrated) as user:
        yield await Bench.make(await app.store(), user)


async def gather(bench: Bench, parent: ClaimedJob) -> Any:
    jobs = [
        JobRequest(task="t", payload="{}").as_request(UUID(int=number), 1 << 20)
        for number in (1, 2)
    ]
    mine = (bench.node, parent.id, parent.claim_token)
    return await bench.store.gather(*mine, "gather", "gather", uuid4(), jobs, None)


async def gathered(bench: Bench, parent: ClaimedJob) -> Any:
    return await bench.store.gathered(bench.node, parent.id, parent.claim_token, "gather", None)


async def test_a_child_that_runs_again_before_its_result_is_recorded_is_waited_for(
    bench: Bench,
) -> None:
    """A record without it would fail its parent for good."""
    parent = await bench.claimed()
    await gather(bench, parent)
    good, bad = await bench.claim()
    await bench.ack(good)
    await bench.ack(bad, state=State.DISCARDED)
    assert await bench.store.end_batches(None) == (1, False)
    assert (await gather(bench, parent)).ended
    assert await bench.store.retry(bad.id, None) == "finished"
    assert await gathered(bench, parent) is False
    assert not (await gather(bench, parent)).ended
    assert await bench.store.end_batches(None) == (0, True)
    await bench.ack(*await bench.claim())
    assert await bench.store.end_batches(None) == (1, False)
    assert (await gather(bench, parent)).ended
    assert [row[1] for row in await gathered(bench, parent)] == ["completed", "completed"]


async def test_a_record_of_results_whose_answer_was_lost_is_repeated(bench: Bench) -> None:
    parent = await bench.claimed()
    await gather(bench, parent)
    await bench.ack(*await bench.claim())
    await bench.store.end_batches(None)
    first = await gathered(bench, parent)
    assert len(first) == 2
    assert await gathered(bench, parent) == first


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

        pid = ender.info.backend_pid
        ending = asyncio.create_task(ender.execute(ENDS))
        assert await until_async(lambda: sql(BLOCKED, [pid]), what="the end waits")
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

    job = JobRequest(task="t", payload="{}").as_request(uuid4(), 1 << 20)
    await bench.store.make_batch(batch, {"on_success": {"task": "good"}}, [job], None)
    await sql("update leasework.batch set made_at = now() + interval '1 minute'")
    [member] = await bench.claim()
    await bench.ack(member, state=State.DISCARDED)
    await stopped(bench, migrated, sql, run_again)
    assert (await app.get_batch(batch)).ended_at is None
    assert await sql("select 1 from leasework.job where task_name = 'good'") == []


async def test_a_batch_whose_call_finds_its_key_held_ends_later_and_calls(
    bench: Bench, sql: Sql
) -> None:
    """The call would be lost, as one that cannot be enqueued."""
    await bench.store.make_batch(uuid4(), {"on_done": CALL}, [], None)
    await bench.store.make_batch(uuid4(), {"on_done": {"task": "other"}}, [], None)
    await bench.user.execute("select leasework.enqueue(%s)", [json.dumps(CALL)])
    assert await bench.store.end_batches(None) == (1, True)
    await bench.user.rollback()
    assert await bench.store.end_batches(None) == (1, False)
    tasks = await sql("select task_name from leasework.job order by 1")
    assert tasks == [("other",), ("told",)]
