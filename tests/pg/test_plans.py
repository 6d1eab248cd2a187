"""The statements that are sent all the time find their rows by an index.

Most of the time the statistics of ``job`` are those of a table in which nobody has a node, and
in which most rows wait: what runs now is news to them. Explained without the settings that sessions
of a node's give themselves: as behind a pooler.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from leasework.config import Settings
from leasework.model.filter import JobFilter
from leasework.pg.connection.session import Session
from leasework.pg.sql import statement
from tests.pg.bench import Bench
from tests.pg.claim_worker import jobs_of

WAITING = """
insert into leasework.job (id, queue, task_name, run_at, ready, held_because, payload)
select gen_random_uuid(), 'default', 't', now() + interval '1 day', false, 'scheduled', '{}'
from generate_series(1, 20000)
"""
READY = """
insert into leasework.job (id, queue, task_name, payload)
select gen_random_uuid(), 'default', 't', '{}' from generate_series(1, 2000)
"""

SCHEDULES = """
insert into leasework.schedule
    (app, name, spec, described, task_name, job, missed, grace_seconds, release, next_at)
select 'shop', n, '{}', 'd', 't', '{}', 'all', 1, '1', now() + n * interval '1 s'
from generate_series(1, 5000) n
"""


async def plan_of(sql: Any, name: str, params: dict[str, Any]) -> str:
    rows = await sql(f"explain {statement(name, 'leasework')}", params)
    return "\n".join(row[0] for row in rows)


def outcomes(node: UUID, jobs: list[tuple[UUID, int]]) -> dict[str, Any]:
    count = len(jobs)
    return {
        "node": node,
        "ids": [job for job, _ in jobs],
        "tokens": [token for _, token in jobs],
        "results": [None] * count,
        "ran": [0.1] * count,
        "states": ["completed"] * count,
        "run_in": [0.0] * count,
        "errors": [None] * count,
        "tracebacks": [None] * count,
        "fingerprints": [],
        "logs": [],
        "counts": [True] * count,
        "held": [None] * count,
        "waits": [None] * count,
        "now": None,
    }


@pytest.fixture
async def stale(bench: Bench, sql: Any) -> list[tuple[UUID, int]]:
    """200 claims of which the statistics know nothing: (job, token)."""
    await sql(WAITING)
    await sql(READY)
    await sql("analyze leasework.job")
    jobs = await bench.store.claim(bench.node, 1, {"default": 200}, [], None)
    return [(job.id, job.claim_token) for job in jobs]


@pytest.mark.parametrize("name", ["ack", "ack_completed"])
async def test_outcomes_find_their_rows_by_key(
    bench: Bench, sql: Any, stale: list[tuple[UUID, int]], name: str
) -> None:
    plan = await plan_of(sql, f"job/{name}", outcomes(bench.node, stale))
    held = plan[plan.index("CTE held") : plan.index("CTE gone")]
    assert "Index Scan using job_pkey" in held, plan
    assert "Seq Scan on job" not in held, plan


async def test_a_claim_finds_its_rows_by_their_order(
    bench: Bench, stale: list[tuple[UUID, int]]
) -> None:
    """In the function, of which a plan says nothing: by what its transaction read."""
    params = bench.claim_params(limit=100)
    cursor = await bench.user.execute(statement("job/claim", "leasework"), params)
    assert len(jobs_of(await cursor.fetchall())) == 100
    cursor = await bench.user.execute(
        "select seq_tup_read, idx_tup_fetch from pg_stat_xact_user_tables"
        " where relid = 'leasework.job'::regclass"
    )
    [(scanned, found)] = await cursor.fetchall()
    assert scanned == 0 and 100 <= found < 1000


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


async def test_running_jobs_are_listed_without_reading_the_jobs_that_wait(
    bench: Bench, sql: Any, stale: list[tuple[UUID, int]]
) -> None:
    await sql(READY.replace("2000", "40000"))
    params = {**JobFilter(state="running").params(), "nodes": None, "after": UUID(int=0)}
    params.update(limit=1000, scan=1_000_000)
    cursor = await bench.user.execute(statement("web/jobs_running", "leasework"), params)
    [(cut, _, ids)] = await cursor.fetchall()
    assert len(ids) == len(stale) and not cut
    cursor = await bench.user.execute(
        "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables"
        " where relid = 'leasework.job'::regclass"
    )
    [(read,)] = await cursor.fetchall()
    assert read < 15_000, "a claim notes how far it went ten thousand seats ahead"


@pytest.mark.parametrize("name", ["ack", "ack_completed"])
async def test_the_outcome_of_one_job_is_not_planned_each_time(
    migrated: str, sql: Any, name: str
) -> None:
    """To plan it costs more than to carry it out. Looked at after a backlog: its index is larger
    than an empty table's, and the plan for one job would seem to be worth its time."""
    await sql(READY.replace("2000", "30000"))
    await sql("analyze leasework.job")
    await sql("delete from leasework.job")
    await sql("vacuum leasework.job")
    await sql(READY.replace("2000", "1"))
    session = await Session.open(Settings(dsn=migrated), "work")
    for _ in range(20):
        params = outcomes(uuid4(), [(uuid4(), 1)])
        await session.fetch_fast(f"job/{name}", params, 5.0, lambda: None)
    cursor = await session.connection.execute(
        "select generic_plans, custom_plans from pg_prepared_statements"
        " where statement like '%gone%'"
    )
    [(kept, planned)] = await cursor.fetchall()
    await session.close()
    assert kept > 0 and planned <= 5


async def test_the_next_moment_is_found_without_reading_all_schedules(
    migrated: str, sql: Any
) -> None:
    """The leader looks after each batch of ticks."""
    await sql(SCHEDULES)
    await sql("analyze leasework.schedule")
    params = {"app": "shop", "now": None, "without": "[]"}
    plan = await plan_of(sql, "schedule/next", params)
    assert "Seq Scan" not in plan and "using schedule_next" in plan, plan
