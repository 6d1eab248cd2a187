"""A statement that takes long has a connection of its own: claims do not wait behind it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

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


async def test_a_roll_up_after_a_long_one_is_aside_also_when_no_minute_had_ended_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked each 20 s, and counts once a minute."""
    store, asides, took, clock = bench.store, [], 1.0, 0.0
    fetch = store._pool.fetch

    async def watched(name: str, params: Any, timeout: Any = None, aside: bool = False) -> Any:
        nonlocal clock
        asides.append(aside)
        rows = await fetch(name, params, timeout, aside)
        clock += took if rows[0][0] != params["since"] else 0.001
        return rows

    monkeypatch.setattr(store._pool, "fetch", watched)
    monkeypatch.setattr(store._pool, "now", lambda: clock)
    start = datetime(2030, 1, 1, tzinfo=UTC)
    counted = await store.roll_up(None, start)
    for seconds in (20, 40, 60, 80):
        counted = await store.roll_up(counted, start + timedelta(seconds=seconds))
    assert asides == [True] * 5, "the first may be long, and so was each that counted"
    took = 0.01
    counted = await store.roll_up(counted, start + timedelta(seconds=140))
    await store.roll_up(counted, start + timedelta(seconds=200))
    assert asides[5:] == [True, False], "one that was short needs none"
