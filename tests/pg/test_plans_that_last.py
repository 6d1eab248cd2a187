"""A statement that was prepared while a table was empty is as good when there is much in it.

PostgreSQL keeps the plan of a prepared statement until the table is analyzed again. Made for an
empty table it reads all of it, and would do so for as long as a minute when many jobs have come.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from leasehold.config import Settings
from leasehold.model.deadline import Callback, Level
from leasehold.model.job import ClaimedJob
from leasehold.pg.store import PgStore
from tests.pg.bench import Bench
from tests.support.wait import until_async

TWICE_PREPARED = 12
"""After so many uses a statement has the plan that is kept: five, and five more."""
BURST = """
insert into leasehold.job (id, queue, task_name, payload)
select gen_random_uuid(), 'default', 't', '{}' from generate_series(1, %(jobs)s)
"""
DEADLINES = """
insert into leasehold.deadline (id, level, of_job, name, state, since, seconds, until, on_cancel,
                                due_at, callback, made_at, closed_at)
select gen_random_uuid(), 1, false, state || n, state, 'enqueued', 60, 'success', 'cancel',
       now() + n * interval '1 hour', '{"task": "t"}', now(), case state when 'met' then now() end
from generate_series(1, 10000) n, unnest('{armed, met}'::text[]) state
"""
Claim = Callable[[int], Awaitable[list[ClaimedJob]]]


@pytest.fixture
async def quiet(migrated: str) -> AsyncIterator[Bench]:
    """A node of one session, whose reads are known when it is closed."""
    async with await psycopg.AsyncConnection.connect(migrated) as user:
        yield await Bench.make(PgStore(Settings(dsn=migrated), "work"), user)


async def rows_read(bench: Bench, sql: Any, table: str) -> tuple[int, int]:
    """By the node's session, which ends: by scans of the table, and by its indexes."""
    facts = bench.store.facts
    assert facts
    await bench.store.close()  # only then are they known to be counted

    async def gone() -> bool:
        alive = "select 1 from pg_stat_activity where pid = %(pid)s"
        return not await sql(alive, {"pid": facts.backend_pid})

    await until_async(gone)
    [(scanned, found)] = await sql(
        "select seq_tup_read, (select sum(idx_tup_read) from pg_stat_user_indexes i"
        " where i.relid = t.relid) from pg_stat_user_tables t where relid = %(table)s::regclass",
        {"table": f"leasehold.{table}"},
    )
    return int(scanned), int(found)


@pytest.mark.parametrize(
    ("seen", "running"),
    [(0, 0), (0, 20), (2000, 0)],
    ids=["never anything there", "only what ran", "much, and then nothing"],
)
@pytest.mark.parametrize("advisory", [False, True], ids=["claim", "advisory claim"])
async def test_each_claim_and_outcome_reads_its_own_of_a_burst(
    quiet: Bench, sql: Any, seen: int, running: int, advisory: bool
) -> None:
    store = quiet.store

    async def by_candidates(limit: int) -> list[ClaimedJob]:
        found = await store.candidates("default", [], 0, limit)
        return await store.claim_candidates(quiet.node, 1, found, limit, None)

    claim: Claim = by_candidates if advisory else quiet.claim
    await sql(BURST, {"jobs": seen})
    await sql("analyze leasehold.job")
    await sql("delete from leasehold.job")
    for _ in range(running):
        await quiet.claimed()
    await sql("vacuum analyze leasehold.job")
    for _ in range(TWICE_PREPARED):
        await quiet.enqueue()
        await quiet.ack(*await claim(100))
    await sql(BURST, {"jobs": 30_000})
    for _ in range(4):
        jobs = await claim(100)
        assert len(jobs) == 100
        assert len((await quiet.ack(*jobs)).written) == 100
    scanned, found = await rows_read(quiet, sql, "job")
    assert scanned == 0 and found < 5_000


async def test_a_deadline_is_found_among_those_that_came(quiet: Bench, sql: Any) -> None:
    levels = [Level(Callback("t"), since="enqueued", seconds=60)]
    await sql("vacuum analyze leasehold.deadline")
    for n in range(TWICE_PREPARED):
        deadline, _ = await quiet.store.arm_deadline(uuid4(), f"mine {n}", levels, None)
        assert await quiet.store.find_deadline(f"mine {n}") == deadline
    await sql(DEADLINES)
    for _ in range(5):
        assert await quiet.store.find_deadline("mine 1")
        assert not (await quiet.store.arm_deadline(uuid4(), "mine 1", levels, None))[1]
    scanned, found = await rows_read(quiet, sql, "deadline")
    assert scanned == 0 and found < 1_000
