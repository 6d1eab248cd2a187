"""Two real sessions that want the same job at the same time.

Each test was seen to fail with its protection taken out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from leasework.errors import Conflict
from leasework.model.states import State
from leasework.store.jobs import Acked, Completion
from leasework.store.operation import Term
from tests.pg.bench import Bench

Sql = Callable[..., Awaitable[list[Any]]]
FAST = 4.0
"""Seconds: below the lock_timeout of our sessions, which is five."""


async def test_a_row_that_somebody_holds_stops_no_other_ack(bench: Bench) -> None:
    held = await bench.claimed()
    others = [await bench.claimed() for _ in range(3)]
    await bench.user.execute("update leasework.job set progress = 0.5 where id = %s", [held.id])
    async with asyncio.timeout(FAST):
        acked = await bench.ack(others[0], held, *others[1:])
    assert acked == Acked(frozenset(job.id for job in others), frozenset({held.id}))
    await bench.user.commit()
    assert await bench.ack(held) == Acked(frozenset({held.id}))
    assert await bench.state(held.id) is State.COMPLETED


@pytest.mark.parametrize("state", [State.COMPLETED, State.RETRYABLE])
async def test_an_ack_finds_rows_that_change_at_the_same_moment(
    bench: Bench, sql: Sql, state: State
) -> None:
    """A row that changed between the ack's snapshot and its lock has a version which a search by
    its place would not find: it would be reported as written and run for ever."""
    for _ in range(100):
        await bench.enqueue()
    jobs = {job.id: job for job in await bench.claim()}
    async with await psycopg.AsyncConnection.connect(bench.user.info.dsn, autocommit=True) as other:
        hammer = """do $$ begin loop
            update leasework.job set progress = random() where ready and node is not null;
            exit when not found; commit;
        end loop; end $$"""
        hammering = asyncio.create_task(other.execute(hammer))
        left = dict(jobs)
        async with asyncio.timeout(20):
            while left:
                acked = await bench.ack(*left.values(), state=state)
                assert acked.written | acked.locked == left.keys()
                left = {job_id: left[job_id] for job_id in acked.locked}
            await hammering  # it ends when nothing runs any more
    rows = await sql("select state, count(*) from leasework.jobs group by 1")
    assert rows == [(state, len(jobs))]


async def test_an_ack_meets_a_cancel_that_came_before_it(bench: Bench) -> None:
    job = await bench.claimed()
    assert await bench.store.cancel(job.id, "no more", None) == "running"
    await bench.ack(job, state=State.RETRYABLE)
    assert await bench.state(job.id) is State.CANCELLED


async def test_what_waits_for_no_named_reason_is_staged_though_nobody_knows_its_task(
    bench: Bench, sql: Sql
) -> None:
    job = await bench.enqueue(task="unheard-of", run_in=60.0)
    await sql("update leasework.job set held_because = null, run_at = now()")
    await sql("insert into leasework.fence (name, token) values ('app', 7)")
    staged = await bench.store.stage(Term("app", 7), 10, None)
    assert (staged.count, staged.held_on) == (1, 0)
    assert await bench.state(job) is State.AVAILABLE


async def test_an_ack_after_a_requeue_is_refused(bench: Bench) -> None:
    job = await bench.claimed()
    assert await bench.store.requeue(job.id, job.claim_token) is State.AVAILABLE
    assert await bench.ack(job) == Acked(frozenset())
    assert await bench.state(job.id) is State.AVAILABLE
    assert await bench.store.requeue(job.id, job.claim_token) is None


async def test_nothing_of_ours_waits_for_a_row_that_the_users_transaction_completes(
    bench: Bench,
) -> None:
    """While a handler's transaction is open, its job is left alone by each way that leads there."""
    job = await bench.claimed()
    me = (bench.node, job.id, job.claim_token)
    await bench.user.execute("delete from leasework.job where id = %s", [job.id])
    async with asyncio.timeout(FAST):
        assert await bench.store.progress(*me, 0.5, None) is False
        assert await bench.store.requeue(job.id, job.claim_token) is State.RUNNING
        assert await bench.store.completion(*me) is Completion.OPEN
        assert await bench.ack(job) == Acked(frozenset(), frozenset({job.id}))
        assert await bench.store.retry(job.id, None) == "running"
    await bench.user.rollback()
    assert await bench.store.completion(*me) is Completion.ROLLED_BACK
    assert await bench.store.progress(*me, 0.5, None) is False
    await bench.ack(job)
    assert await bench.store.completion(*me) is Completion.OVER
    assert await bench.store.progress(*me, 0.5, None) is None


async def test_a_cancel_waits_outside_the_database_for_a_row_that_somebody_holds(
    bench: Bench,
) -> None:
    job = await bench.claimed()
    await bench.user.execute("delete from leasework.job where id = %s", [job.id])
    cancel = asyncio.create_task(bench.store.cancel(job.id, "no more", None))
    async with asyncio.timeout(FAST):
        while (await bench.state(job.id)) is State.RUNNING and bench.store.pool.statements < 12:
            pass  # our one connection serves others meanwhile
    await bench.user.rollback()
    assert await cancel == "running"


async def test_a_cancel_of_a_row_that_stays_locked_says_so(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.user.execute("select 1 from leasework.job where id = %s for share", [job.id])
    with pytest.raises(Conflict, match="a transaction holds a lock on the job's row"):
        await bench.store.cancel(job.id, "no more", None)
    await bench.user.rollback()
    assert await bench.store.cancel(job.id, "no more", None) == "running"
