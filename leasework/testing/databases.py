"""Databases for tests: fresh ones, second sessions, and an application that lets go of one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import psycopg

from leasework.app import App
from leasework.env import Env
from leasework.errors import ConfigError
from leasework.pg.connection.dsn import read_dsn
from leasework.pg.schema.scratch import empty, scratch_database

_CLOSE_SECONDS = 10.0


class RivalSession:
    """A second session, which :func:`open_rival_session` opens."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection: psycopg.Connection[Any] = connection
        """In autocommit."""
        self.pid: int = connection.info.backend_pid
        """Of its server process."""

    def execute(self, query: str, parameters: Any = None) -> list[Any]:
        """Run one statement in its own transaction and return the rows."""
        cursor = self.connection.execute(query.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def postgres_dsn(
    server: str | None = None, *, schema: str = "leasework", template: str | None = None
) -> Iterator[str]:
    """Create a database with leasework's schema, yield its DSN, a ``postgresql://`` URL, and drop
    it at the end.

    ``server`` is the DSN of a server whose role may create databases. The default is the
    environment's ``LEASEWORK_TEST_DSN``, or else the embedded PostgreSQL, started on first use.

    ``template`` is the DSN of a database on the same server to copy, for example one that an
    earlier ``postgres_dsn`` has made. That is faster than to apply the schema. The copy has the
    template's tables, rows and schema. Nobody may be connected to the template meanwhile::

        with postgres_dsn() as template:
            with postgres_dsn(template=template) as dsn: ...

    Raises ConfigError for a wrong ``schema``, and ServerError, such as WrongDsn or
    PermissionDenied.
    """
    server = server or os.environ.get("LEASEWORK_TEST_DSN") or "embedded"
    server = _server().dsn if server == "embedded" else server
    name = f"leasework_test_{Env().new_id().hex}"
    copied = read_dsn(template)["dbname"] if template else None
    with scratch_database(server, name, schema, copied) as dsn:
        yield dsn


@cache
def _server() -> Any:
    from leasework.embedded import EmbeddedServer

    return EmbeddedServer.start()  # stops when the last process that uses it exits


async def clear(app: App) -> None:
    """Delete all jobs, schedules, deadlines and events of the app's database, with their history,
    and close the connections of the running event loop. Tokens keep growing.

    For tests that share one database, such as those of Django. The fixture ``leasework_app`` does
    not need it, because each of its tests has a database of its own. Raises ConfigError if the
    database's name does not contain the word ``test``, or if a node is alive there, and Conflict if
    a transaction, perhaps of the test itself, keeps the tables for 5 seconds.
    """
    settings = await app.located()
    await app.close()  # the process takes part with its locks, too
    await asyncio.to_thread(empty, settings.dsn, settings.schema)


@contextmanager
def open_rival_session(database: App | str) -> Iterator[RivalSession]:
    """Open a second real session on the database of ``database`` (an App or a DSN), for tests of
    locks. The DSN must be of the server itself: a pooler shares sessions between its clients.
    Raises ConfigError for an App that has not looked for its database."""
    dsn = database if isinstance(database, str) else database.current_dsn()
    if dsn in ("", "embedded"):
        raise ConfigError(
            "the App has not looked for its database yet", do="Call await app.dsn() first"
        )
    with psycopg.connect(dsn, autocommit=True, application_name="rival") as connection:
        yield RivalSession(connection)


def refuse_uncommitted(app: App, name: str) -> None:
    """Raise ConfigError inside Django's ``transaction.atomic``, whose jobs nobody else sees."""
    if app.sync.joined(None) is not None:
        raise ConfigError(
            f"{name} sees only committed jobs, and this test is inside transaction.atomic",
            do="Query leasework.integrations.django.models: Job.objects.get(task_name=…), or use a "
            "TransactionTestCase (with pytest-django: django_db(transaction=True))",
        )


async def refuse_uncommitted_async(app: App, name: str) -> None:
    """The same in a coroutine. Django's transaction is that of the test's thread."""
    if getattr(app, "database", ""):
        from asgiref.sync import sync_to_async

        await sync_to_async(refuse_uncommitted)(app, name)


@contextmanager
def connected_to(app: App, dsn: str) -> Iterator[App]:
    """Let ``app`` use the database ``dsn``, and close all its connections at the end, whichever
    event loops opened them. Call it in no event loop. Raises ConfigError for the app of a Django
    project."""
    if getattr(app, "database", ""):  # a DjangoApp, whose jobs are in Django's transactions
        raise ConfigError(
            "a Django project's app cannot leave Django's database, not even for a test",
            do="Use Django's test runner, which makes a test database with leasework's tables",
        )
    before = vars(app.settings)
    app.test_database = read_dsn(dsn).get("dbname", "")
    try:
        app._use_settings({**vars(app.given), "dsn": dsn})
    except BaseException:
        app.test_database = ""
        raise
    try:
        yield app
    finally:
        app.test_database = ""
        app.desk.close()  # with what a failed test has not released
        for loop in app.loops():
            if loop.is_running():  # in another thread, as that of app.sync
                asyncio.run_coroutine_threadsafe(app.close(), loop).result(_CLOSE_SECONDS)
            else:
                loop.run_until_complete(app.close())
        app._use_settings(before)
