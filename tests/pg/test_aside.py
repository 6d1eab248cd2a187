"""A statement that takes long has a connection of its own: claims do not wait behind it."""

from __future__ import annotations

import asyncio
from typing import Any

from leasework.config import Settings
from leasework.pg.connection.pool import Pool
from tests.pg.bench import Bench
from tests.support.wait import until_async

WAITING = "select count(*) from pg_locks where not granted"
ASIDE = "select count(*) from pg_stat_activity where application_name like 'leasework % aside'"
KEYS_USED = """
select sum(idx_scan) from pg_stat_user_indexes
where relname like 'job_done%' and indexrelname like '%pkey'
"""
DONE = """
insert into leasework.job_done (id, finished_at, queue, task_name, priority, run_at, created_at,
                                started_at, max_attempts, attempt, crashes, state, payload)
select gen_random_uuid(), now() - interval '2 minutes', 'default', 't', 0, now(), now(), now(),
       5, 1, 0, 'completed', '{}'
from generate_series(1, 10000)
"""


async def test_a_statement_aside_keeps_nobody_waiting(
    bench: Bench, migrated: str, sql: Any
) -> None:
    async def count(query: str) -> int:
        return int((await sql(query))[0][0])

    async def gone() -> bool:
        return await count(ASIDE) == 0

    pool = Pool(Settings(dsn=migrated), "work", 1)
    await bench.user.execute("lock table leasework.history in access exclusive mode")
    slow = asyncio.ensure_future(
        pool.fetch("history/roll_up", {"since": None, "now": None}, aside=True)
    )
    await until_async(lambda: count(WAITING), what="it waits for the lock")
    await pool.fetch("job/wake", {"queues": ["default"]})
    assert not slow.done() and await count(ASIDE) == 1
    await bench.user.rollback()
    await slow
    await until_async(gone, what="its connection is closed")
    await pool.close()


async def test_a_roll_up_is_aside_where_the_planner_is_free(bench: Bench, sql: Any) -> None:
    """A node's own sessions may only read an index in order: all of the day's, for its minute."""

    async def count(query: str) -> int:
        return int((await sql(query))[0][0] or 0)

    async def gone() -> bool:
        return await count(ASIDE) == 0

    await sql(DONE)
    await sql("vacuum analyze leasework.job_done")
    before = await count(KEYS_USED)
    await bench.user.execute("lock table leasework.history in access exclusive mode")
    rolled = asyncio.ensure_future(bench.store.roll_up(None, None))
    await until_async(lambda: count(WAITING), what="it waits for the lock")
    assert await bench.claim() == []
    assert not rolled.done()
    await bench.user.rollback()
    await rolled
    await until_async(gone, what="its connection is closed, and what it read is counted")
    assert await count(KEYS_USED) == before
