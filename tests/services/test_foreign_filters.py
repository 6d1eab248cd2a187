"""A user's logging filter that raises takes its log lines away, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from leasework.errors import JobFailed, LostLease, Unavailable
from leasework.node.light import LightNode
from tests.services.several import Database, several_apps
from tests.support.wait import forever, until_async


class Broken(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        getattr(record, "fields", {})["request"] = object()  # no JSON
        raise KeyError("a field that this record does not have")


@pytest.fixture
def broken_filter() -> Iterator[None]:
    logger, broken = logging.getLogger("leasework"), Broken()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addFilter(broken)
    yield
    logger.removeFilter(broken)
    logger.setLevel(level)


@pytest.fixture
async def database(dsn: str, migrated: str) -> AsyncIterator[Database]:
    async with several_apps(dsn, migrated) as database:
        yield database


async def test_slots_are_given_back_and_a_fenced_process_comes_back(
    database, broken_filter, capsys
):
    app = database.app()

    @app.task(name="boom", max_attempts=1)
    async def boom() -> None:
        raise ValueError("boom")

    @app.task(name="fine")
    async def fine() -> str:
        return "fine"

    async with app.node(queues={"default": 1}) as node:
        for _ in range(2):
            with pytest.raises(JobFailed, match="boom"):
                await (await boom.enqueue()).wait(timeout=30)
        assert await (await fine.enqueue()).wait(timeout=30) == "fine"
        before = node.guard.membership.identity.id
        await database.sql("delete from leasework.node")

        def is_back() -> bool:
            me = node.guard.membership
            return me.identity.id != before and me.token is not None

        await until_async(is_back, 60, "the process to take part under another identity")
        assert await (await fine.enqueue()).wait(timeout=30) == "fine"
        await until_async(lambda: database.events("node_fenced"), 30)
    assert len(await database.events("job_discarded")) == 2, "their rows are written"
    assert "the log line of node_fenced failed: KeyError" in capsys.readouterr().err


async def test_a_lock_without_a_node_survives_its_fencing(database, broken_filter):
    app = database.app()
    async with asyncio.timeout(60):
        with pytest.raises(LostLease):
            async with app.lock("one", timeout=30):
                await database.sql("delete from leasework.node")
                await forever()
    async with app.lock("two", timeout=60) as lock:
        assert lock.held


async def test_a_start_whose_guard_ends_raises_and_does_not_wait_for_ever(database):
    app = database.app()
    desk = app.desk

    def no_store(*given: Any) -> Any:
        raise OSError("no more files")

    light = LightNode(desk._located, no_store, desk._work_store, app.env, "0")
    async with asyncio.timeout(60):
        with pytest.raises(OSError, match="no more files"):
            await asyncio.to_thread(light.start)

    node = await app.make_node()
    node.guard._make_store = no_store
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable, match="no more files"):
            await node.start()
