"""Runs each contract test on the simulated store and on PostgreSQL. Some run on PostgreSQL a second
time, through psycopg's own cursors instead of pg/connection/fast.

On PostgreSQL the tests share one database, because creating, migrating and dropping one for each
test would take most of the time. Each test gets it empty, with its sequences at the start and no
connections.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from leasework.config import Settings
from leasework.pg.connection.fast.link import Link
from leasework.pg.schema import migrate
from tests.contract.world import World, real, simulated
from tests.support import postgres as servers

_PLAIN = ("test_jobs", "test_nodes")
"""Files with statements of every kind."""
_REPORTS = "test_reports"
"""The file that runs on PostgreSQL alone, because the simulation has no reports."""
_EMPTY = """
do $$
begin
    perform pg_terminate_backend(pid, 5000) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid();
    execute (
        select 'truncate ' || string_agg(oid::regclass::text, ', ') || ' restart identity cascade'
        from pg_class
        where relnamespace = 'leasework'::regnamespace and relkind in ('r', 'p')
            and relname not in ('migration', 'lock_name')
    );
    delete from leasework.lock_name where used_at <> 'infinity';  -- the rest is the schema's own
    perform setval(oid::regclass, 1, false) from pg_class
        where relnamespace = 'leasework'::regnamespace and relkind = 'S';
end $$
"""


@pytest.fixture(scope="session")
def shared(postgres: Any) -> Iterator[str]:
    """One database with the schema, for all these tests."""
    with servers.database(postgres.dsn) as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(migrate.script(Settings().schema).encode())
        yield dsn


@pytest.fixture
def direct_dsn(shared: str) -> str:
    with psycopg.connect(shared, autocommit=True) as connection:
        connection.execute(_EMPTY)
    return shared


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world" in metafunc.fixturenames:
        name = metafunc.module.__name__.rpartition(".")[2]
        simulated = [] if name == _REPORTS else ["sim"]
        plain = ["plain"] if name in _PLAIN else []
        metafunc.parametrize("world", [*simulated, "pg", *plain], indirect=True)


@pytest_asyncio.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "sim":
        async with simulated() as made:
            yield made
        return
    if request.param == "plain":
        request.getfixturevalue("monkeypatch").setattr(Link, "plain", True)
    dsn, direct = request.getfixturevalue("dsn"), request.getfixturevalue("direct_dsn")
    async with real(dsn, direct) as made:
        yield made
