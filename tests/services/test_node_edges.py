"""Starts and stops at the wrong moment, and handlers that raise what is no Exception."""

from __future__ import annotations

import asyncio
import sys

import psycopg
import pytest

from leasehold import App, Context
from leasehold.errors import JobFailed
from leasehold.pg import migrate
from tests.support.wait import until_async


async def rows(dsn: str, query: str) -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        return await (await connection.execute(query.encode())).fetchall()


async def make_app(dsn: str) -> App:
    app = App(dsn)
    await migrate.apply(app.settings)
    return app


async def test_a_start_that_is_cancelled_leaves_no_node_and_no_leader(dsn: str):
    app = await make_app(dsn)
    for steps in (1, 3, 10, 30, 100):
        node = app.node()
        start = asyncio.create_task(node.__aenter__())
        for _ in range(steps):
            await asyncio.sleep(0.0005)
        start.cancel()
        await asyncio.wait([start])
        if not start.cancelled():  # it was faster than we
            await node.__aexit__(None, None, None)

        async def gone() -> bool:
            left = await rows(dsn, "select 1 from leasehold.node")
            led = await rows(dsn, "select 1 from leasehold.leader where node is not null")
            return not left and not led

        await until_async(gone, 5, "the half-started node to leave")
    await app.close()


async def test_an_on_drain_that_fails_is_an_event(dsn: str):
    app = await make_app(dsn)
    asked: list[bool] = []

    def on_drain(alone: bool) -> None:
        asked.append(alone)
        raise RuntimeError("not now")

    failed = "select fields ->> 'error' from leasehold.event where kind = 'callback_failed'"
    async with app.node(on_drain=on_drain) as node:
        says = "select 1 from leasehold.node where info ? 'drains'"
        await until_async(lambda: rows(dsn, says), 30, "what it says of itself")
        assert node.recorder.identity
        operator = await app.operator("somebody", "a test")
        _, ends = await operator.drain_node(node.recorder.identity.worker_id)
        assert ends
        assert await until_async(lambda: rows(dsn, failed), 30) == [("RuntimeError: not now",)]
        assert asked == [True]
    await app.close()


async def test_a_stop_during_an_acquisition_leaves_no_leader_behind(dsn: str):
    app = await make_app(dsn)
    async with app.node():
        await until_async(lambda: rows(dsn, "select 1 from leasehold.term"), 5, "a first leader")
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute("select 1 from leasehold.leader for update")
        node = app.node()
        await node.__aenter__()
        waiting = (
            "select 1 from pg_stat_activity where application_name = 'leasehold guard' "
            "and datname = current_database() and wait_event_type = 'Lock'"
        )
        await until_async(lambda: rows(dsn, waiting), 5, "its acquisition to wait for the row")
        stop = asyncio.create_task(node.__aexit__(None, None, None))
        await until_async(
            lambda: rows(dsn, "select 1 from leasehold.event where kind = 'node_stopped'"), 5
        )
        await holder.rollback()
        await stop
    assert not await rows(dsn, "select 1 from leasehold.leader where node is not null")
    await app.close()


class Panic(BaseException):
    """What foreign code may raise: no Exception."""


async def test_whatever_a_handler_raises_its_job_fails_and_its_slot_is_free(dsn: str):
    app = await make_app(dsn)

    @app.task(name="panic", max_attempts=1)
    async def panic(ctx: Context) -> None:
        raise Panic("boom")

    @app.task(name="leave", max_attempts=1)
    async def leave(ctx: Context) -> None:
        sys.exit(3)

    @app.task(name="leave_thread", max_attempts=1)
    def leave_thread() -> None:
        sys.exit(3)

    @app.task(name="exhausted", max_attempts=1)
    def exhausted() -> None:
        next(iter(()))

    @app.task(name="fine")
    async def fine() -> str:
        return "fine"

    async with app.node(queues={"default": 1}):
        for task, words in (
            (panic, "Panic: boom"),
            (leave, "SystemExit: 3"),
            (leave_thread, "SystemExit: 3"),
            (exhausted, "StopIteration"),
        ):
            job = await task.enqueue()
            with pytest.raises(JobFailed, match=words):
                await job.wait(timeout=10)
        assert await (await fine.enqueue()).wait(timeout=10) == "fine"
    await app.close()
