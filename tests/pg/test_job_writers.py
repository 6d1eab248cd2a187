"""Which transactions hold back where claims begin: those that write jobs, and no others."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import psycopg


async def test_a_job_writer_that_began_after_the_snapshot_does_not_hold_back_the_begin(
    migrated: str, sql: Any
) -> None:
    """Beside a transaction that writes something else and stays open."""
    await sql("create table other (n integer)")
    async with AsyncExitStack() as stack:

        async def begun(statement: str) -> int:
            connection = await stack.enter_async_context(
                await psycopg.AsyncConnection.connect(migrated)
            )
            await connection.execute(statement.encode())
            cursor = await connection.execute("select pg_current_xact_id()::text::bigint")
            row = await cursor.fetchone()
            assert row
            return int(row[0])

        held = await begun("insert into other values (1)")
        writer = await begun("""select leasework.enqueue('{"task": "t"}')""")
        [(xmax,)] = await sql("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        assert held <= xmax <= writer, "the writer is newer than what a snapshot knows"
        [(oldest,)] = await sql("select leasework.oldest_job_writer()")
        assert oldest == writer
