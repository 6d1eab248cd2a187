"""``leasework.testing``: what users write the tests of their applications with."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from sqlalchemy import create_engine, make_url, text

from leasework import App, Backoff, Context, Deadline, Rate, Snooze
from leasework.errors import (
    ConfigError,
    NotEnqueued,
    PermissionDenied,
    WaitTimeout,
    WrongConnection,
)
from leasework.model.states import State
from leasework.pg.connection.dsn import as_url, read_dsn
from leasework.testing import assert_enqueued, drain, postgres_dsn, sync
from leasework.testing.databases import connected_to
from tests.support.procs import Processes
from tests.support.wait import forever


# -- drain -----------------------------------------------------------------------------------------
async def test_drain_runs_what_waits_and_what_that_enqueues(app: App) -> None:
    @app.task(name="leaf")
    def leaf(n: int) -> int:
        return n

    @app.task(name="root", queue="other")
    async def root(ctx: Context) -> None:
        await app.enqueue_many([leaf.job(n=n) for n in range(3)])

    assert await drain(app) == []
    await root.enqueue()
    records = await drain(app)
    assert [record.task_name for record in records] == ["root", "leaf", "leaf", "leaf"]
    assert {record.state for record in records} == {State.COMPLETED}
    assert sorted(record.result for record in records[1:]) == [0, 1, 2]
    assert await drain(app) == []


async def test_drain_leaves_what_is_not_due_and_runs_no_schedules(app: App) -> None:
    @app.every(seconds=1)
    @app.task(name="t")
    async def work(how: str = "") -> Any:
        if how == "fail":
            raise LookupError
        return Snooze(60) if how == "snooze" else 1

    later = await work.using(run_in=60).enqueue()
    for how in ("fail", "snooze"):
        await work.enqueue(how=how)
    records = await drain(app)
    assert [record.state for record in records] == [State.RETRYABLE, State.SCHEDULED]
    assert (await later.get()).state is State.SCHEDULED
    assert len(await app.jobs()) == 3


async def test_drain_goes_on_while_retries_are_due(app: App) -> None:
    @app.task(name="t", backoff=Backoff(base=0, jitter=0))
    async def work(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise LookupError
        return ctx.attempt

    job = await work.enqueue()
    while (await job.get()).state is not State.COMPLETED:
        await drain(app)
    assert (await job.get()).result == 3


async def test_drain_of_ones_own_queues_leaves_the_others(app: App) -> None:
    @app.task(name="a", queue="a", history=False)
    async def a() -> None: ...

    @app.task(name="b", queue="b")
    async def b() -> None: ...

    await a.enqueue()
    left = await b.enqueue()
    assert await drain(app, queues={"a": 1}) == []
    assert (await left.get()).state is State.AVAILABLE
    assert [record.id for record in await drain(app)] == [left.id]


async def test_drain_gives_up_after_its_time_and_loses_nothing(app: App) -> None:
    @app.task(name="t")
    async def work() -> None:
        await forever()

    job = await work.enqueue()
    with pytest.raises(WaitTimeout, match=r"jobs were left after 0\.5 s.*'t'"):
        await drain(app, timeout=0.5)
    assert (await job.get()).state in (State.AVAILABLE, State.SCHEDULED)


# -- time ------------------------------------------------------------------------------------------
async def test_a_delayed_job_runs_when_its_time_has_come_and_not_before(app: App) -> None:
    @app.task(name="t")
    async def work(ctx: Context) -> str:
        return ctx.scheduled_for.isoformat()

    env = app.env
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    exact = await work.using(run_at=tomorrow).enqueue()
    await work.using(run_in=3600).enqueue()
    assert await drain(app, until=timedelta(minutes=59)) == []
    assert len(await drain(app, until=timedelta(minutes=61))) == 1
    assert await drain(app, until=tomorrow - timedelta(microseconds=1)) == []
    [record] = await drain(app, until=tomorrow)
    assert app.env is env
    assert (record.id, record.result) == (exact.id, tomorrow.isoformat())
    assert record.completed_at == tomorrow


async def test_each_thing_happens_at_its_own_moment(app: App) -> None:
    seen: list[tuple[str, int]] = []
    began = datetime.now(UTC)

    @app.task(name="t", backoff=Backoff(base=1800, factor=1, jitter=0))
    async def work(ctx: Context, name: str) -> Any:
        minutes = (ctx.scheduled_for - began) / timedelta(minutes=1)
        seen.append((name, round(minutes)))
        if name == "retry" and ctx.attempt < 3:
            raise LookupError
        if name == "parent":
            await work.using(run_in=600).enqueue(name="child")
        return Snooze(2400) if name == "snooze" and minutes < 1 else None

    await work.using(run_in=1200).enqueue(name="parent")
    for name in ("retry", "snooze"):
        await work.enqueue(name=name)
    await drain(app, until=timedelta(hours=2))
    assert seen[2:] == [
        ("parent", 20),
        ("retry", 30),
        ("child", 30),
        ("snooze", 40),
        ("retry", 60),
    ] or seen[2:] == [
        ("parent", 20),
        ("child", 30),
        ("retry", 30),
        ("snooze", 40),
        ("retry", 60),
    ]


async def test_a_throttled_limit_opens_when_its_time_has_come(app: App) -> None:
    vendor = app.limit("vendor", concurrency=1, rate=Rate(1000, per=1.0))
    ran: list[int] = []

    @app.task(limits=[vendor])
    async def post(number: int) -> None:
        ran.append(number)
        if len(ran) in (1, 3):
            raise vendor.throttled(1200)

    await app.enqueue_many([post.job(1), post.job(2)])
    [record] = await drain(app)
    assert (record.attempt, ran) == (0, [1])
    assert await drain(app, until=timedelta(minutes=19)) == []
    one, two = await drain(app, until=timedelta(minutes=39))
    assert (one.state, two.attempt, ran) == ("completed", 0, [1, 1, 2])
    [two] = await drain(app, until=timedelta(minutes=41))
    assert (two.state, ran) == ("completed", [1, 1, 2, 2])


async def test_a_moment_lasts_until_nothing_is_due_any_more(app: App) -> None:
    @app.task(name="t", backoff=Backoff(base=0, jitter=0), max_attempts=4)
    async def work(ctx: Context) -> Any:
        if ctx.attempt < 3:
            raise LookupError
        if ctx.attempt == 3:
            await work.using(run_in=60).enqueue()
        return ctx.attempt

    await work.using(run_in=60, max_attempts=3).enqueue()
    one, two = await drain(app, until=timedelta(minutes=2))
    assert (one.result, two.attempt) == (3, 3)


async def test_a_deadline_is_missed_when_time_passes(app: App) -> None:
    @app.task(name="late")
    async def late(breach: dict[str, Any]) -> None: ...

    @app.task(name="t", deadline=Deadline(minutes=10, since="enqueued", on_breach=late))
    async def work() -> None: ...

    await work.using(run_in=1200).enqueue()
    assert await drain(app, until=timedelta(minutes=9)) == []
    records = await drain(app, until=timedelta(minutes=30))
    assert [record.task_name for record in records] == ["late", "t"]


@pytest.mark.parametrize("until", [datetime(2030, 1, 1), 60, timedelta(seconds=-1)])
async def test_time_moves_on_to_a_moment_ahead(app: App, until: Any) -> None:
    with pytest.raises(ConfigError, match="until is"):
        await drain(app, until=until)
    assert app.env.due_now() is None


# -- without an event loop -------------------------------------------------------------------------
def test_without_an_event_loop_drain_and_assert_enqueued_are_plain_functions(
    postgres: Any, migrated: str
) -> None:
    app = App()

    @app.task(name="send")
    def send(to: str) -> str:
        return f"sent to {to}"

    with connected_to(app, migrated):
        app.sync.enqueue(send.using(run_in=60).job(to="kim"))
        sync.assert_enqueued(app, send, to="kim")
        with pytest.raises(
            NotEnqueued, match=rf"in the database {read_dsn(migrated)['dbname']}, no job"
        ):
            sync.assert_enqueued(app, send, to="lee")
        assert sync.drain(app, queues={"default": 1}) == []
        [record] = sync.drain(app, until=timedelta(minutes=1))
        assert record.result == "sent to kim"


def test_in_a_test_a_connection_to_another_database_is_refused(postgres: Any) -> None:
    app = App()

    @app.task(name="send")
    def send() -> None: ...

    with postgres_dsn(postgres.dsn) as ours, postgres_dsn(postgres.dsn) as other:
        engine = create_engine(make_url(other).set(drivername="postgresql+psycopg"))
        with connected_to(app, ours), psycopg.connect(other) as plain, engine.begin() as wrapped:
            for connection in plain, wrapped:
                with pytest.raises(WrongConnection, match=f"database {read_dsn(ours)['dbname']}"):
                    app.sync.enqueue(send.job(), on=connection)
            for encoding in "UTF8", "LATIN1", "SQL_ASCII":
                with psycopg.connect(ours, client_encoding=encoding) as right:
                    app.sync.enqueue(send.job(), on=right)
            assert len(app.sync.jobs()) == 3
        with connected_to(app, other):
            assert app.sync.jobs() == []
        engine.dispose()
        app.configure(dsn=ours)  # no longer in a test: the caller knows where the tables are
        with psycopg.connect(other) as plain:
            app.sync.enqueue(send.job(), on=plain)
        app.sync.close()


# -- assert_enqueued -------------------------------------------------------------------------------
async def test_an_enqueued_job_is_found_by_some_of_its_arguments(app: App) -> None:
    @app.task(name="send")
    async def send(to: str, lines: Any = None) -> None: ...

    first = await send.enqueue(to="kim", lines=(1, 2))
    second = await send.enqueue(to="lee")
    assert (await assert_enqueued(app, send, to="kim", lines=(1, 2))).id == first.id
    assert (await assert_enqueued(app, send)).id == second.id
    assert (await assert_enqueued(app, "send", to="lee")).id == second.id
    await drain(app)
    assert (await assert_enqueued(app, send, to="lee")).state is State.COMPLETED


async def test_arguments_are_compared_as_the_handler_annotates_them(app: App) -> None:
    @app.task(name="charge")
    async def charge(order: UUID, due: datetime) -> None: ...

    order, due = uuid4(), datetime(2030, 1, 1, tzinfo=UTC)
    job = await charge.enqueue(order, due)
    assert (await assert_enqueued(app, "charge", order=order, due=due)).id == job.id
    with pytest.raises(NotEnqueued):
        await assert_enqueued(app, charge, order=uuid4())


async def test_arguments_may_have_any_name(app: App) -> None:
    @app.task(name="t")
    async def work(app: str, task: str) -> None: ...

    await work.enqueue(app="shop", task="x")
    assert (await assert_enqueued(app, work, app="shop", task="x")).task_name == "t"


async def test_a_job_that_is_missing_fails_with_what_is_there(app: App) -> None:
    @app.task(name="send")
    async def send(to: str) -> None: ...

    with pytest.raises(AssertionError, match=r"no job of send .*none at all"):
        await assert_enqueued(app, send, to="kim")
    await send.enqueue(to="lee")
    with pytest.raises(NotEnqueued, match=r'"to": "kim".*1 with other arguments: {"to": "lee"}'):
        await assert_enqueued(app, send, to="kim")
    with pytest.raises(NotEnqueued):
        await assert_enqueued(app, send, to="lee", cc=None)


# -- databases -------------------------------------------------------------------------------------
async def test_each_use_has_a_fresh_database_and_leaves_none(postgres: Any) -> None:
    def databases() -> int:
        with psycopg.connect(postgres.dsn) as connection:
            rows = connection.execute(
                "select count(*) from pg_database where datname like 'leasework_test_%'"
            )
            return int(rows.fetchone()[0])  # type: ignore[index]

    with postgres_dsn(postgres.dsn) as one, postgres_dsn(postgres.dsn, schema="other") as two:
        assert databases() == 2
        for dsn, schema in ((one, "leasework"), (two, "other")):
            app = App(dsn, schema=schema)
            assert await app.jobs() == [] and await app.verify_schema() == []
            await app.close()
        forgotten = psycopg.connect(one)
    assert databases() == 0
    forgotten.close()


async def test_a_copy_has_what_its_template_has(postgres: Any) -> None:
    with postgres_dsn(postgres.dsn, schema="other") as template:
        with psycopg.connect(template) as connection:
            connection.execute("create table account as select 7 as id")
        for _ in range(2):
            with postgres_dsn(postgres.dsn, template=template) as dsn:
                with psycopg.connect(dsn) as connection:
                    assert connection.execute("delete from account returning id").fetchall() == [
                        (7,)
                    ]
                app = App(dsn, schema="other")
                assert await app.jobs() == [] and await app.verify_schema() == []
                await app.close()


def test_an_app_lets_go_of_a_test_s_database_in_all_event_loops(postgres: Any) -> None:
    app = App("postgresql://elsewhere")
    before = app.settings

    async def use() -> None:
        assert await app.jobs() == []

    with asyncio.Runner() as runner:
        for _ in range(2):
            with postgres_dsn(postgres.dsn) as dsn, connected_to(app, dsn):
                runner.run(use())  # a loop that stays open
                asyncio.run(use())
                assert app.sync.jobs() == []
                with app.sync.lock("one"):
                    pass
            assert app.loops() == [] and app.settings == before


def test_a_lock_that_a_failed_test_did_not_release_leaves_the_next_test_alone(
    postgres: Any,
) -> None:
    app = App("postgresql://elsewhere")
    for _ in range(2):
        with postgres_dsn(postgres.dsn) as dsn, connected_to(app, dsn):
            app.sync.lock("one").acquire()


async def test_the_dsn_is_a_url_that_sqlalchemy_and_asyncpg_take(postgres: Any) -> None:
    with postgres_dsn(postgres.dsn) as url, postgres_dsn(make_conninfo(postgres.dsn)) as keyed:
        for dsn in (url, keyed):
            assert dsn.startswith("postgresql://")
            engine = create_engine(make_url(dsn).set(drivername="postgresql+psycopg"))
            with engine.connect() as connection:
                assert connection.execute(text("select count(*) from leasework.job")).scalar() == 0
            engine.dispose()
            other = await asyncpg.connect(dsn)
            assert await other.fetchval("select count(*) from leasework.job") == 0
            await other.close()


@pytest.mark.parametrize(
    "parts",
    [
        {"user": "a b", "password": "p@:/?#%", "host": "db.example", "port": "5433", "dbname": "d"},
        {"user": "u", "host": "::1", "dbname": "d"},
        {"host": "/a folder/x", "port": "1", "dbname": "d", "options": "-c a=b -c c=d"},
        {"user": "u", "host": "one,two", "port": "1,2", "dbname": "d/e"},
        {"dbname": "d"},
        {"user": "u"},
    ],
)
def test_the_parts_of_a_dsn_survive_as_a_url(parts: dict[str, str]) -> None:
    assert read_dsn(as_url(parts)) == parts


async def test_an_app_is_pointed_at_another_database_once_it_is_closed(postgres: Any) -> None:
    app = App()
    for _ in range(2):
        with postgres_dsn(postgres.dsn) as dsn:
            app.configure(dsn=dsn)
            assert await app.jobs() == []
            async with app.lock("one"):
                with pytest.raises(ConfigError, match=r"connections open.*app\.close"):
                    app.configure(dsn="postgresql://elsewhere")
            assert await asyncio.to_thread(app.sync.jobs) == []
            await app.close()
            with pytest.raises(ConfigError, match=r"connections open.*app\.sync\.close"):
                app.configure(dsn="postgresql://elsewhere")
            await asyncio.to_thread(app.sync.close)


def test_what_a_closed_loop_left_open_does_not_bind_the_app(postgres: Any) -> None:
    app = App()
    for _ in range(2):
        with postgres_dsn(postgres.dsn) as dsn:
            app.configure(dsn=dsn)
            with asyncio.Runner() as runner:
                assert runner.run(app.jobs()) == []
            assert runner


def test_a_role_that_may_create_no_database_is_told_so(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as owner:
        owner.execute("create role humble login")
        try:
            dsn = psycopg.conninfo.make_conninfo(migrated, user="humble")
            with pytest.raises(PermissionDenied), postgres_dsn(dsn):
                raise AssertionError("a database out of nothing")
        finally:
            owner.execute("drop role humble")


def test_without_a_server_the_embedded_one_is_used(procs: Processes) -> None:
    home = Path(tempfile.mkdtemp(prefix="lh-home-"))
    home.chmod(0o711)
    code = """if True:
        import asyncio
        from leasework import App
        from leasework.testing import drain, postgres_dsn

        async def main(dsn):
            app = App(dsn)
            @app.task(name="t")
            async def work() -> int:
                return 42
            await work.enqueue()
            print([record.result for record in await drain(app)])

        for _ in range(2):
            with postgres_dsn() as dsn:
                asyncio.run(main(dsn))
    """
    env = {"LEASEWORK_HOME": str(home), "LEASEWORK_TEST_DSN": ""}
    try:
        process = procs.start(code=code, env=env)
        process.wait_for(r"\[42\]", 30, count=2)
        assert process.wait(60) == 0
    finally:
        procs.close()
        shutil.rmtree(home, ignore_errors=True)
