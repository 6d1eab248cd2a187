"""``on=django.db.connection``: Django's own transactions, in Django's own threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import django
import psycopg
import pytest
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from leasework import App, Backoff, SyncContext
from leasework.errors import WrongConnection
from leasework.model.states import State
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]

if not settings.configured:
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}})
    django.setup()

from django.db import OperationalError, connection, connections, transaction  # noqa: E402

from leasework.integrations.django.base import DjangoApp  # noqa: E402


@pytest.fixture
async def database(migrated: str, sql: Sql) -> Any:
    """``django.db.connection`` leads to the test's database."""
    given = conninfo_to_dict(migrated)
    connections.settings["default"].update(
        NAME=given["dbname"], HOST=given["host"], USER=given.get("user"), PORT=given.get("port")
    )
    await sql("create table effect (n int)")
    return connection


@pytest.fixture
def task(app: App) -> Any:
    @app.task(name="send")
    def send(n: int = 0) -> None: ...

    return send


def effect() -> None:
    with connection.cursor() as cursor:
        cursor.execute("insert into effect values (1)")


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run it as a view would run, and close the connection at the end as Django does."""

    def closing() -> Any:
        try:
            return work()
        finally:
            connections.close_all()
            del connections["default"]

    return await asyncio.to_thread(closing)


async def test_an_atomic_block_brings_row_and_job_together(
    app: App, task: Any, database: Any, sql: Sql
) -> None:
    def view() -> Any:
        with transaction.atomic():
            effect()
            return app.sync.enqueue(task.job(n=1), on=connection)

    job = await in_thread(view)
    assert job.created and (await app.get(job.id)).payload == {"n": 1}
    assert await sql("select n from effect") == [(1,)]


async def test_the_connection_of_another_packages_database_backend_is_djangos(
    app: App, task: Any, database: Any
) -> None:
    """Such as django_prometheus, which counts queries."""

    def view() -> Any:
        base: Any = type(connections["default"])
        kind = type("DatabaseWrapper", (base,), {"__module__": "django_prometheus.db.backends"})
        connections["default"] = kind(connections.settings["default"])
        with transaction.atomic():
            return app.sync.enqueue(task.job(), on=connections["default"])

    assert (await in_thread(view)).created


async def test_a_block_that_raises_leaves_neither(
    app: App, task: Any, database: Any, sql: Sql
) -> None:
    def view() -> None:
        with transaction.atomic():
            effect()
            app.sync.enqueue(task.job(), on=connections["default"])
            raise LookupError

    with pytest.raises(LookupError):
        await in_thread(view)
    assert await sql("select n from effect") == [] and not await app.jobs()


async def test_autocommit_and_a_broken_block_are_refused(
    app: App, task: Any, database: Any
) -> None:
    def plain() -> None:
        app.sync.enqueue(task.job(), on=connection)

    def broken() -> None:
        with transaction.atomic():
            with pytest.raises(django.db.Error), connection.cursor() as cursor:
                cursor.execute("select 1/0")
            plain()

    def marked() -> None:
        with transaction.atomic():
            transaction.set_rollback(True)
            plain()

    with pytest.raises(WrongConnection, match=r"transaction\.atomic"):
        await in_thread(plain)
    for view in (broken, marked):
        with pytest.raises(WrongConnection, match="already failed"):
            await in_thread(view)
    assert not await app.jobs()


@pytest.fixture
def closed_connections() -> Iterator[None]:
    yield
    connections.close_all()


async def test_a_handler_completes_its_job_in_an_atomic_block(
    app: App, database: Any, sql: Sql, closed_connections: None
) -> None:
    @app.task(name="pay", max_attempts=2, backoff=Backoff(base=3600))
    def pay(ctx: SyncContext) -> None:
        try:
            with transaction.atomic():
                ctx.assert_mine(connection)
                effect()
                ctx.complete(on=connection, result={"paid": True})
                if ctx.attempt == 1:
                    transaction.set_rollback(True)
        finally:
            connection.close()

    async with app.node():
        job = await pay.enqueue()
        record = await until_async(lambda: retryable(app, job.id))
        assert "rolled back" in record.last_error
        assert await sql("select n from effect") == []
        await app.retry(job.id)
        assert await job.wait(60) == {"paid": True}
    assert await sql("select n from effect") == [(1,)]


async def retryable(app: App, job: Any) -> Any:
    record = await app.get(job)
    return record if record.state is State.RETRYABLE else None


async def test_locks_are_of_the_atomic_block(app: App, database: Any, migrated: str) -> None:
    def view() -> list[Any]:
        with (
            psycopg.connect(migrated) as other,
            transaction.atomic(),
            app.sync.advisory_lock("nightly", on=connection),
        ):
            return [
                app.sync.advisory_lock("nightly", on=other).acquire(),
                app.sync.advisory_lock("nightly", on=other, timeout=0.1).acquire(),
            ]

    assert await in_thread(view) == [False, False]


async def test_outside_atomic_djangos_connection_enqueues_and_its_error_is_djangos(
    database: Any,
) -> None:
    connections.settings["default"].update(HOST="/no/such/folder")
    app = DjangoApp(name="shop")

    @app.task(name="send")
    def send() -> None: ...

    def enqueue() -> None:
        with pytest.raises(OperationalError, match="no/such/folder"):
            app.sync.enqueue(send.job())
        with pytest.raises(OperationalError, match="no/such/folder"):
            app.sync.enqueue_many([send.job()])

    await in_thread(enqueue)
    await app.close()
