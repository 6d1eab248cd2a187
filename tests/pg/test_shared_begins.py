"""Workers that wait for each other share where they begin to claim, and miss no job by it."""

from __future__ import annotations

import asyncio
import subprocess
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from leasework_lab.server import find_programs

from leasework import App
from leasework.model.begins import Begins
from leasework.pg.sql import statement
from leasework.tuning import Tuning
from tests.pg.bench import Bench
from tests.pg.claim_worker import INSERT, MANY, TURN, Run, Worker, jobs_of
from tests.support import postgres as servers


async def skip_seats(sql: Run) -> None:
    """A begin is published when it has moved by more than a thousand seats."""
    await sql("select setval('leasework.seat_seq', last_value + 5000) from leasework.seat_seq")


async def shared(sql: Run) -> int:
    """The begin that workers share, or 0."""
    rows = await sql(
        "select pg_sequence_last_value(('leasework.begin_' || slot)::regclass)"
        " from leasework.shared_begin where queue is not null"
    )
    return int(rows[0][0]) if rows else 0


async def slots(sql: Run) -> list[int]:
    """The slots that levels have taken."""
    rows = await sql("select slot from leasework.shared_begin where queue is not null order by 1")
    return [slot for (slot,) in rows]


async def run(*command: Any, given: bytes = b"") -> Any:
    """The output of a command that succeeds."""
    run = partial(subprocess.run, command, input=given, capture_output=True, check=True)
    return (await asyncio.to_thread(run)).stdout


@pytest.fixture
async def waited(bench: Bench, worker: Worker, sql: Run) -> Worker:
    """A worker that had to wait for its turn, so that begins are shared."""
    await sql(f"select pg_advisory_lock({TURN})")
    await worker.round()
    await sql(f"select pg_advisory_unlock({TURN})")
    assert await shared(sql) == 1
    assert worker.begins.shared
    return worker


async def fill_with_jobs_in_flight(worker: Worker, sql: Run) -> None:
    """They are before the begin that the worker then shares."""
    await sql(MANY)
    await sql("analyze leasework.job")
    while await worker.claim(500):
        pass
    await skip_seats(sql)
    await worker.get_ahead()
    await worker.round()


async def test_begins_are_not_shared_while_nobody_waits(worker: Worker, sql: Run) -> None:
    await skip_seats(sql)
    await worker.get_ahead()
    await worker.rounds()
    assert await shared(sql) == 0


@pytest.mark.parametrize("knows", [True, False], ids=["knows the level", "has found no job yet"])
async def test_a_worker_begins_where_another_one_has_come_to(
    bench: Bench, waited: Worker, sql: Run, knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Worker(bench, sql)
    if knows:
        await other.round()  # it begins at seat 0
    await fill_with_jobs_in_flight(waited, sql)
    assert other.begin == 0
    if not knows:
        assert await other.buffers(rows=1) < 150, (
            "it is told where others begin, and claims nothing"
        )
        await other.claim()
    assert await other.buffers() < 150
    other.begins.shared.clear()
    monkeypatch.setattr(other.begins, "asks", lambda: False)
    assert await other.buffers() > 500, "the jobs in flight are in the way, or this shows nothing"


async def test_a_worker_asks_again_which_begins_are_shared(
    bench: Bench, worker: Worker, sql: Run
) -> None:
    now = 0.0
    other = Worker(bench, sql)
    other.begins = Begins(lambda: now)
    await other.round()
    await sql(f"select pg_advisory_lock({TURN})")
    await worker.round()
    await worker.round()
    assert worker.begins.shared
    await sql(f"select pg_advisory_unlock({TURN})")
    await other.round()
    assert not other.begins.shared
    now += Tuning.begin_ask_seconds
    await other.round()
    assert other.begins.shared == worker.begins.shared


async def test_a_shared_begin_waits_for_a_transaction_that_commits_late(
    bench: Bench, waited: Worker, sql: Run
) -> None:
    job = uuid4()
    await bench.user.execute(INSERT, {"id": job})
    seat = await waited.highest()
    await skip_seats(sql)
    await waited.rounds()
    assert await shared(sql) <= seat
    await bench.user.commit()
    assert await Worker(bench, sql).ids() == [job]
    await waited.get_ahead()
    await waited.round()
    assert await shared(sql) > seat


async def test_a_worker_that_does_not_take_all_tasks_shares_no_begin_beyond_a_job_it_passes_over(
    bench: Bench, waited: Worker, sql: Run
) -> None:
    job = await bench.enqueue(task="unheard-of")
    seat = await waited.highest()
    waited.not_tasks = ("unheard-of",)
    await skip_seats(sql)
    await waited.get_ahead(seat)
    await waited.rounds()
    assert await shared(sql) <= seat
    assert await Worker(bench, sql).ids() == [job]
    await waited.rounds()
    assert await shared(sql) > seat


async def test_a_worker_that_passes_over_a_job_does_not_read_what_is_before_the_shared_begin(
    bench: Bench, waited: Worker, sql: Run
) -> None:
    await fill_with_jobs_in_flight(waited, sql)
    await bench.enqueue(task="unheard-of")
    waited.not_tasks = ("unheard-of",)
    await skip_seats(sql)
    await waited.get_ahead()
    before = await shared(sql)
    assert await waited.buffers() < 200
    assert await shared(sql) - before < 1000, "the job that it passes over is in the way"


async def test_a_claim_that_may_be_rolled_back_with_an_earlier_one_tells_no_begin(
    bench: Bench, waited: Worker, sql: Run
) -> None:
    first, second = await bench.enqueue(), None
    await skip_seats(sql)
    second = await bench.enqueue()
    params = {**bench.claim_params(waited.begins, limit=1), "settled": await waited.highest()}
    for job, told in ((first, 1), (second, 0)):
        cursor = await bench.user.execute(statement("job/claim", "leasework"), params)
        rows = await cursor.fetchall()
        assert jobs_of(rows) == [job]
        assert len(rows) == 1 + told
    await bench.user.rollback()
    assert set(await waited.ids()) == {first, second}


async def test_after_a_restart_shared_begins_are_ignored_and_their_slots_used_again(
    bench: Bench, waited: Worker, sql: Run
) -> None:
    await sql(
        "update leasework.shared_begin set server = 12345, started = now() - interval '1 day'"
        " where queue is not null"
    )
    await sql(
        "select setval('leasework.begin_1', (select last_value + 1000 from leasework.seat_seq))"
    )
    waited.begins.server = 12345
    job = await bench.enqueue()
    assert await waited.ids() == [job]
    await waited.get_ahead()
    await sql(f"select pg_advisory_lock({TURN})")
    await waited.round()
    assert await shared(sql) == 1
    assert await slots(sql) == [1]


async def test_before_a_restart_no_slot_is_used_again(waited: Worker, sql: Run) -> None:
    """A claim that read its slot before the tokens were lifted may still publish there."""
    await sql("select leasework.lift_tokens()")
    await waited.rounds()
    await waited.get_ahead()
    await sql(f"select pg_advisory_lock({TURN})")
    await waited.round()
    assert await slots(sql) == [1, 2]


async def test_a_copy_on_the_same_server_ignores_the_begins_of_the_original(
    bench: Bench, waited: Worker, sql: Run, migrated: str, postgres: Any
) -> None:
    """``pg_dump`` reads the sequences later than its snapshot of the jobs."""
    jobs = {await bench.enqueue() for _ in range(3)}
    async with await psycopg.AsyncConnection.connect(migrated) as snapshot:
        await snapshot.execute("begin isolation level repeatable read")
        [(name,)] = await (await snapshot.execute("select pg_export_snapshot()")).fetchall()
        await bench.ack(*await waited.claim())
        await skip_seats(sql)
        await waited.get_ahead()
        await waited.round()
        version = str(snapshot.info.server_version // 10000)
        programs = find_programs(version)[0]
        dump = await run(programs / "pg_dump", "--snapshot", name, migrated)
    with servers.database(postgres.dsn) as copy:
        await run(programs / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", copy, given=dump)
        app = App(copy)
        async with await psycopg.AsyncConnection.connect(copy) as user:
            there = Worker(await Bench.make(await app.store(), user), sql)
            found = {job.id for _ in range(3) for job in await there.claim(1)}
        await app.close()
    assert found == jobs


async def test_a_level_takes_one_slot_however_many_workers_wait(
    bench: Bench, worker: Worker, sql: Run, migrated: str
) -> None:
    await sql(f"select pg_advisory_lock({TURN})")
    for _ in range(8):
        await bench.enqueue()
    params = bench.claim_params(worker.begins, limit=1)

    async def claim() -> None:
        async with await psycopg.AsyncConnection.connect(migrated) as session:
            await session.execute(statement("job/claim", "leasework"), params)
            await claimed.wait()

    claimed = asyncio.Barrier(4)
    async with asyncio.timeout(30):
        await asyncio.gather(*(claim() for _ in range(4)))
    while await worker.claim():
        pass
    other = Worker(bench, sql)
    await other.get_ahead()
    await other.round()
    await worker.round()
    assert await slots(sql) == [1]


async def test_without_a_free_slot_claims_go_on(bench: Bench, worker: Worker, sql: Run) -> None:
    await sql(
        "update leasework.shared_begin set server = %(server)s, queue = 'other',"
        " started = pg_postmaster_start_time()",
        {"server": worker.begins.server},
    )
    await sql(f"select pg_advisory_lock({TURN})")
    await worker.round()
    await worker.round()
