"""Fixtures for tests on a real server: an application, its schema, and plain connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import psycopg
import pytest
import uvloop

from leasework import App
from tests.pg.bench import Bench
from tests.pg.claim_worker import Worker


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run a test marked ``every_loop`` on each event loop, and all others on asyncio's."""
    if item.get_closest_marker("every_loop"):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture
async def app(dsn: str, migrated: str) -> AsyncIterator[App]:
    """An application on a new schema, through the pooler if one is selected."""
    app = App(dsn)
    yield app
    await app.close()


@pytest.fixture
async def sql(migrated: str) -> AsyncIterator[Callable[..., Awaitable[list[Any]]]]:
    """``await sql("select …", {…})`` runs one statement, commits it, and returns its rows."""
    async with await psycopg.AsyncConnection.connect(migrated, autocommit=True) as connection:

        async def run(text: str, params: Any = None) -> list[Any]:
            cursor = await connection.execute(text.encode(), params)
            return await cursor.fetchall() if cursor.description else []

        yield run


@pytest.fixture
async def bench(app: App, migrated: str) -> AsyncIterator[Bench]:
    """The store without any service: the test makes each step of a job's life itself."""
    async with await psycopg.AsyncConnection.connect(migrated) as user:
        yield await Bench.make(await app.store(), user)


@pytest.fixture
async def worker(bench: Bench, sql: Callable[..., Awaitable[list[Any]]]) -> Worker:
    """Its claims begin behind some seats already: it does move on."""
    worker = Worker(bench, sql)
    await worker.get_ahead()
    return worker
