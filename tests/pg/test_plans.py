"""The statements that are sent all the time find their rows by an index.

Most of the time the statistics of ``job`` are those of a table in which nobody has a node, and
in which most rows wait: what runs now is news to them.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from leasehold.config import Settings
from leasehold.model.job import EVERYTHING
from leasehold.pg.sql import statement
from leasehold.pg.store import PgStore
from tests.pg.bench import Bench
from tests.support.wait import until_async

WAITING = """
insert into leasehold.job (id, queue, task_name, run_at, ready, held_because, payload)
select gen_random_uuid(), 'default', 't', now() + interval '1 day', false, 'scheduled', '{}'
from generate_series(1, 20000)
"""
READY = """
insert into leasehold.job (id, queue, task_name, payload)
select gen_random_uuid(), 'default', 't', '{}' from generate_series(1, 2000)
"""


async def plan_of(sql: Any, name: str, params: dict[str, Any]) -> str:
    rows = await sql(f"explain {statement(name, 'leasehold')}", params)
    return "\n".join(row[0] for row in rows)


@pytest.fixture
async def stale(bench: Bench, sql: Any) -> list[tuple[UUID, int]]:
    """200 claims of which the statistics know nothing: (job, token)."""
    await sql(WAITING)
    await sql(READY)
    await sql("analyze leasehold.job")
    jobs = await bench.store.claim(bench.node, 1, "default", [], 200, None)
    return [(job.id, job.claim_token) for job in jobs]


@pytest.mark.parametrize("name", ["ack", "ack_completed"])
async def test_outcomes_find_their_rows_by_key(
    bench: Bench, sql: Any, stale: list[tuple[UUID, int]], name: str
) -> None:
    count = len(stale)
    params = {
        "node": bench.node,
        "ids": [job for job, _ in stale],
        "tokens": [token for _, token in stale],
        "results": [None] * count,
        "ran": [0.1] * count,
        "states": ["completed"] * count,
        "run_in": [0.0] * count,
        "errors": [None] * count,
        "counts": [True] * count,
        "held": [None] * count,
        "now": None,
    }
    plan = await plan_of(sql, f"job/{name}", params)
    held = plan[plan.index("CTE held") : plan.index("CTE gone")]
    assert "Index Scan using job_pkey" in held, plan
    assert "Seq Scan on job" not in held, plan


async def test_a_claim_finds_its_rows_by_their_order(
    bench: Bench, sql: Any, stale: list[tuple[UUID, int]]
) -> None:
    claim = {"epoch": 1, "queue": "default", "not_tasks": [], "limit": 500, "now": None}
    params = {"node": bench.node, "unsettled": 2.0, **claim, **EVERYTHING._asdict()}
    plan = await plan_of(sql, "job/claim", params)
    assert plan.count("Index Scan using job_ready") == 2 and "Sort" not in plan, plan
    assert "Seq Scan on job" not in plan, plan


async def test_a_rescue_does_not_read_the_jobs_that_wait(
    bench: Bench, sql: Any, stale: list[tuple[UUID, int]]
) -> None:
    plan = await plan_of(
        sql,
        "job/rescue",
        {"nodes": [bench.node], "max_crashes": 3, "limit": 500, "now": None},
    )
    lost = plan[plan.index("CTE lost") : plan.index("CTE back")]
    assert "job_ready" in lost and "Seq Scan on job" not in lost, plan


@pytest.mark.parametrize("running", [0, 20])
async def test_a_burst_after_a_quiet_time_is_not_read_by_each_claim(
    migrated: str, sql: Any, running: int
) -> None:
    """Analyzed when next to nothing was there, or only what ran; then there is much."""
    store = PgStore(Settings(dsn=migrated), "work")
    async with await psycopg.AsyncConnection.connect(migrated) as user:
        bench = await Bench.make(store, user)
        for _ in range(running):
            await bench.claimed()
        await sql("vacuum analyze leasehold.job")
        for _ in range(12):  # each statement comes to its lasting plan
            await bench.ack(await bench.claimed())
        await sql(READY.replace("2000", "30000"))
        for _ in range(4):
            jobs = await bench.claim(100)
            assert len(jobs) == 100
            assert len((await bench.ack(*jobs)).written) == 100
    scanned, found = await rows_read(store, sql)
    assert scanned == 0 and found < 3_000


async def rows_read(store: PgStore, sql: Any) -> tuple[int, int]:
    """Of the table of jobs, by all that have ended: by scans of it, and by an index."""
    assert store.facts
    pid = store.facts.backend_pid
    await store.close()  # only then are they known to be counted

    async def gone() -> bool:
        return not await sql("select 1 from pg_stat_activity where pid = %(pid)s", {"pid": pid})

    await until_async(gone)
    [(scanned, found)] = await sql(
        "select seq_tup_read, (select sum(idx_tup_read) from pg_stat_user_indexes i"
        " where i.relid = t.relid) from pg_stat_user_tables t where relid = 'leasehold.job'::regclass"
    )
    return int(scanned), int(found)
