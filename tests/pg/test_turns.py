"""Workers take turns at a queue. A claim that has to wait for its turn looks again afterwards."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from leasework.model.begins import Begins, Seen
from leasework.model.job import ClaimedJob
from leasework.pg.sql import statement
from leasework.store.jobs import claim_params
from tests.pg.bench import Bench
from tests.pg.claim_worker import TURN, Run, Worker, jobs_of
from tests.support.wait import until_async


async def test_a_worker_claims_though_another_has_the_turn_and_stands_still(
    bench: Bench, worker: Worker, sql: Run
) -> None:
    await sql(f"select pg_advisory_lock({TURN})")
    jobs = [await bench.enqueue() for _ in range(3)]
    assert await worker.ids() == jobs


async def test_a_claim_has_the_turn_at_its_queue_until_it_commits(bench: Bench, sql: Run) -> None:
    mine, others = await bench.enqueue(), f"select pg_try_advisory_xact_lock({TURN})"
    cursor = await bench.user.execute(statement("job/claim", "leasework"), bench.claim_params())
    assert jobs_of(await cursor.fetchall()) == [mine]
    assert await sql(others) == [(False,)]
    await bench.user.commit()
    assert await sql(others) == [(True,)]


WAITS = """
    select a.backend_xid from pg_locks l join pg_stat_activity a using (pid)
    where l.locktype = 'advisory' and not l.granted and l.pid = %s
"""
SOMEBODY_WAITS = """
    select 1 from pg_locks l join pg_stat_activity a using (pid)
    where l.locktype = 'advisory' and not l.granted and a.datname = current_database()
"""


async def test_a_claim_that_waits_for_its_turn_has_no_transaction_id(
    bench: Bench, sql: Run
) -> None:
    """It delays neither the death of its node nor the begins of other workers."""
    await bench.enqueue()
    await sql(f"select pg_advisory_lock({TURN})")
    text, params = statement("job/claim", "leasework"), bench.claim_params()
    found: list[Any] = []

    async def seen() -> bool:
        claim = asyncio.create_task(bench.user.execute(text, params))
        while not claim.done() and not found:
            found.extend(await sql(WAITS, [bench.user.info.backend_pid]))
        await claim
        await bench.user.rollback()
        return bool(found)

    await until_async(seen, 60, "a claim to wait for its turn")
    assert found == [(None,)]


async def test_a_more_urgent_job_that_comes_while_a_claim_waits_for_its_turn_goes_first(
    bench: Bench, worker: Worker, sql: Run
) -> None:
    async def first() -> bool:
        await bench.enqueue(priority=5)
        await bench.user.execute(f"select pg_advisory_xact_lock({TURN})")
        claim = asyncio.create_task(worker.claim(1))
        while not claim.done() and not await sql(SOMEBODY_WAITS):
            pass
        urgent = await bench.enqueue()
        await bench.user.commit()
        [job] = await claim
        await bench.ack(job, *await worker.claim(1))
        return job.id == urgent

    await until_async(first, 60, "the more urgent job to be claimed first")


async def test_what_a_claim_has_taken_does_not_wait_for_another_turn(
    bench: Bench, sql: Run
) -> None:
    jobs = [await bench.enqueue(queue=queue) for queue in ("a", "b")]
    await sql(f"select pg_advisory_lock({TURN.replace('default', 'b')})")
    text = statement("job/claim", "leasework")
    params = claim_params(bench.node, 1, {"a": 9, "b": 9}, [], None, Begins(time.monotonic))
    waits = "select pg_stat_get_xact_function_calls('leasework.advisory_lock'::regproc)"
    await bench.user.execute("set track_functions = 'all'")
    found = jobs_of(await (await bench.user.execute(text, params)).fetchall())
    assert found == jobs
    assert await (await bench.user.execute(waits)).fetchall() == [(None,)]


async def test_a_claim_that_has_waited_for_its_turn_begins_behind_what_others_claimed_meanwhile(
    bench: Bench, worker: Worker, sql: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, params = statement("job/claim", "leasework"), bench.claim_params(limit=1)
    seen: list[Seen] = []
    monkeypatch.setattr(worker.begins, "_note_seen", lambda queue, found: seen.append(found))

    async def behind() -> bool:
        await bench.enqueue()
        last = await bench.enqueue()
        [(seat,)] = await sql("select seat from leasework.job where id = %s", [last])
        other, *_ = await (await bench.user.execute(text, params)).fetchall()
        claim = asyncio.create_task(worker.claim())
        while not claim.done() and not await sql(SOMEBODY_WAITS):
            pass
        await bench.user.commit()
        [job] = await claim
        assert job.id == last
        await bench.ack(job, ClaimedJob(*other[:-1]))
        return seen[-1].first == seat

    await until_async(behind, 60, "a claim that finds the first job that is still available")
