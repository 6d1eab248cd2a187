"""How many connections a process holds: two for its own work, further ones only on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from psycopg.conninfo import make_conninfo

from leasework import App
from leasework.app import desk, home
from leasework.model.filter import JobFilter
from tests.pg.claim_worker import TURN
from tests.support.procs import Processes
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]
OPEN = """
    select substring(application_name from 11), count(*)::int from pg_stat_activity
    where datname = current_database() and application_name like 'leasework %' group by 1
"""
IDLE = "select 1 from leasework.node where sleeping <> '{}'"


async def until_open(sql: Sql, **wanted: int) -> None:
    """A statement aside comes and goes; what stays is the same each time."""

    async def is_open() -> bool:
        return dict(await sql(OPEN)) == wanted

    await until_async(is_open, 60, f"these connections: {wanted}")


@pytest.mark.parametrize("listen", [True, False])
async def test_an_idle_worker_process_holds_two_connections(
    migrated: str, sql: Sql, procs: Processes, listen: bool
) -> None:
    env = {"LEASEWORK_DSN": migrated, "LEASEWORK_LISTEN": str(int(listen))}
    for number in (1, 2):  # the first leads, the second follows
        command = ("-m", "leasework", "worker", "tests.e2e.apps.texts:app")
        worker = procs.start(*command, name=f"worker-{number}", env=env)
        worker.wait_for("listen_works" if listen else "node_started", 60)
        await until_async(lambda n=number: idle(sql, n), 60, "each worker to be idle")
        await until_open(sql, guard=number, work=number)


async def idle(sql: Sql, count: int) -> bool:
    return len(await sql(IDLE)) == count


@pytest.mark.parametrize("listen", [True, False])
async def test_a_process_that_only_holds_a_lock_keeps_what_it_needs(
    migrated: str, sql: Sql, monkeypatch: pytest.MonkeyPatch, listen: bool
) -> None:
    monkeypatch.setattr(desk, "ON_DEMAND_SECONDS", 6.0)
    app = App(migrated, listen=listen)
    async with app.lock("one", timeout=60) as lock:
        # what took the lock is closed, and the guard renews it
        await until_open(sql, guard=1, **({"work": 1} if listen else {}))
        async with app.lock("two", timeout=60):
            assert dict(await sql(OPEN))["lease"] == 1
        assert lock.held
    await app.close()


async def test_a_node_closes_what_took_a_lock_and_opens_it_again(
    migrated: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "ON_DEMAND_SECONDS", 6.0)
    app = App(migrated)
    async with app.node():
        await until_open(sql, guard=1, work=1)
        for _ in range(2):
            async with app.lock("one", timeout=60):
                assert dict(await sql(OPEN))["lease"] == 1
            await until_open(sql, guard=1, work=1)
    await app.close()


async def test_what_people_look_over_is_closed_when_it_is_idle(
    migrated: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "ON_DEMAND_SECONDS", 6.0)
    app = App(migrated)
    operator = await app.operator("ann", "test")
    for _ in range(2):
        await operator.reports.job_page(JobFilter(), None, 10)
        assert dict(await sql(OPEN)) == {"people": 1}
        await until_open(sql)
    await app.close()


async def work() -> None: ...


@asynccontextmanager
async def drained(dsn: str, by: str, sql: Sql) -> AsyncIterator[None]:
    """A node with the DSN ``dsn`` has run a thousand jobs that ``by`` enqueued, and still runs."""
    app, other = App(dsn), App(by)
    task = other.task(name="work")(work)
    app.task(name="work")(work)

    async def done() -> bool:
        return await sql("select count(*) from leasework.job_done") == [(1000,)]

    async with app.node():
        await until_open(sql, guard=1, work=1)
        await other.enqueue_many([task.job() for _ in range(1000)])
        await other.close()
        await until_async(done, 60, "all jobs to be done")
        yield
    await app.close()


async def test_claims_of_many_jobs_open_a_connection(
    migrated: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "ON_DEMAND_SECONDS", 6.0)
    async with drained(migrated, migrated, sql):
        await until_open(sql, guard=1, work=1, claims=1)
        await until_open(sql, guard=1, work=1)


async def test_claims_that_wait_for_their_turn_open_a_connection(migrated: str, sql: Sql) -> None:
    """Outcomes and duties do not wait behind them."""
    app = App(migrated)
    task = app.task(name="work")(work)
    await sql(f"select pg_advisory_lock({TURN})")
    async with app.node():
        await until_open(sql, guard=1, work=1)
        for _ in range(2):
            job = await task.enqueue()
            await job.wait(timeout=60)
        assert dict(await sql(OPEN))["claims"] == 1
    await app.close()


async def test_jobs_run_where_no_further_connection_is_allowed(migrated: str, sql: Sql) -> None:
    role = f"two_{uuid4().hex[:12]}"
    await sql(f"create role {role} login connection limit 2")
    for right in (
        "usage on schema",
        "all on all tables in schema",
        "all on all sequences in schema",
    ):
        await sql(f"grant {right} leasework to {role}")
    await sql(f"grant execute on all functions in schema leasework to {role}")
    async with drained(make_conninfo(migrated, user=role), migrated, sql):
        await until_open(sql, guard=1, work=1)
    await sql(f"drop owned by {role}")
    await sql(f"drop role {role}")
