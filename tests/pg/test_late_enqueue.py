"""An enqueue that the server carries out long after its caller gave up and tried again.

The server's process of one connection is stopped while a request lies in its socket, and goes on
when the repetition, on another connection, has been run and acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from msgspec import structs
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from leasework import App, errors
from leasework.config import Settings
from leasework.model.job import JobRequest
from leasework.pg.connection.session import Session
from leasework.store.jobs import _copy_lines
from leasework.store.store import Store
from leasework.tuning import Tuning
from tests.pg.bench import Bench
from tests.support.requests import job_request
from tests.support.wait import until, until_async

LIMIT = 1 << 20
BACKEND = "select pid from pg_stat_activity where application_name = 'leasework user'"
WAITS = f"{BACKEND} and wait_event_type = 'Lock'"
WAITS_FOR_ROWS = """
select 1 from pg_stat_activity
where pid = %s and query like '%%copy%%' and wait_event = 'ClientRead' and state = 'active'
"""
ALIVE = "select 1 from pg_stat_activity where pid = %(pid)s"


@pytest.fixture
async def impatient(direct_dsn: str, migrated: str) -> AsyncIterator[App]:
    app = App(direct_dsn, call_timeout=1.2)
    yield app
    await app.close()


@asynccontextmanager
async def stopped(pid: int) -> AsyncIterator[None]:
    """A server process of this test's own database, which does nothing meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def repeat_and_finish(bench: Bench, jobs: list[tuple[UUID, JobRequest]]) -> None:
    await bench.store.enqueue(jobs, LIMIT, True, None)
    claimed = await bench.claim()
    assert {job.id for job in claimed} == {job for job, _ in jobs}
    await bench.ack(*claimed)


async def nothing_came_of_it(sql: Any, pid: int, jobs: int) -> None:
    async def gone() -> bool:
        return not await sql(ALIVE, {"pid": pid})

    await until_async(gone, 30, "the server process has done what lay in its socket")
    assert await sql("select count(*) from leasework.job") == [(0,)]
    assert await sql("select count(*) from leasework.job_done") == [(jobs,)]


@pytest.mark.parametrize("count", [1, 3], ids=["one", "several"])
async def test_a_late_enqueue_does_not_run_its_jobs_again(
    bench: Bench, impatient: App, sql: Any, count: int
) -> None:
    jobs = [(uuid4(), job_request()) for _ in range(count)]
    others = set(await sql(BACKEND))
    late = await impatient.store()
    await late.deaths(1)  # opens its connection
    [(pid,)] = set(await sql(BACKEND)) - others
    async with stopped(pid):
        with pytest.raises(errors.Unavailable) as given_up:
            await late.enqueue(jobs, LIMIT, False, None)
        assert given_up.value.sent
        await repeat_and_finish(bench, jobs)
    await nothing_came_of_it(sql, pid, count)


COLUMNS = (
    "id, queue, task_name, priority, run_at, created_at, max_attempts, attempt, crashes, payload"
)
FINISHED = f"""
    with gone as (delete from leasework.job returning *)
    insert into leasework.job_done ({COLUMNS}, state)
    select {COLUMNS}, 'completed' from gone"""


@pytest.fixture(params=["read committed", "repeatable read"])
async def late(direct_dsn: str, migrated: str, request: Any) -> AsyncIterator[Store]:
    """With an open connection, of a role whose transactions have this by default."""
    isolation = request.param.replace(" ", "\\ ")
    options = f"-c default_transaction_isolation={isolation}"
    store = Store(Settings(dsn=make_conninfo(direct_dsn, options=options)), "user")
    await store.deaths(1)
    yield store
    await store.close()


async def test_a_late_enqueue_sees_what_was_committed_while_it_waited(
    late: Store, sql: Any, migrated: str
) -> None:
    """Its statement began before its repetition and the end of that one's job were committed."""
    job, request = uuid4(), job_request()
    again = {**request.as_request(job, LIMIT), "retried": True}
    async with await psycopg.AsyncConnection.connect(migrated) as other:
        await other.execute("select leasework.enqueue(%s)", [Jsonb(again)])
        await other.execute(FINISHED)
        first = asyncio.create_task(late.enqueue([(job, request)], LIMIT, False, None))
        await until_async(lambda: sql(WAITS), 30, "the first try to wait")
        await other.commit()
    assert await first == [(job, False)]
    assert await sql("select count(*) from leasework.job") == [(0,)]


async def test_a_plain_enqueue_does_not_wait_for_the_history(late: Store, migrated: str) -> None:
    """An old day is being dropped: its lock is on all of them."""
    sent = [(uuid4(), job_request())]
    async with await psycopg.AsyncConnection.connect(migrated) as other:
        await other.execute("lock table leasework.job_done in access exclusive mode")
        assert await late.enqueue(sent, LIMIT, False, None) == [(sent[0][0], True)]


class StopsTheServerHalfWay(list[Any]):
    """Rows; when the last one is taken, the COPY has begun and the server is stopped. It waits for
    rows then: stopped on its way there, it could hold a lock that everybody needs."""

    pid = 0
    dsn = ""

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()
        with psycopg.connect(self.dsn, autocommit=True) as other:
            until(lambda: other.execute(WAITS_FOR_ROWS, [self.pid]).fetchone(), 30, "the COPY")
        os.kill(self.pid, signal.SIGSTOP)


async def test_a_copy_whose_end_lay_in_the_socket_is_not_committed(
    bench: Bench, impatient: App, sql: Any, migrated: str
) -> None:
    jobs = [(uuid4(), job_request()) for _ in range(3)]
    session = await Session.open(impatient.settings, "work")
    pid = session.facts.backend_pid
    # as behind a pooler: nothing bounds the server's side of it
    session.facts = structs.replace(session.facts, pooled=True)
    await session.connection.execute("set client_connection_check_interval = 0")
    await session.connection.execute("set statement_timeout = 0")
    of_bulk = [(job.int, request.options, request.payload, None) for job, request in jobs]
    rows = StopsTheServerHalfWay(_copy_lines(of_bulk, set()))
    rows.pid, rows.dsn = pid, migrated
    try:
        with pytest.raises(errors.Unavailable):
            await session.copy("job/copy", rows, 1.5, 3)
        await repeat_and_finish(bench, jobs)
    finally:
        os.kill(pid, signal.SIGCONT)
    await nothing_came_of_it(sql, pid, 3)


@pytest.mark.parametrize(
    ("count", "options"),
    [(1, {"history": False}), (30, {"history": False}),
     (1, {"unique": "k", "on_conflict": "replace"})],
    ids=["one", "many", "replaces"],
)  # fmt: skip
async def test_what_may_have_run_and_left_nothing_is_not_repeated(
    app: App, monkeypatch: pytest.MonkeyPatch, sql: Any, count: int, options: dict[str, Any]
) -> None:
    """The answer is lost, the jobs run, and no history says so: the caller hears that nobody
    knows."""
    ran: list[int] = []

    @app.task(name="t")
    async def work(n: int) -> None:
        ran.append(n)

    def losing(said: Any) -> Any:
        async def lost(*given: Any) -> Any:
            await said(*given)
            await until_async(all_ran, 30, "the jobs to run")
            raise errors.Unavailable("the answer was lost", sent=True)

        return lost

    async def all_ran() -> bool:
        return len(ran) >= count and not await sql("select 1 from leasework.job")

    store = await app.store()
    for name in ("enqueue", "copy"):
        monkeypatch.setattr(store, name, losing(getattr(store, name)))
    if "unique" in options:
        monkeypatch.undo()
        await work.using(unique="k", run_in=3600.0).enqueue(n=-2)  # to be replaced
        monkeypatch.setattr(store, "enqueue", losing(store.enqueue))
    async with app.node():
        with pytest.raises(errors.Unavailable, match="the answer was lost"):
            await app.enqueue_many([work.using(**options).job(n=n) for n in range(count)])
        monkeypatch.undo()
        await work.enqueue(n=-1)
        await until_async(lambda: sql("select 1 where not exists (select 1 from leasework.job)"))
    assert sorted(ran) == [-1, *range(count)]


@pytest.mark.parametrize(
    "later",
    [errors.Unavailable("connection refused"), errors.ReadOnlyServer("it is a replica")],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_after_a_try_that_was_sent_says_that_the_job_may_be_there(
    app: App, monkeypatch: pytest.MonkeyPatch, later: errors.LeaseworkError
) -> None:
    @app.task(name="t")
    async def work() -> None: ...

    store = await app.store()
    enqueue, tries = store.enqueue, 0

    async def lost(*given: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries > 1:
            raise later
        await enqueue(*given)
        raise errors.Unavailable("the answer was lost", sent=True)

    monkeypatch.setattr(store, "enqueue", lost)
    with pytest.raises(errors.Unavailable, match=later.what) as failed:
        await work.enqueue()
    assert failed.value.sent and tries == Tuning.enqueue_tries
    assert len(await app.jobs()) == 1


async def test_many_jobs_are_enqueued_although_their_wake_up_fails(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(name="t")
    async def work() -> None: ...

    pool = (await app.store()).pool
    fetch = pool.fetch

    async def refused(name: str, *given: Any) -> Any:
        if name == "job/wake":
            raise errors.ReadOnlyServer("it is a replica")
        return await fetch(name, *given)

    monkeypatch.setattr(pool, "fetch", refused)
    assert len(await app.enqueue_many([work.job() for _ in range(30)])) == 30
    monkeypatch.undo()
    assert len(await app.jobs()) == 30


async def test_a_wait_for_a_job_goes_on_while_the_server_is_a_replica(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(name="t")
    async def work() -> int:
        return 7

    job = await work.enqueue()
    store = await app.store()
    get, looks = store.get, 0

    async def replica(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        if 1 < looks < 4:
            raise errors.ReadOnlyServer("it is a replica")
        return await get(*given)

    monkeypatch.setattr(store, "get", replica)
    waiting = asyncio.create_task(job.wait(timeout=60))
    await until_async(lambda: looks > 3)
    async with app.node():
        assert await waiting == 7
    looks = 1
    with pytest.raises(errors.ReadOnlyServer):
        await job.wait(timeout=60)


async def test_an_id_that_waits_under_another_key_holds_no_second_key(sql: Any) -> None:
    """Nobody would release it, and no job with it would ever run."""
    enqueue = "select id::text, created from leasework.enqueue(%s)"
    first, again = ({"id": str(uuid4()), "task": "t", "unique": key} for key in "ab")
    again["id"] = first["id"]
    assert await sql(enqueue, [Jsonb(first)]) == [(first["id"], True)]
    assert await sql(enqueue, [Jsonb(again)]) == [(first["id"], False)]
    assert await sql(enqueue, [Jsonb(first)]) == [(first["id"], False)], "its own key is kept"
    [(_, created)] = await sql(enqueue, [Jsonb({"task": "t", "unique": "b"})])
    assert created
