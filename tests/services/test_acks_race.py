"""An ack that waits for a lock: what holds it may change the row meanwhile."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import psycopg
import pytest

from leasehold.config import Settings
from leasehold.model.job import JobRequest
from leasehold.model.outcome import Decision
from leasehold.model.states import State
from leasehold.pg import migrate
from leasehold.pg.store import PgStore
from leasehold.ports import AckItem, NodeIdentity
from tests.support.wait import until_async


def identity() -> NodeIdentity:
    return NodeIdentity(uuid4(), "default", "r1", "host", 1, "0", True, ("t",), {"default": 1})


@pytest.mark.parametrize("state", [State.COMPLETED, State.RETRYABLE])
async def test_an_ack_that_waited_for_a_change_of_its_row_is_written(dsn: str, state: State):
    settings = Settings(dsn=dsn)
    await migrate.apply(settings)
    store, node = PgStore(settings, "test"), identity()
    await store.register(node, 10.0, None)
    job_id = uuid4()
    await store.enqueue([(job_id, JobRequest("t", "{}"))], 1000, False, None)
    [claimed] = await store.claim(node.id, 1, "default", [], 10, None)

    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("update leasehold.job set progress = 0.5 where id = %s", [job_id])
        item = AckItem(job_id, claimed.claim_token, Decision(state, error="e"), 0.1)
        ack = asyncio.create_task(store.ack(node.id, [item], None))
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as watcher:

            async def waits() -> bool:
                cursor = await watcher.execute(
                    "select count(*) from pg_stat_activity where datname = current_database() "
                    "and application_name = 'leasehold test' and wait_event_type = 'Lock'"
                )
                row = await cursor.fetchone()
                return bool(row and row[0])

            await until_async(waits, 5, "the ack to wait for the row's lock")
        await other.commit()

    assert await ack == {job_id}
    record = await store.get(job_id)
    assert record and record.state is state
    await store.close()
