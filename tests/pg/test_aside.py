"""A statement that takes long has a connection of its own: claims do not wait behind it."""

from __future__ import annotations

import asyncio
from typing import Any

from leasehold.config import Settings
from leasehold.pg.pool import Pool
from tests.pg.bench import Bench
from tests.support.wait import until_async

WAITING = "select count(*) from pg_locks where not granted"
MINE = "select count(*) from pg_stat_activity where application_name = 'leasehold aside'"


async def test_a_statement_aside_keeps_nobody_waiting(
    bench: Bench, migrated: str, sql: Any
) -> None:
    async def count(query: str) -> int:
        return int((await sql(query))[0][0])

    async def gone() -> bool:
        return await count(MINE) == 1

    pool = Pool(Settings(dsn=migrated), "aside", 1)
    await bench.user.execute("lock table leasehold.history in access exclusive mode")
    slow = asyncio.ensure_future(
        pool.fetch("history/roll_up", {"since": None, "now": None}, aside=True)
    )
    await until_async(lambda: count(WAITING), what="it waits for the lock")
    await pool.fetch("job/wake", {"queues": ["default"]})
    assert not slow.done()
    await bench.user.rollback()
    await slow
    await until_async(gone, what="its connection is closed, the pool's own stays")
    await pool.close()
