"""``rival_session``: tests of locks need two sessions, and often have one."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, StaticPool

from leasework import App
from leasework.errors import ConfigError, SameSession
from leasework.testing import open_rival_session
from tests.pg.drivers import SYNC, url
from tests.support.pgbouncer import PgBouncer


async def test_the_rival_is_another_session_on_every_sync_driver(
    direct_dsn: str, rival_session: Any
) -> None:
    for name, open_way in SYNC.items():
        async with open_way(direct_dsn) as way:
            rival = rival_session(direct_dsn, beside=way.connection)
            way.execute("select pg_advisory_xact_lock(1)")
            assert rival.execute("select pg_try_advisory_lock(%s)", [1]) == [(False,)], name
            way.rollback()
            assert rival.execute("select pg_try_advisory_xact_lock(1)") == [(True,)], name


async def test_the_locks_of_an_application_are_seen_by_the_rival(
    migrated: str, rival_session: Any
) -> None:
    app = App(migrated)
    async with app.advisory_lock(7) as lock:
        rival = rival_session(app, beside=lock.pid)
        assert rival.execute("select pg_try_advisory_lock(7)") == [(False,)]
    await app.close()


def test_a_test_whose_two_sessions_are_one_is_told(direct_dsn: str, rival_session: Any) -> None:
    """What this replaces: both "sessions" come from one connection, so that both get the lock."""
    engine = create_engine(url(direct_dsn, "psycopg"), poolclass=StaticPool)
    with Session(engine) as one, Session(engine) as two:
        lock = "select pg_try_advisory_lock(42), pg_backend_pid()"
        answers = [s.connection().exec_driver_sql(lock).one() for s in (one, two)]
        assert [got for got, _ in answers] == [True, True], "the test that cannot fail"
        rival = rival_session(direct_dsn, beside=one)
        assert rival.execute("select pg_try_advisory_lock(42)") == [(False,)]
    with pytest.raises(SameSession, match="both are the same session") as same:
        rival.differs_from(rival.connection)
    assert isinstance(same.value, AssertionError)
    with pytest.raises(SameSession):
        rival.differs_from(rival.pid)
    engine.dispose()


async def test_an_async_session_is_named_by_its_pid(direct_dsn: str, rival_session: Any) -> None:
    engine = create_async_engine(url(direct_dsn, "asyncpg"), poolclass=NullPool)
    async with engine.connect() as connection:
        assert isinstance(connection, AsyncConnection)
        with pytest.raises(ConfigError, match="pg_backend_pid"):
            rival_session(direct_dsn, beside=connection)
        pid = (await connection.exec_driver_sql("select pg_backend_pid()")).scalar_one()
        rival_session(direct_dsn, beside=pid)
    with pytest.raises(ConfigError, match=r"builtins\.object"):
        rival_session(direct_dsn, beside=object())


def test_a_rival_behind_a_pooler_is_refused(pgbouncer: PgBouncer) -> None:
    with (
        pytest.raises(SameSession, match="goes through a pooler"),
        open_rival_session(pgbouncer.dsn),
    ):
        pass


def test_the_rival_ends_with_its_block(direct_dsn: str) -> None:
    with open_rival_session(direct_dsn) as rival:
        assert rival.execute("set lock_timeout = 0") == []
    with pytest.raises(psycopg.OperationalError):
        rival.execute("select 1")
