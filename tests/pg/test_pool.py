"""Several callers and one connection."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from leasework.config import Settings
from leasework.errors import BadPayload, Unavailable
from leasework.pg.connection import session as sessions
from leasework.pg.connection.fast.exchange import Answer
from leasework.pg.connection.pool import Pool
from leasework.pg.connection.session import Session
from leasework.pg.sql import query
from tests.support.wait import until_async

WAKE = "job/wake", {"queues": ["default"]}
JOB = {
    "queue": "default", "task": "t", "priority": 0, "max_attempts": 1, "timeout": None,
    "requeue": None, "history": True, "payload": "{}", "now": None,
}  # fmt: skip


@pytest.fixture
async def pool(migrated: str) -> AsyncIterator[Pool]:
    pool = Pool(Settings(dsn=migrated), "work", 1)
    await pool.fetch(*WAKE)
    yield pool
    async with asyncio.timeout(60):  # it waits for every turn that was taken
        await pool.close()


@pytest.fixture
async def other(migrated: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """In a transaction that keeps the table of jobs locked until it ends."""
    async with await psycopg.AsyncConnection.connect(migrated) as connection:
        await connection.execute("lock leasework.job in access exclusive mode")
        yield connection


async def jobs(connection: psycopg.AsyncConnection) -> int:
    row = await (await connection.execute("select count(*) from leasework.job")).fetchone()
    assert row is not None
    return int(row[0])


def enqueue(pool: Pool, timeout: float = 60.0, **more: Any) -> asyncio.Task[Any]:
    call = pool.fetch("job/enqueue_plain", {**JOB, "id": uuid4().hex, **more}, timeout)
    return asyncio.ensure_future(call)


def session_of(pool: Pool) -> Session:
    (session,) = pool._open
    return session


def is_busy(session: Session) -> bool:
    status = session.connection.pgconn.transaction_status
    return status == psycopg.pq.TransactionStatus.ACTIVE


async def blocked(pool: Pool) -> asyncio.Task[Any]:
    """An enqueue that waits for the table's lock, on the only connection."""
    call, session = enqueue(pool), session_of(pool)
    await until_async(lambda: is_busy(session), 30, "the statement to wait")
    return call


async def test_the_server_has_the_next_statement_while_the_rows_of_the_last_are_read(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy: list[bool] = []
    read = sessions.read

    def watched(answer: Answer) -> Any:
        busy.append(is_busy(session_of(pool)))
        return read(answer)

    monkeypatch.setattr(sessions, "read", watched)
    await asyncio.gather(*[pool.fetch(*WAKE) for _ in range(3)])
    assert busy == [True, True, False]


@pytest.mark.parametrize("waits", [False, True], ids=["sent at once", "waits for its turn"])
async def test_a_call_that_is_cancelled_goes_on_to_its_end_behind_the_scenes(
    pool: Pool, other: psycopg.AsyncConnection, waits: bool
) -> None:
    session = session_of(pool)
    before = [enqueue(pool)] if waits else []
    await asyncio.sleep(0)
    call = enqueue(pool)
    await asyncio.sleep(0)
    await until_async(lambda: is_busy(session), 30, "the statement to wait")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert is_busy(session)
    await other.rollback()
    await asyncio.gather(*before)
    await pool.fetch(*WAKE)
    assert session_of(pool) is session
    assert await jobs(other) == 1 + waits


async def test_a_pool_closes_when_what_was_given_up_has_ended(
    pool: Pool, other: psycopg.AsyncConnection
) -> None:
    call = await blocked(pool)
    call.cancel()
    closing = asyncio.ensure_future(pool.close())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not closing.done()
    await other.rollback()
    await closing
    assert await jobs(other) == 1


async def test_whoever_calls_while_a_pool_waits_to_close_is_answered_and_leaves_nothing_open(
    pool: Pool, other: psycopg.AsyncConnection
) -> None:
    call = await blocked(pool)
    closing = asyncio.ensure_future(pool.close())
    await asyncio.sleep(0)
    later = [enqueue(pool) for _ in range(2)]
    await asyncio.sleep(0)
    await other.rollback()
    async with asyncio.timeout(60):
        await asyncio.gather(call, closing, *later)
    assert not pool._open
    assert await jobs(other) == 3


async def test_two_may_close_a_pool_and_one_of_them_may_give_up(
    migrated: str, other: psycopg.AsyncConnection
) -> None:
    pool = Pool(Settings(dsn=migrated), "work", 2)
    await asyncio.gather(pool.fetch(*WAKE), pool.fetch(*WAKE))
    first, second = pool._open
    calls = [enqueue(pool) for _ in range(2)]
    await until_async(lambda: is_busy(first) and is_busy(second), 30, "both to wait")
    closings = [asyncio.ensure_future(pool.close()) for _ in range(3)]
    await asyncio.sleep(0)
    closings.pop(0).cancel()
    await other.rollback()
    async with asyncio.timeout(60):
        await asyncio.gather(*calls, *closings)
    assert not pool._open
    assert await jobs(other) == 2


async def test_a_statement_that_is_late_leaves_its_turn_to_another_connection(
    pool: Pool, other: psycopg.AsyncConnection
) -> None:
    session = session_of(pool)
    with pytest.raises(Unavailable, match=r"did not answer within 0\.2 s") as raised:
        await enqueue(pool, 0.2)
    assert raised.value.sent
    await pool.fetch(*WAKE)
    assert session_of(pool) is not session


async def test_what_cannot_be_sent_gives_its_turn_back(pool: Pool) -> None:
    for _ in range(3):
        with pytest.raises(BadPayload):
            await enqueue(pool, queue="a\0b")
    await pool.fetch(*WAKE)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard)
    )
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_call_has_its_time_limit_also_in_a_process_without_a_free_descriptor(
    pool: Pool, other: psycopg.AsyncConnection
) -> None:
    loop = asyncio.get_running_loop()
    query("job/enqueue_plain", "leasework")  # read from its file once
    with no_descriptor_left():
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(0)
        began = loop.time()
        with pytest.raises(Unavailable):
            await pool.fetch("job/enqueue_plain", {**JOB, "id": uuid4()}, 0.3)
        assert 0.3 <= loop.time() - began < 3, "the server's own limit ended it, or nothing began"
