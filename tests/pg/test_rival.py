"""``rival_session``: tests of locks need two sessions, and often have one."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from leasework import App
from leasework.testing import open_rival_session
from tests.pg.drivers import SYNC


async def test_the_rival_is_another_session_on_every_sync_driver(
    direct_dsn: str, rival_session: Any
) -> None:
    for name, open_way in SYNC.items():
        async with open_way(direct_dsn) as way:
            rival = rival_session(direct_dsn)
            way.execute("select pg_advisory_xact_lock(1)")
            assert rival.execute("select pg_try_advisory_lock(%s)", [1]) == [(False,)], name
            way.rollback()
            assert rival.execute("select pg_try_advisory_xact_lock(1)") == [(True,)], name


async def test_the_locks_of_an_application_are_seen_by_the_rival(
    migrated: str, rival_session: Any
) -> None:
    app = App(migrated)
    async with app.advisory_lock(7):
        rival = rival_session(app)
        assert rival.execute("select pg_try_advisory_lock(7)") == [(False,)]
    await app.close()


def test_the_rival_ends_with_its_block(direct_dsn: str) -> None:
    with open_rival_session(direct_dsn) as rival:
        assert rival.execute("set lock_timeout = 0") == []
    with pytest.raises(psycopg.OperationalError):
        rival.execute("select 1")
