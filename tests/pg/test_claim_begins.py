"""Claims that begin where the last one left off miss no job, and pass by what is over.

With real sessions. "Ahead" means: this worker's next claim begins behind a given seat.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from leasework import App
from leasework.config import Settings
from leasework.model.begins import Begins
from leasework.model.states import State
from leasework.pg.schema import migrate
from leasework.pg.sql import statement
from leasework.store.operation import Term
from tests.pg.bench import Bench
from tests.pg.claim_worker import INSERT, MANY, ROUNDS, SMALL, Run, Worker, jobs_of
from tests.support.wait import until_async

COPY = "copy leasework.job (id, queue, task_name, payload) from stdin"
AT_SEAT = """
insert into leasework.job (id, queue, task_name, payload, seat)
values (%(id)s, 'default', 't', '{}', %(seat)s)
"""
PAUSED = 7
"""Key of an advisory lock."""
SLOW_INSERT = """
insert into leasework.job (id, queue, task_name, payload)
values (%(id)s, 'default', 't', jsonb_build_object('waited', pg_advisory_xact_lock(7)::text))
"""
"""It waits when it has its seat, for the payload stands behind it."""


# -- transactions that commit late ------------------------------------------------------------
async def by_function(user: psycopg.AsyncConnection[Any], job: UUID) -> None:
    request = json.dumps({"task": "t", "id": str(job)})
    await user.execute("select leasework.enqueue(%s)", [request])


async def by_the_clients_function(user: psycopg.AsyncConnection[Any], job: UUID) -> None:
    params = {"id": job, "queue": "default", "task": "t", "priority": 0, "max_attempts": 5}
    params |= {"timeout": None, "requeue": None, "history": True, "payload": "{}", "now": None}
    await user.execute(statement("job/enqueue_plain", "leasework"), params)


async def by_insert(user: psycopg.AsyncConnection[Any], job: UUID) -> None:
    await user.execute(INSERT, {"id": job})


async def by_copy(user: psycopg.AsyncConnection[Any], job: UUID) -> None:
    async with user.cursor() as cursor, cursor.copy(COPY) as copy:
        await copy.write_row((job, "default", "t", "{}"))


async def in_a_savepoint(user: psycopg.AsyncConnection[Any], job: UUID) -> None:
    await user.execute("savepoint inner_one")
    await by_insert(user, job)
    await user.execute("release savepoint inner_one")


async def after_a_savepoint(user: psycopg.AsyncConnection[Any], job: UUID) -> None:
    """What was rolled back had an xid of its own."""
    await user.execute("savepoint inner_one")
    await by_insert(user, uuid4())
    await user.execute("rollback to savepoint inner_one")
    await user.execute("savepoint inner_two")
    await by_insert(user, job)


async def by_retry(user: psycopg.AsyncConnection[Any], job: UUID) -> None:
    async with await psycopg.AsyncConnection.connect(user.info.dsn) as other:
        await other.execute(INSERT, {"id": job})
        await other.execute(
            "update leasework.job set ready = false, run_at = now() + interval '1 day'"
            " where id = %s",
            [job],
        )
    await user.execute(
        statement("job/retry", "leasework"),
        {"jobs": [job], "now": None, "state": None, "keep_steps": False},
    )


@pytest.mark.parametrize(
    "way",
    [
        by_function,
        by_the_clients_function,
        by_insert,
        by_copy,
        in_a_savepoint,
        after_a_savepoint,
        by_retry,
    ],
)
async def test_a_job_of_a_transaction_that_commits_late_is_claimed_next(
    bench: Bench, worker: Worker, way: Callable[..., Awaitable[None]]
) -> None:
    job = uuid4()
    await way(bench.user, job)
    seat = await worker.highest()
    await worker.rounds()
    await bench.user.commit()
    assert worker.begin <= seat, "the late one may stand there"
    assert await worker.ids() == [job]
    await worker.get_ahead(seat)


async def test_a_transaction_that_rolls_back_holds_nothing_back(
    bench: Bench, worker: Worker
) -> None:
    await by_insert(bench.user, uuid4())
    seat = await worker.highest()
    await worker.rounds()
    await bench.user.rollback()
    await worker.get_ahead(seat)


@asynccontextmanager
async def paused_insert(
    user: psycopg.AsyncConnection[Any], sql: Run, job: UUID
) -> AsyncIterator[None]:
    await sql(f"select pg_advisory_lock({PAUSED})")
    inserting = asyncio.create_task(user.execute(SLOW_INSERT, {"id": job}))
    waits = "select 1 from pg_locks where locktype = 'advisory' and not granted and pid = %s"
    await until_async(lambda: sql(waits, [user.info.backend_pid]), what="it to have its seat")
    yield
    await sql(f"select pg_advisory_unlock({PAUSED})")
    await inserting


@asynccontextmanager
async def paused_copy(
    user: psycopg.AsyncConnection[Any], sql: Run, job: UUID
) -> AsyncIterator[None]:
    """The server keeps the rows of a COPY, with their seats, until there are many. It reads the
    first one when it has a part of the second."""

    async def highest() -> int:
        [(seat,)] = await sql("select last_value from leasework.seat_seq")
        return int(seat)

    before = await highest()
    async with user.cursor() as cursor, cursor.copy(COPY) as copy:
        other = uuid4()
        await copy.write(f"{job}\tdefault\tt\t{{}}\n{other}\telse")
        user.pgconn.flush()

        async def has_its_seat() -> bool:
            return await highest() > before

        await until_async(has_its_seat)
        yield
        await copy.write("where\tt\t{}\n")


async def nextval_writes_no_wal(sql: Run) -> None:
    """It does each 32nd time, and gets its transaction an xid by that."""
    for _ in range(33):
        await sql("select nextval('leasework.seat_seq')")
        [(left,)] = await sql("select log_cnt from leasework.seat_seq")
        if left > 5:
            return


@pytest.mark.parametrize("paused", [paused_insert, paused_copy])
async def test_a_statement_that_stops_between_its_seat_and_its_row_is_waited_for(
    bench: Bench, worker: Worker, sql: Run, paused: Any
) -> None:
    job = uuid4()
    await nextval_writes_no_wal(sql)
    async with paused(bench.user, sql, job):
        seat = await worker.highest()
        await worker.rounds()
        assert worker.begin <= seat
    await bench.user.commit()
    assert await worker.ids() == [job]


@pytest.mark.parametrize("paused", [paused_insert, paused_copy])
async def test_without_the_trigger_such_a_job_would_be_missed(
    bench: Bench, worker: Worker, sql: Run, paused: Any
) -> None:
    """So it is the trigger that protects it."""
    await sql("alter table leasework.job disable trigger job_seat")
    job, found = uuid4(), "select backend_xid is null from pg_stat_activity where pid = %s"
    await nextval_writes_no_wal(sql)
    async with paused(bench.user, sql, job):
        assert await sql(found, [bench.user.info.backend_pid]) == [(True,)]
        await worker.get_ahead()
    await bench.user.commit()
    assert await worker.ids() == []
    assert await bench.state(job) is State.AVAILABLE
    worker.begins = Begins(time.monotonic)
    assert await worker.ids() == [job]


# -- jobs that come back, and jobs that others hold -----------------------------------------------
async def test_jobs_that_come_back_are_claimed_though_claims_begin_far_behind_them(
    bench: Bench, worker: Worker, sql: Run
) -> None:
    for _ in range(4):
        await bench.enqueue()
    given, lost, retried, staged = await worker.claim()
    await sql("insert into leasework.fence (name, token) values ('app', 7)")
    await bench.ack(retried, staged, state=State.RETRYABLE)
    dead = uuid4()
    node = {"node": dead, "id": lost.id}
    await sql("update leasework.job set node = %(node)s where id = %(id)s", node)
    await sql("update leasework.claimed_to set node = %(node)s", node)
    set_due = (
        "update leasework.job set run_at = now() + %(days)s * interval '1 day' where id = %(id)s"
    )
    await sql(set_due, {"days": -1, "id": staged.id})
    await sql(set_due, {"days": 1, "id": retried.id})
    await worker.get_ahead()
    assert await bench.store.give_back(bench.node, [(given.id, given.claim_token)]) == 1
    assert await worker.ids() == [given.id]
    await worker.get_ahead()
    [freed] = await bench.store.rescue([dead], 3, 100, None)
    assert freed.job == lost.id
    assert await worker.ids() == [lost.id]
    await worker.get_ahead()
    assert await bench.store.retry(retried.id, None) == "waiting"
    assert await worker.ids() == [retried.id]
    await worker.get_ahead()
    assert (await bench.store.stage(Term("app", 7), 10, None)).count == 1
    assert await worker.ids() == [staged.id]


async def test_the_same_job_comes_back_again_and_again(bench: Bench, worker: Worker) -> None:
    """Each time it stands behind what its level's claims began with."""
    job = await bench.enqueue()
    for _ in range(ROUNDS):
        [claimed] = await worker.claim()
        assert claimed.id == job
        await bench.store.give_back(bench.node, [(job, claimed.claim_token)])
    assert await worker.ids() == [job]


@pytest.mark.parametrize("holds", ["a lock", "a claim"])
async def test_a_job_that_somebody_lets_go_of_is_claimed_next(
    bench: Bench, worker: Worker, holds: str
) -> None:
    """A lock, or a claim of another worker's, that is rolled back."""
    job = await bench.enqueue()
    if holds == "a lock":
        lock = "select 1 from leasework.job where id = %s for update"
        await bench.user.execute(lock, [job])
    else:
        text = statement("job/claim", "leasework")
        cursor = await bench.user.execute(text, bench.claim_params())
        assert jobs_of(await cursor.fetchall()) == [job]
    await worker.rounds()
    assert job not in await worker.ids()
    await bench.user.rollback()
    assert await worker.ids() == [job]


# -- which jobs a claim takes ------------------------------------------------------------------
MIXED = """
insert into leasework.job (id, queue, task_name, payload, priority, fresh)
values (gen_random_uuid(), %(queue)s, 't', '{}', %(priority)s, %(fresh)s)
"""
BEST = """
select id from leasework.job where ready and node is null and queue = %(queue)s
order by priority, fresh, seat limit %(limit)s
"""


async def test_a_claim_takes_the_best_jobs_whatever_levels_it_knows(
    worker: Worker, sql: Run
) -> None:
    random = Random(7)
    for _ in range(150):
        for _ in range(random.randrange(6)):
            mixed = {"queue": random.choice("ab"), "priority": random.choice([-9, 0, 1, 9])}
            await sql(MIXED, mixed | {"fresh": random.random() < 0.7})
        limits = {queue: random.randrange(1, 6) for queue in random.choice(["a", "b", "ab"])}
        best = []
        for queue, limit in limits.items():
            best += [job for (job,) in await sql(BEST, {"queue": queue, "limit": limit})]
        assert [job.id for job in await worker.claim(**limits)] == best
        if random.random() < 0.1:
            worker.begins = Begins(time.monotonic)
        elif random.random() < 0.3 and worker.begins.levels:
            worker.begins.levels.pop(random.choice(sorted(worker.begins.levels)))


# -- what a claim passes by -------------------------------------------------------------------
async def test_a_claim_passes_by_thousands_of_jobs_in_flight(worker: Worker, sql: Run) -> None:
    await sql(MANY)
    await sql("analyze leasework.job")
    while await worker.claim(500):
        pass
    await worker.get_ahead()
    assert await sql("select count(*) >= 3000 from leasework.jobs where state = 'running'") == [
        (True,)
    ]
    # a claim that makes its plans anew, because a vacuum has ended, reads more
    assert min([await worker.buffers() for _ in range(3)]) < 100
    worker.begins = Begins(time.monotonic)
    assert await worker.buffers() > 500, "they are in the way, or this test shows nothing"


@asynccontextmanager
async def session(dsn: str) -> AsyncIterator[Run]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:

        async def run(text: str, params: Any = None) -> list[Any]:
            cursor = await connection.execute(text.encode(), params)
            return await cursor.fetchall() if cursor.description else []

        yield run


async def alone_and_beside(worker: Worker, dsn: str) -> tuple[int, int]:
    """The pages that a claim reads alone, and in a new session beside many jobs in flight."""
    await worker.get_ahead()
    alone = min([await worker.buffers() for _ in range(4)])
    await worker.sql(SMALL)
    while await worker.claim(500):
        pass
    await worker.get_ahead()
    await worker.sql("analyze leasework.job")
    async with session(dsn) as run:
        other = Worker(worker.bench, run)
        other.begins = worker.begins
        # after five uses PostgreSQL decides whether it keeps a plan
        return alone, min([await other.buffers() for _ in range(4)])


async def test_a_claim_beside_many_jobs_in_flight_reads_no_more_and_is_not_planned_anew(
    worker: Worker, migrated: str
) -> None:
    """Planning reads the ends of the index, so it shows in the pages read."""
    alone, beside = await alone_and_beside(worker, migrated)
    assert beside <= alone + 7


async def test_on_postgresql_15_a_claim_ends_where_its_range_of_levels_ends(
    own_postgres: Callable[..., Any],
) -> None:
    dsn = own_postgres("15").dsn
    await migrate.apply(Settings(dsn=dsn))
    app = App(dsn)
    async with await psycopg.AsyncConnection.connect(dsn) as user, session(dsn) as run:
        worker = Worker(await Bench.make(await app.store(), user), run)
        alone, beside = await alone_and_beside(worker, dsn)
    await app.close()
    assert beside <= alone + 7


async def test_beside_a_held_snapshot_a_claim_passes_by_what_is_over(
    bench: Bench, worker: Worker, sql: Run, migrated: str
) -> None:
    async with await psycopg.AsyncConnection.connect(migrated) as holder:
        await holder.execute("set transaction isolation level repeatable read")
        await holder.execute("select count(*) from leasework.job")
        await sql(MANY)
        await sql("analyze leasework.job")
        while jobs := await worker.claim(500):
            await bench.ack(*jobs)
        await worker.get_ahead()
        await sql("vacuum leasework.job")
        assert await worker.buffers() < 100
        worker.begins = Begins(time.monotonic)
        assert await worker.buffers() > 500, "it is in the way, or this test shows nothing"


async def test_an_empty_look_takes_no_xid_and_writes_nothing(
    bench: Bench, worker: Worker, sql: Run
) -> None:
    text, params = statement("job/claim", "leasework"), bench.claim_params(worker.begins)
    assert worker.begins.levels, "of a worker that knows a level"

    async def looked() -> bool:
        [(before,)] = await sql("select pg_current_wal_insert_lsn()")
        cursor = await bench.user.execute(text, params)
        assert await cursor.fetchall() == []
        cursor = await bench.user.execute("select pg_current_xact_id_if_assigned()")
        assert await cursor.fetchall() == [(None,)]
        await bench.user.commit()
        [(after,)] = await sql("select pg_current_wal_insert_lsn()")
        return bool(before == after)

    await until_async(looked, 60, "a look while nobody else writes either")


async def test_begins_of_another_server_are_ignored(worker: Worker, sql: Run) -> None:
    """Its seats begin anew: what stands before them is found, and they are forgotten."""
    job = uuid4()
    await sql(AT_SEAT, {"id": job, "seat": worker.begin - 1})
    assert await worker.ids() == [], "or this test shows nothing"
    here, worker.begins.server = worker.begins.server, 12345
    assert await worker.ids() == [job]
    assert worker.begins.server == here
    assert worker.begin == 0


async def test_a_job_enqueued_when_the_clock_stood_back_is_claimed_next(
    worker: Worker, sql: Run
) -> None:
    enqueue = "select id from leasework.enqueue('{\"task\": \"t\"}', now() - interval '1 year')"
    [(job,)] = await sql(enqueue)
    assert await worker.ids() == [job]


# -- levels and queues ------------------------------------------------------------------------
async def test_one_claim_finds_all_levels_that_its_worker_does_not_know(
    bench: Bench, worker: Worker
) -> None:
    """Several above, between and below those that it knows; what came back goes before."""
    back = [await bench.enqueue(priority=priority) for priority in (3, -5)]
    claimed = await bench.claim()
    assert {job.id for job in claimed} == set(back)
    await bench.store.give_back(bench.node, [(job.id, job.claim_token) for job in claimed])
    jobs = {p: await bench.enqueue(priority=p) for p in (9, 3, 0, -5, -32768, 32767, 4)}
    await bench.enqueue(priority=2)
    [first] = await worker.claim(1)
    assert first.priority == -32768
    expected = [(-5, back[1]), (-5, jobs[-5]), (0, jobs[0]), (3, back[0]), (3, jobs[3])]
    found = [(job.priority, job.id) for job in await worker.claim()]
    assert [pair for pair in found if pair[0] != 2] == [
        *expected,
        *[(p, jobs[p]) for p in (4, 9, 32767)],
    ]
    assert [priority for priority, _ in found] == [-5, -5, 0, 2, 3, 3, 4, 9, 32767]
    returned, fresh = {6, -10}, {7, -9, 65535}
    assert {level for _, level in worker.begins.levels} >= returned | fresh


@pytest.mark.parametrize("stuck", ["of tasks that have no handler here", "locked"])
async def test_jobs_that_cannot_be_claimed_hide_no_other_level(
    bench: Bench, sql: Run, stuck: str
) -> None:
    """To a worker that knows no level yet."""
    first = await bench.enqueue(task="unheard-of")
    other = await bench.enqueue(priority=5)
    last = await bench.enqueue(priority=9)
    worker = Worker(bench, sql)
    if stuck == "locked":
        lock = "select 1 from leasework.job where id = %s for update"
        await bench.user.execute(lock, [first])
        claimed = await worker.claim()
    else:
        claimed = await worker.claim(not_tasks=("unheard-of",))
    assert [job.id for job in claimed] == [other, last]


async def test_a_job_that_a_worker_never_claims_does_not_hold_back_where_it_begins(
    bench: Bench, worker: Worker, sql: Run
) -> None:
    stuck = await bench.enqueue(task="unheard-of")
    seat = await worker.highest()
    worker.not_tasks = ("unheard-of",)
    await worker.get_ahead(seat)
    assert await Worker(bench, sql).ids() == [stuck], "others find it"


async def test_a_level_of_which_a_part_cannot_be_claimed_hides_no_other(
    bench: Bench, sql: Run
) -> None:
    await bench.enqueue(task="unheard-of")
    jobs = [await bench.enqueue(priority=priority) for priority in (0, 5, 9)]
    worker = Worker(bench, sql)
    assert [job.id for job in await worker.claim(not_tasks=("unheard-of",))] == jobs


async def test_names_of_queues_and_tasks_may_have_any_characters(
    bench: Bench, worker: Worker
) -> None:
    odd = [*'"\\,{} ', "null", '\\"', "ü"]
    jobs = {queue: await bench.enqueue(queue=queue) for queue in odd}
    for task in odd:
        await bench.enqueue(queue="\\", task=f"-{task}")
    claimed = await worker.claim(not_tasks=[f"-{task}" for task in odd], **dict.fromkeys(odd, 9))
    assert {job.queue: job.id for job in claimed} == jobs
    assert len(claimed) == len(odd)


async def test_each_queue_of_a_claim_has_its_own_limit_and_order(
    bench: Bench, worker: Worker
) -> None:
    jobs: dict[str, list[UUID]] = {"default": [], "mail": [], "other": []}
    for _ in range(5):
        for queue, mine in jobs.items():
            mine.append(await bench.enqueue(queue=queue))
    claimed = await worker.claim(mail=2, default=4)
    found = {q: [job.id for job in claimed if job.queue == q] for q in jobs}
    assert found == {"default": jobs["default"][:4], "mail": jobs["mail"][:2], "other": []}
    claimed = await worker.claim(mail=100, default=100)
    found = {q: [job.id for job in claimed if job.queue == q] for q in jobs}
    assert found == {"default": jobs["default"][4:], "mail": jobs["mail"][2:], "other": []}


async def test_jobs_come_in_the_order_of_their_seats_wherever_their_rows_are(
    worker: Worker, sql: Run
) -> None:
    jobs = [uuid4() for _ in range(300)]
    places = list(enumerate(jobs, await worker.highest() + 1))
    Random(7).shuffle(places)
    for seat, job in places:
        await sql(AT_SEAT, {"id": job, "seat": seat})
    await sql("analyze leasework.job")
    assert [job.id for job in await worker.claim(limit=200)] == jobs[:200]
    assert [job.id for job in await worker.claim(limit=200)] == jobs[200:]


# -- transactions that stay open ------------------------------------------------------------------
async def test_a_writer_of_something_else_holds_no_begin_back(bench: Bench, worker: Worker) -> None:
    await bench.user.execute("create table public.elsewhere as select pg_current_xact_id() as xid")
    await worker.get_ahead()


async def test_among_open_writers_the_one_with_a_seat_is_waited_for(
    bench: Bench, worker: Worker, migrated: str
) -> None:
    worker.begins._clock = count().__next__  # the locks are looked at by each claim
    async with await psycopg.AsyncConnection.connect(migrated) as other:
        await other.execute("create table public.elsewhere as select pg_current_xact_id() as xid")
        job = uuid4()
        await by_insert(bench.user, job)
        seat = await worker.highest()
        await worker.rounds()
        assert worker.begin <= seat
        await bench.user.commit()
        assert await worker.ids() == [job]
        await worker.get_ahead()
