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
from psycopg.types.json import Jsonb

from leasework.config import Settings
from leasework.model.deadline import Callback, Promise
from leasework.model.job import ClaimedJob
from leasework.model.states import State
from leasework.store.reports import Reports
from leasework.store.store import Store
from tests.pg.bench import Bench
from tests.support.wait import until_async

TWICE_PREPARED = 12
"""After so many uses a statement has the plan that is kept: five, and five more."""
OUTCOMES = [State.COMPLETED, State.DISCARDED]
"""Recorded by a short statement, and by that for all of them."""
BURST = """
insert into leasework.job (id, queue, task_name, payload)
select gen_random_uuid(), 'default', 't', '{}' from generate_series(1, %(jobs)s)
"""
DEADLINES = """
insert into leasework.deadline (id, of_job, name, state, since, seconds, until, due_at, callback,
                                made_at, closed_at)
select gen_random_uuid(), false, state || n, state, 'enqueued', 60, 'success',
       now() + n * interval '1 hour', '{"task": "t"}', now(), case state when 'met' then now() end
from generate_series(1, 10000) n, unnest('{armed, met}'::text[]) state
"""
READ = """
select sum(t.seq_tup_read),
       sum((select sum(i.idx_tup_read) from pg_stat_user_indexes i where i.relid = t.relid))
from pg_stat_user_tables t
where t.relid in (select %(table)s::regclass union all
                  select inhrelid from pg_inherits where inhparent = %(table)s::regclass)
"""
KEYS = """
insert into leasework.job_key (key, job_id)
select 'k' || n, gen_random_uuid() from generate_series(1, 10000) n
"""
ENDED = (
    "update leasework.job set history = false, node = gen_random_uuid(), claimed_at = now(),"
    " claim_token = 1 where id = %s",
    "delete from leasework.job where id = %s",
)
"""Of a job that ran and leaves no history: its deadline is judged."""
ARM = "select id from leasework.deadline_arm(gen_random_uuid(), 'mine', %(level)s)"
DONE = """
insert into leasework.job_done (id, finished_at, queue, task_name, priority, run_at, created_at,
                                max_attempts, attempt, crashes, state, payload)
select gen_random_uuid(), now(), 'default', 't', 0, now(), now(), 5, 1, 0, 'completed', '{}'
from generate_series(1, 10000)
"""
AUTOVACUUMED = """
select case c.relkind when 'r' then 'table' else 'index' end, c.oid::regclass::text
from pg_class c join pg_namespace n on n.oid = c.relnamespace left join pg_am a on a.oid = c.relam
where n.nspname = 'leasework' and (c.relkind = 'r' or c.relkind = 'i' and a.amname = 'brin')
"""
"""Tables, and BRIN indexes of tables."""
SESSION = """
select pid from pg_stat_activity
where datname = current_database() and application_name = 'leasework work'
"""
Claim = Callable[[int], Awaitable[list[ClaimedJob]]]


@pytest.fixture
async def alone(migrated: str, sql: Any) -> str:
    """The database without autovacuum, which analyzes tables and reads their rows itself.

    It would also summarize the BRIN indexes of the history, even where it leaves the table alone.
    """
    for kind, name in await sql(AUTOVACUUMED):
        option = "autovacuum_enabled" if kind == "table" else "autosummarize"
        await sql(f"alter {kind} {name} set ({option} = off)")
    return migrated


@pytest.fixture
async def quiet(alone: str) -> AsyncIterator[Bench]:
    """A node of one session, whose reads are known when it is closed. Nobody else analyzes."""
    async with await psycopg.AsyncConnection.connect(alone) as user:
        yield await Bench.make(Store(Settings(dsn=alone), "work"), user)


async def rows_read(sql: Any, table: str) -> tuple[int, int]:
    """So far, by all that have ended and by ``sql``: by scans of the table, and by its indexes."""
    await sql("select pg_stat_force_next_flush()")
    [(scanned, found)] = await sql(READ, {"table": f"leasework.{table}"})
    return int(scanned), int(found)


async def end(quiet: Bench, sql: Any) -> None:
    """Only then are the reads of its session known to be counted."""
    [(pid,)] = await sql(SESSION)
    await quiet.store.close()
    await gone(pid, sql)


async def gone(pid: int, sql: Any) -> None:
    async def is_gone() -> bool:
        return not await sql("select 1 from pg_stat_activity where pid = %(pid)s", {"pid": pid})

    await until_async(is_gone)


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
    await sql("analyze leasework.job")
    await sql("delete from leasework.job")
    for _ in range(running):
        await quiet.claimed()
    await sql("vacuum analyze leasework.job")
    before = await rows_read(sql, "job")
    for state in OUTCOMES * TWICE_PREPARED:
        await quiet.enqueue()
        ahead = [(job.id, job.claim_token) for job in await claim(100)]
        await quiet.store.give_back(quiet.node, ahead)
        await quiet.ack(*await claim(100), state=state)
    await sql(BURST, {"jobs": 30_000})
    for state in OUTCOMES * 2:
        ahead = [(job.id, job.claim_token) for job in await claim(100)]
        assert await quiet.store.give_back(quiet.node, ahead) == 100
        lost, *kept = await claim(100)
        assert len(kept) == 99
        acked = await quiet.ack(lost._replace(claim_token=1), *kept, state=state)
        assert len(acked.written) == 99
    await end(quiet, sql)
    scanned, found = await rows_read(sql, "job")
    assert scanned == before[0] and found - before[1] < 8_000


@pytest.mark.parametrize("state", OUTCOMES)
async def test_each_outcome_frees_its_own_key_of_a_burst(
    quiet: Bench, sql: Any, state: State
) -> None:
    await sql("vacuum analyze leasework.job_key")
    for n in range(TWICE_PREPARED):
        await quiet.ack(await quiet.claimed(unique=f"early {n}"), state=state)
    before = await rows_read(sql, "job_key")
    await sql(BURST, {"jobs": 30_000})
    await sql("update leasework.job set unique_key = 'k' || id")
    await sql(
        "insert into leasework.job_key (key, job_id) select unique_key, id from leasework.job"
    )
    for _ in range(4):
        assert len((await quiet.ack(*await quiet.claim(100), state=state)).written) == 100
    await end(quiet, sql)
    scanned, found = await rows_read(sql, "job_key")
    assert scanned == before[0] and found - before[1] < 1_000
    [(left,)] = await sql("select count(*) from leasework.job_key")
    assert left == 30_000 - 400


async def test_a_deadline_is_found_among_those_that_came(quiet: Bench, sql: Any) -> None:
    promise = Promise(Callback("t"), since="enqueued", seconds=60).as_json()
    await sql("vacuum analyze leasework.deadline")
    before = await rows_read(sql, "deadline")
    for n in range(TWICE_PREPARED):
        deadline, _ = await quiet.store.arm_deadline(uuid4(), f"mine {n}", promise, None)
        assert await quiet.store.find_deadline(f"mine {n}") == deadline
    await sql(DEADLINES)
    for _ in range(5):
        assert await quiet.store.find_deadline("mine 1")
        assert not (await quiet.store.arm_deadline(uuid4(), "mine 1", promise, None))[1]
    await end(quiet, sql)
    scanned, found = await rows_read(sql, "deadline")
    assert scanned == before[0] and found - before[1] < 1_000


async def test_a_user_enqueues_among_those_that_came(alone: str, sql: Any) -> None:
    """In a session of the user's, with the function."""
    tables = ("job", "job_key", "job_done", "deadline")
    level = {"on_breach": "t", "seconds": 60}
    jobs = [{"task": "t", "unique": "k"}, {"task": "t", "id": str(uuid4())}]
    watched = {"task": "t", "deadline": level}
    jobs.append({"task": "t", "unique": "e", "unique_for": 0.001})
    await sql("vacuum analyze")
    before = {table: (await rows_read(sql, table))[0] for table in tables}
    async with await psycopg.AsyncConnection.connect(alone, autocommit=True) as user:

        async def enqueue() -> None:
            for job in jobs:
                await user.execute("select leasework.enqueue(%(job)s)", {"job": Jsonb(job)})
            cursor = await user.execute(ARM, {"level": Jsonb(level)})
            [(deadline,)] = await cursor.fetchall()
            await user.execute("select leasework.deadline_end(%s, 'met')", [deadline])
            cursor = await user.execute("select id from leasework.enqueue(%s)", [Jsonb(watched)])
            [(job,)] = await cursor.fetchall()
            for statement in ENDED:  # these are planned by what is there; what they call is not
                await user.execute(statement, [job], prepare=False)

        for _ in range(TWICE_PREPARED):
            await enqueue()
        await sql(BURST, {"jobs": 10_000})
        await sql(KEYS)
        await sql(DONE)
        await sql(DEADLINES)
        for _ in range(5):
            await enqueue()
        pid = user.info.backend_pid
    await gone(pid, sql)
    for table, was in before.items():
        scanned, found = await rows_read(sql, table)
        assert scanned - was < 3_000 and found < 1_000, table


async def test_status_sees_a_queue_behind_a_long_one(quiet: Bench, sql: Any) -> None:
    await sql(BURST, {"jobs": 12_000})
    await quiet.enqueue(queue="late")
    await sql("update leasework.job set run_at = now() - interval '1 day' where queue = 'late'")
    first, late = await Reports(quiet.store.pool).queues(None)
    assert (first.queue, late.queue) == ("default", "late")
    assert late.oldest_seconds and late.oldest_seconds > 86_000
    await quiet.store.close()
