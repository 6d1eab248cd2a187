"""A statement that takes long has a connection of its own: claims do not wait behind it."""

from __future__ import annotations

import asyncio
from typing import Any

from leasehold.config import Settings
from leasehold.pg.pool import Pool
from tests.pg.bench import Bench


async def test_a_statement_aside_keeps_nobody_waiting(
    bench: Bench, migrated: str, sql: Any
) -> None:
    pool = Pool(Settings(dsn=migrated), "work", 1)
    await bench.user.execute("lock table leasehold.history in access exclusive mode")
    slow = asyncio.ensure_future(
        pool.fetch("history/roll_up", {"since": None, "now": None}, aside=True)
    )
    waiting = "select count(*) from pg_locks where not granted"
    while (await sql(waiting))[0][0] == 0:
        await asyncio.sleep(0.01)
    await pool.fetch("job/wake", {"queues": ["default"]})
    assert not slow.done()
    await bench.user.rollback()
    await slow
    mine = "select count(*) from pg_stat_activity where application_name = 'leasehold work'"
    before = (await sql(mine))[0][0]
    await pool.close()
    while (await sql(mine))[0][0] != before - 1:
        await asyncio.sleep(0.01)
