"""A transaction held open elsewhere keeps every finished job's row; claims pass them by."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from leasehold import App
from leasehold.jobs.low_water import LowWater
from leasehold.model.job import EVERYTHING, LAST, UNSETTLED_SECONDS, Span
from leasehold.pg.sql import statement
from leasehold.pg.stores.store_jobs import places
from tests.pg.bench import Bench
from tests.support.pgbouncer import PgBouncer
from tests.support.wait import until_async

OLD = """
insert into leasehold.job (id, queue, task_name, payload, run_at)
select gen_random_uuid(), 'default', 't', '{}', now() - interval '1 hour' + n * interval '1 ms'
from generate_series(1, 3000) n
"""
DEAD = """
insert into leasehold.job (id, queue, task_name, payload, run_at)
select gen_random_uuid(), 'default', 't', '{}', now() - interval '1 hour' + n * interval '10 ms'
from generate_series(1, 300000) n
"""
LATE = """
insert into leasehold.job (id, queue, task_name, payload, run_at)
values (%s, 'default', 't', '{}', now() - interval '30 minutes')
"""
Run = Callable[..., Awaitable[list[Any]]]


@pytest.fixture
async def holder(bench: Bench, migrated: str) -> Any:
    """A transaction that pins what a vacuum may remove."""
    async with await psycopg.AsyncConnection.connect(migrated) as connection:
        await connection.execute("set transaction isolation level repeatable read")
        await connection.execute("select pg_current_xact_id()")
        yield connection


async def pages_of_a_claim(sql: Run, bench: Bench, span: Span) -> int:
    params = {"node": bench.node, "epoch": 1, "queue": "default", "not_tasks": [], "limit": 10}
    params |= {"now": None, "unsettled": UNSETTLED_SECONDS, **places(span)}
    text = f"explain (analyze, buffers, format json) {statement('job/claim', 'leasehold')}"
    [[[plan]]] = await sql(text, params)
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


async def test_beside_a_held_transaction_a_claim_reads_no_more_than_its_span(
    bench: Bench, holder: Any, sql: Run
) -> None:
    await sql(OLD)
    await sql("analyze leasehold.job")
    low_water, reached = LowWater(), []
    while jobs := await bench.claim(500):
        low_water.looked(EVERYTHING, jobs, 500, 0.0, 0.0)
        reached.append(low_water.next(0.5).begin)
        await bench.ack(*jobs)
    await sql("vacuum leasehold.job")
    await bench.enqueue()
    everything = await pages_of_a_claim(sql, bench, EVERYTHING)
    await bench.enqueue()
    from_mark = await pages_of_a_claim(sql, bench, Span(reached[-1], LAST))
    piece = await pages_of_a_claim(sql, bench, Span(reached[1], reached[2]))
    assert everything > 1000, "the dead rows are in the way, or this test shows nothing"
    assert from_mark < 100
    assert 100 < piece < everything / 3, "500 of the 3000 that were claimed"


async def test_a_job_that_became_visible_late_is_found_in_a_piece(
    bench: Bench, holder: Any, sql: Run
) -> None:
    """Beside a held transaction, of a queue whose claims take what they take."""
    await sql(DEAD)
    await sql("delete from leasehold.job")
    low_water, late, spans = LowWater(), uuid4(), []
    now, found = 0.0, []

    async def look() -> None:
        nonlocal now
        now += 0.25  # since the last one
        began, span = time.monotonic(), low_water.next(now)
        found[:] = await bench.store.claim(bench.node, 1, "default", [], 100, None, span)
        took = time.monotonic() - began
        low_water.looked(span, found, 100, now, now + took)
        now += took
        spans.append(span)

    while not low_water.slow:
        await bench.enqueue()
        await look()
        assert len(spans) < 1000, "300,000 dead rows should be slow to walk over"
    await sql(LATE, [late])
    spans.clear()
    while late not in [job.id for job in found]:
        await bench.enqueue()
        await look()
        assert len(spans) < 100, "once round in 20 seconds"
    assert EVERYTHING not in spans and spans[-1].end != LAST


async def test_behind_a_pooler_where_nobody_is_told_it_is_found_as_soon(
    pgbouncer: PgBouncer, holder: Any, sql: Run
) -> None:
    await sql(DEAD)
    await sql("delete from leasehold.job")
    app, ran = App(pgbouncer.dsn), []

    @app.task(name="t")
    async def t(name: str = "") -> None:
        ran.append(name)

    async with app.node() as node:
        low_water = node.executor.lanes["default"].low_water

        async def known_to_be_slow() -> bool:
            await t.enqueue()
            return low_water.slow

        await until_async(known_to_be_slow, 60, "300,000 dead rows to be slow to walk over")
        began = time.monotonic()
        await sql(LATE.replace("'{}'", """'{"name": "late"}'"""), [uuid4()])
        await until_async(lambda: "late" in ran, 30, "the late job to be found")
        assert low_water.slow, "or this test shows nothing"
        assert time.monotonic() - began < 15, "not once in 20 seconds"
    await app.close()
