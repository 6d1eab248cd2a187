"""``enqueue(on=…)``: the job is part of the user's own transaction, whatever the driver."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.pool import NullPool
from werkzeug.local import LocalProxy

from leasework import App
from leasework.errors import (
    BadJob,
    ConfigError,
    LeaseworkError,
    ReadOnlyServer,
    SchemaMissing,
    UniqueConflict,
    WrongConnection,
)
from tests.pg.drivers import ALL, ASYNC, SYNC, Open, asyncpg_arguments, done, url
from tests.support.procs import Processes

Sql = Callable[..., Awaitable[list[Any]]]

every_driver = pytest.mark.parametrize("open_way", ALL.values(), ids=ALL)
sync_drivers = pytest.mark.parametrize("open_way", SYNC.values(), ids=SYNC)
async_drivers = pytest.mark.parametrize("open_way", ASYNC.values(), ids=ASYNC)


@pytest.fixture
def task(app: App) -> Any:
    @app.task(name="send")
    async def send(to: str = "", n: int = 0) -> None: ...

    return send


@pytest.fixture
async def effects(sql: Sql) -> Callable[[], Awaitable[tuple[int, int]]]:
    """(rows of the user's, jobs): what a commit left."""
    await sql("create table effect (n int)")

    async def count() -> tuple[int, int]:
        rows = await sql(
            "select (select count(*) from effect), (select count(*) from leasework.job)"
        )
        return rows[0]

    return count


# -- the clock -------------------------------------------------------------------------------------
async def test_run_in_counts_from_the_call_and_not_from_the_start_of_the_transaction(
    app: App, task: Any, migrated: str
) -> None:
    with psycopg.connect(migrated) as user:
        user.execute("select now()")
        app.sync.enqueue(task.using(run_in=3600).job(), on=user)
        seconds = "extract(epoch from {} - now())"
        [row] = user.execute(f"select {seconds.format('run_at')} from leasework.job").fetchall()
        assert row[0] > 3600


# -- all or nothing --------------------------------------------------------------------------------
@every_driver
async def test_the_users_row_and_the_job_are_one_commit_or_none(
    app: App, task: Any, migrated: str, effects: Any, open_way: Open
) -> None:
    async with open_way(migrated) as way:
        await way.effect()
        await task.using(on=way.connection, unique="k").enqueue()
        await done(way.rollback())
    assert await effects() == (0, 0)

    async with open_way(migrated) as way:
        await way.effect()
        job = await app.enqueue(task.using(unique="k").job(to="a: %s ☃ \\ '"), on=way.connection)
        assert job.created
        assert await effects() == (0, 0)
        await done(way.commit())
    assert await effects() == (1, 1)
    assert (await job.get()).payload == {"to": "a: %s ☃ \\ '"}

    requests = [task.job(n=n) for n in range(30)] + [task.using(unique="k").job()]
    async with open_way(migrated) as way:
        jobs = await app.enqueue_many(requests, on=way.connection)
        await done(way.commit())
    assert [job.created for job in jobs] == [True] * 30 + [False]
    assert jobs[-1].id == job.id
    assert await effects() == (1, 31)


@every_driver
async def test_schedules_change_in_it_too(
    app: App, task: Any, migrated: str, open_way: Open
) -> None:
    await app.schedules.put("old", task, every=60)
    async with open_way(migrated) as way:
        await app.schedules.put("new", task, every=60, on=way.connection)
        await app.schedules.pause("new", on=way.connection)
        await app.schedules.resume("new", on=way.connection)
        await app.schedules.pause("old", on=way.connection)
        await app.schedules.delete("new", on=way.connection)
        assert not (await app.schedules.get("old")).paused
        await done(way.commit())
    assert [(s.name, s.paused) for s in await app.schedules.list()] == [("old", True)]


@sync_drivers
async def test_code_without_a_loop_enqueues_in_its_transaction(
    app: App, task: Any, migrated: str, effects: Any, open_way: Open
) -> None:
    async with open_way(migrated) as way:

        def work(end: Callable[[], Any]) -> list[Any]:
            way.execute("insert into effect values (1)")
            one = app.sync.enqueue(task.job(), on=way.connection)
            many = app.sync.enqueue_many([task.job(), task.job()], on=way.connection)
            end()
            return [one, *many]

        await asyncio.to_thread(work, way.commit)
        assert await effects() == (1, 3)
    async with open_way(migrated) as way:
        await asyncio.to_thread(work, way.rollback)
    assert await effects() == (1, 3)


async def test_two_transactions_with_one_key_give_one_job(
    app: App, task: Any, migrated: str
) -> None:
    """The second waits for the first's end, and then knows."""
    async with (
        await psycopg.AsyncConnection.connect(migrated) as one,
        await psycopg.AsyncConnection.connect(migrated) as two,
    ):
        first = await task.using(unique="k", on=one).enqueue()
        second = asyncio.create_task(task.using(unique="k", on=two).enqueue())
        await one.commit()
        answer = await second
        await two.commit()
    assert first.created and not answer.created and answer.id == first.id


async def test_a_conflict_that_shall_raise_raises_on_the_users_connection(
    app: App, task: Any, migrated: str
) -> None:
    job = await task.using(unique="k").enqueue()
    for open_way in (ALL["psycopg"], ALL["asyncpg"], ALL["sqlalchemy AsyncSession over asyncpg"]):
        async with open_way(migrated) as way:
            with pytest.raises(UniqueConflict, match="send:k") as conflict:
                await task.using(unique="k", on_conflict="raise", on=way.connection).enqueue()
        assert conflict.value.job == job.id
        assert str(conflict.value) == (
            f"another job holds the unique key send:k. Got: job {job.id}. Wait for that job, or "
            "enqueue with on_conflict='return'."
        )


async def test_errors_do_not_show_where_in_leaseworks_functions_they_were_raised(
    app: App, migrated: str
) -> None:
    for name in ("psycopg", "asyncpg", "sqlalchemy Session over psycopg2"):
        async with ALL[name](migrated) as way:
            with pytest.raises(LeaseworkError, match="each job must be an object") as wrong:
                await app.on_connection.fetch(way.connection, "user/enqueue", jobs="[1]")
        assert "CONTEXT" not in str(wrong.value) and "PL/pgSQL" not in str(wrong.value)


async def test_errors_over_psycopg2_are_those_of_every_driver(
    app: App, task: Any, migrated: str
) -> None:
    await task.using(unique="k").enqueue()
    async with ALL["sqlalchemy Session over psycopg2"](migrated) as way:

        def conflict() -> None:
            app.sync.enqueue(task.using(unique="k", on_conflict="raise").job(), on=way.connection)

        def failed_transaction() -> None:
            with suppress(Exception):
                way.execute("select 1 / 0")
            app.sync.enqueue(task.job(), on=way.connection)

        with pytest.raises(UniqueConflict, match="send:k"):
            await asyncio.to_thread(conflict)
        await asyncio.to_thread(way.rollback)
        with pytest.raises(WrongConnection, match="has already failed"):
            await asyncio.to_thread(failed_transaction)


async def test_a_transaction_that_may_only_read_is_named(
    app: App, task: Any, migrated: str
) -> None:
    async with await psycopg.AsyncConnection.connect(migrated) as users:
        await users.set_read_only(True)
        with pytest.raises(ReadOnlyServer, match="transaction of this connection is read-only"):
            await task.using(on=users).enqueue()


# -- proxies ---------------------------------------------------------------------------------------
_QUIET = {
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_REMOTE_CONFIGURATION_ENABLED": "false",
    "DD_TRACE_AGENT_URL": "unix:///no/such/socket",
}


async def test_connections_that_monitoring_agents_have_wrapped_are_used_as_others(
    migrated: str, sql: Sql, procs: Processes
) -> None:
    await sql("create table effect (n int)")
    await sql("insert into effect values (1)")
    child = procs.start("-m", "tests.pg.agents", env={"LEASEWORK_DSN": migrated, **_QUIET})
    assert child.wait(120) == 0, child.tail()


async def test_a_proxy_that_only_claims_to_be_a_connection_is_used_as_one(
    app: App, task: Any, migrated: str
) -> None:
    for name in ("psycopg async", "asyncpg", "sqlalchemy AsyncSession over psycopg"):
        async with ALL[name](migrated) as way:
            proxy = LocalProxy(lambda way=way: way.connection)
            assert (await task.using(on=proxy).enqueue()).created, name


# -- refusals --------------------------------------------------------------------------------------
@async_drivers
async def test_code_without_a_loop_needs_a_sync_driver(
    app: App, task: Any, migrated: str, effects: Any, open_way: Open
) -> None:
    async with open_way(migrated) as way:

        def work() -> None:
            with pytest.raises(BadJob, match=r"sync driver.*await app\.enqueue"):
                app.sync.enqueue(task.job(), on=way.connection)

        await asyncio.to_thread(work)
        work()  # a loop runs here, and still nothing awaits
        await way.effect()  # the connection is as good as before
    assert not await app.jobs()


async def test_the_sync_face_refuses_to_stop_a_running_loop(app: App, task: Any) -> None:
    with pytest.raises(ConfigError, match=r"await app\.enqueue"):
        app.sync.enqueue(task.job())


async def test_a_synchronous_connection_is_not_awaited_because_it_would_block_the_loop(
    app: App, task: Any, migrated: str
) -> None:
    """Here it would block it forever: the key is free when the other transaction ends."""
    engine = create_engine(url(migrated, "psycopg"), poolclass=NullPool)
    async with await psycopg.AsyncConnection.connect(migrated) as other:
        await task.using(unique="k", on=other).enqueue()
        with psycopg.connect(migrated) as mine, Session(engine) as session:
            for on in (mine, session, session.connection(), scoped_session(lambda: session)):
                with pytest.raises(WrongConnection, match=r"block the event loop.*app\.sync"):
                    await task.using(unique="k", on=on).enqueue()
                with pytest.raises(WrongConnection, match="block the event loop"):
                    await app.advisory_lock("nightly", on=on).acquire()


async def test_a_connection_inside_a_copy_or_a_stream_is_refused(
    app: App, task: Any, migrated: str, effects: Any
) -> None:
    """psycopg would wait for the end of the copy, which is the caller's."""
    copy = "copy effect from stdin"
    busy = pytest.raises(WrongConnection, match="busy with a copy")
    engine = create_engine(url(migrated, "psycopg"), poolclass=NullPool)
    with psycopg.connect(migrated) as c, c.cursor().copy(copy), busy:
        app.sync.enqueue(task.job(), on=c)
    with Session(engine) as session:
        driver: Any = session.connection().connection.driver_connection
        with driver.cursor().copy(copy), busy:
            app.sync.enqueue(task.job(), on=session)
        assert app.sync.enqueue(task.job(), on=session).created
    async with await psycopg.AsyncConnection.connect(migrated) as ac:
        async with ac.pipeline():
            await ac.execute("select 1")
            assert (await task.using(on=ac).enqueue()).created, "a pipeline takes statements"
        async with ac.cursor().copy(copy):
            with busy:
                await task.using(on=ac).enqueue()
        rows = ac.cursor().stream("select generate_series(1, 9)")
        await anext(rows)
        with busy:
            await task.using(on=ac).enqueue()
        assert len([row async for row in rows]) == 8


async def test_asyncpg_and_psycopg2_are_refused_inside_a_copy_too(
    app: App, task: Any, migrated: str, effects: Any
) -> None:
    refused: list[str] = []

    async def rows(on: Any) -> AsyncIterator[bytes]:
        yield b"1\n"
        with pytest.raises(WrongConnection, match="busy with a copy"):
            await task.using(on=on).enqueue()
        refused.append("asyncpg")

    class File(io.StringIO):
        def read(self, size: int | None = -1) -> str:
            with pytest.raises(WrongConnection, match="busy with a copy"):
                app.sync.enqueue(task.job(), on=session)
            refused.append("psycopg2")
            return super().read(size)

    async with ALL["asyncpg"](migrated) as way:
        await way.connection.copy_to_table("effect", source=rows(way.connection))
    with Session(create_engine(url(migrated, "psycopg2"), poolclass=NullPool)) as session:
        driver: Any = session.connection().connection.driver_connection
        driver.cursor().copy_expert("copy effect from stdin", File("1\n"))
        assert app.sync.enqueue(task.job(), on=session).created
    assert {*refused} == {"asyncpg", "psycopg2"}


@every_driver
async def test_a_transaction_that_has_failed_is_refused(
    app: App, task: Any, migrated: str, open_way: Open
) -> None:
    async with open_way(migrated) as way:
        with pytest.raises(Exception, match="division by zero"):
            await done(way.execute("select 1/0"))
        with pytest.raises(WrongConnection, match=r"already failed.*Roll it back"):
            await task.using(on=way.connection).enqueue()
        await done(way.rollback())
    assert not await app.jobs()


async def test_autocommit_is_refused(app: App, task: Any, migrated: str) -> None:
    def refused() -> Any:
        return pytest.raises(
            WrongConnection, match=r"(?s)committed without your rows.*leave out on="
        )

    with psycopg.connect(migrated, autocommit=True) as sync, refused():
        app.sync.enqueue(task.job(), on=sync)
    async with await psycopg.AsyncConnection.connect(migrated, autocommit=True) as connection:
        with refused():
            await task.using(on=connection).enqueue()
    bare = await asyncpg.connect(**asyncpg_arguments(migrated))
    with refused():
        await task.using(on=bare).enqueue()
    await bare.close()
    engine = create_engine(
        url(migrated, "psycopg"), isolation_level="AUTOCOMMIT", poolclass=NullPool
    )
    with engine.connect() as c, refused():
        app.sync.enqueue(task.job(), on=c)
    with Session(engine) as s, refused():
        app.sync.enqueue(task.job(), on=s)
    plain = create_engine(url(migrated, "psycopg"), poolclass=NullPool)
    with plain.connect().execution_options(isolation_level="AUTOCOMMIT") as c, refused():
        app.sync.enqueue(task.job(), on=c)
    for driver in ("psycopg", "asyncpg"):
        aengine = create_async_engine(
            url(migrated, driver), isolation_level="AUTOCOMMIT", poolclass=NullPool
        )
        async with aengine.connect() as ac:
            with refused():
                await task.using(on=ac).enqueue()
    assert not await app.jobs()


async def test_a_closed_connection_is_refused(app: App, task: Any, migrated: str) -> None:
    closed: list[Any] = []
    sync = psycopg.connect(migrated)
    sync.close()
    async_ = await psycopg.AsyncConnection.connect(migrated)
    await async_.close()
    bare = await asyncpg.connect(**asyncpg_arguments(migrated))
    await bare.close()
    closed += [async_, bare]
    async with asyncpg.create_pool(min_size=1, max_size=1, **asyncpg_arguments(migrated)) as pool:
        async with pool.acquire() as released:
            pass
        closed.append(released)
    with create_engine(url(migrated, "psycopg"), poolclass=NullPool).connect() as c:
        pass
    aengine = create_async_engine(url(migrated, "asyncpg"), poolclass=NullPool)
    async with aengine.connect() as ac:
        pass
    closed += [ac, aengine.connect()]
    for connection in closed:
        with pytest.raises(WrongConnection, match=r"(closed|not started|open one)"):
            await task.using(on=connection).enqueue()
    for connection in (sync, c):
        with pytest.raises(WrongConnection, match=r"(closed|open one)"):
            app.sync.enqueue(task.job(), on=connection)


async def test_another_database_and_other_things_are_refused(app: App, task: Any) -> None:
    sqlite = create_engine("sqlite://")
    with Session(sqlite) as session, sqlite.connect() as connection:
        for wrong in (session, connection):
            with pytest.raises(WrongConnection, match="sqlite, not PostgreSQL"):
                app.sync.enqueue(task.job(), on=wrong)
    with Session() as unbound, pytest.raises(WrongConnection, match="bind"):
        app.sync.enqueue(task.job(), on=unbound)
    for wrong in (object(), "postgresql://", sqlite, app, 1):
        with pytest.raises(WrongConnection, match="Pass a psycopg or asyncpg connection"):
            app.sync.enqueue(task.job(), on=wrong)


async def test_a_database_without_the_schema_says_so(
    app: App, task: Any, direct_dsn: str, sql: Sql
) -> None:
    await sql("drop schema leasework cascade")
    for name in ("psycopg", "asyncpg", "sqlalchemy Session"):
        async with ALL[name](direct_dsn) as way:
            with pytest.raises(SchemaMissing, match="Pass a connection to leasework's database"):
                await task.using(on=way.connection).enqueue()


async def test_a_session_that_rolled_itself_back_is_refused(
    app: App, task: Any, migrated: str
) -> None:
    engine = create_engine(url(migrated, "psycopg"), poolclass=NullPool)
    with Session(engine) as session:
        session.begin_nested()
        session.execute(text("select 1"))
        session.close()
        job = app.sync.enqueue(task.job(), on=session)  # a closed Session begins anew
        session.commit()
    assert await app.get(job.id)
