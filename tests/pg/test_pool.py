"""Two callers and one connection."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from leasehold.config import Settings
from leasehold.pg import pool as pools
from leasehold.pg.pool import Pool


async def test_the_server_has_the_next_statement_while_the_rows_of_the_last_are_read(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(Settings(dsn=migrated), "work", 1)
    busy: list[bool] = []
    read = pools.read

    async def watched(answer: Any) -> Any:
        status = answer.connection.pgconn.transaction_status
        busy.append(status == psycopg.pq.TransactionStatus.ACTIVE)
        return await read(answer)

    monkeypatch.setattr(pools, "read", watched)
    await pool.fetch("job/wake", {"queues": ["default"]})
    await asyncio.gather(*[pool.fetch("job/wake", {"queues": ["default"]}) for _ in range(3)])
    assert busy == [False, True, True, False]
    await pool.close()
