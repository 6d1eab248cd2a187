"""A transaction held open elsewhere keeps every finished job's row; claims pass them by."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from leasehold.model.job import EVERYTHING, UNSETTLED_SECONDS, Mark
from leasehold.pg.sql import statement
from leasehold.services.low_water import LowWater
from tests.pg.bench import Bench

OLD = """
insert into leasehold.job (id, queue, task_name, payload, run_at)
select gen_random_uuid(), 'default', 't', '{}', now() - interval '1 hour' + n * interval '1 ms'
from generate_series(1, 3000) n
"""
Run = Callable[..., Awaitable[list[Any]]]


@pytest.fixture
async def holder(bench: Bench, migrated: str) -> Any:
    """A transaction that pins what a vacuum may remove."""
    async with await psycopg.AsyncConnection.connect(migrated) as connection:
        await connection.execute("set transaction isolation level repeatable read")
        await connection.execute("select pg_current_xact_id()")
        yield connection


async def pages_of_a_claim(sql: Run, bench: Bench, mark: Mark) -> int:
    params = {"node": bench.node, "epoch": 1, "queue": "default", "not_tasks": [], "limit": 10}
    params |= {"now": None, "unsettled": UNSETTLED_SECONDS, **mark._asdict()}
    text = f"explain (analyze, buffers, format json) {statement('job/claim', 'leasehold')}"
    [[[plan]]] = await sql(text, params)
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


async def test_beside_a_held_transaction_a_claim_from_the_mark_reads_few_pages(
    bench: Bench, holder: Any, sql: Run
) -> None:
    await sql(OLD)
    await sql("analyze leasehold.job")
    low_water = LowWater()
    while jobs := await bench.claim(500):
        low_water.looked(None, jobs, 500, 0.0, 0.0)
        await bench.ack(*jobs)
    await sql("vacuum leasehold.job")
    mark = low_water.start(0.5)
    assert mark is not None
    await bench.enqueue()
    everything = await pages_of_a_claim(sql, bench, EVERYTHING)
    await bench.enqueue()
    from_mark = await pages_of_a_claim(sql, bench, mark)
    assert everything > 1000, "the dead rows are in the way, or this test shows nothing"
    assert from_mark < 100
