"""Several callers and one connection."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from leasework.config import Settings
from leasework.errors import BadPayload, Unavailable, WrongConnection
from leasework.pg.connection.fast.link import Link
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
    rows = Link.rows

    def watched(link: Link, result: Any) -> Any:
        busy.append(is_busy(session_of(pool)))
        return rows(link, result)

    monkeypatch.setattr(Link, "rows", watched)
    await asyncio.gather(*[pool.fetch(*WAKE) for _ in range(3)])
    assert busy == [True, True, False]


async def cancelled(call: asyncio.Task[Any]) -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_call_that_is_cancelled_after_it_was_sent_goes_on_to_its_end(
    pool: Pool, other: psycopg.AsyncConnection
) -> None:
    session = session_of(pool)
    await cancelled(await blocked(pool))
    assert is_busy(session)
    await other.rollback()
    await pool.fetch(*WAKE)
    assert session_of(pool) is session
    assert await jobs(other) == 1


@pytest.mark.parametrize("kind", ["prompt", "waits", "copy"])
async def test_a_call_that_is_cancelled_before_it_was_sent_is_dropped(
    pool: Pool, other: psycopg.AsyncConnection, kind: str
) -> None:
    before = await blocked(pool)
    if kind == "copy":
        call = asyncio.ensure_future(pool.copy("job/copy", [], 1, 0))
    else:
        more = {"waits": kind == "waits"}
        call = asyncio.ensure_future(
            pool.fetch("job/enqueue_plain", {**JOB, "id": uuid4().hex}, **more)
        )
    await asyncio.sleep(0)
    await cancelled(call)
    sent = pool.statements
    await other.rollback()
    await before
    await pool.fetch(*WAKE)
    assert await jobs(other) == 1
    assert pool.statements == sent + 1


async def test_a_call_that_is_cancelled_while_its_connection_opens_leaves_it_to_the_next(
    migrated: str,
) -> None:
    pool = Pool(Settings(dsn=migrated), "user", 1)
    call = enqueue(pool)
    await asyncio.sleep(0)
    await cancelled(call)
    await until_async(lambda: bool(pool._open), 30, "the connection to be open")
    session = session_of(pool)
    await pool.fetch(*WAKE)
    assert session_of(pool) is session and pool.statements == 1
    await pool.close()


async def test_a_session_that_comes_in_the_moment_of_a_cancel_is_not_lost(pool: Pool) -> None:
    first = asyncio.ensure_future(pool._session(60))
    await asyncio.sleep(0)
    session, _ = await first
    second = asyncio.ensure_future(pool._session(60))
    await asyncio.sleep(0)
    pool._give_back(session)
    await cancelled(second)
    assert pool._idle == [session]


async def test_a_pool_closes_at_once_while_its_first_connection_does_not_answer() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(10)
        dsn = f"host=127.0.0.1 port={silent.getsockname()[1]}"
        pool = Pool(Settings(dsn=dsn, call_timeout=3600.0), "work", 1)
        calls = [enqueue(pool, 3600.0) for _ in range(2)]
        await asyncio.sleep(0)
        for call in calls:
            await cancelled(call)
        async with asyncio.timeout(60):
            await pool.close()


@pytest.fixture
async def one_session(migrated: str, sql: Any) -> AsyncIterator[Pool]:
    """The pool of a login to which the server gives one connection."""
    role = f"one_{uuid4().hex[:12]}"
    await sql(f"create role {role} login connection limit 1")
    await sql(f"grant usage on schema leasework to {role}")
    for kind in ("tables", "sequences", "functions"):
        await sql(f"grant all on all {kind} in schema leasework to {role}")
    pool = Pool(Settings(dsn=make_conninfo(migrated, user=role)), "user", 3)
    yield pool
    async with asyncio.timeout(60):
        await pool.close()
    await sql(f"drop owned by {role}")
    await sql(f"drop role {role}")


async def test_calls_share_the_only_connection_that_the_server_gives(
    one_session: Pool, other: psycopg.AsyncConnection
) -> None:
    await other.rollback()
    await asyncio.gather(*[enqueue(one_session) for _ in range(20)])
    assert await jobs(other) == 20
    await other.rollback()
    await other.execute("lock leasework.job in access exclusive mode")
    call = await blocked(one_session)
    later = enqueue(one_session)
    await until_async(
        lambda: one_session._refusal is not None, 30, "another connection to be refused"
    )
    with pytest.raises(Unavailable, match="too many connections for role"):
        await enqueue(one_session, 0.5)
    await other.rollback()
    await asyncio.gather(call, later)


async def test_calls_get_further_connections_when_the_server_gives_them_again(
    one_session: Pool, other: psycopg.AsyncConnection, sql: Any
) -> None:
    await other.rollback()
    await asyncio.gather(*[enqueue(one_session) for _ in range(3)])
    await other.execute("lock leasework.job in access exclusive mode")
    calls = [await blocked(one_session), *[enqueue(one_session) for _ in range(2)]]
    await until_async(
        lambda: one_session._refusal is not None, 30, "another connection to be refused"
    )
    dsn = conninfo_to_dict(one_session._settings.dsn)
    await sql(f"alter role {dsn['user']} connection limit -1")
    await until_async(lambda: len(one_session._open) == 3, 30, "three connections")
    await other.rollback()
    await asyncio.gather(*calls)


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


async def test_the_child_of_a_fork_is_told_that_the_connections_are_its_parents(pool: Pool) -> None:
    sent = pool.statements
    child = os.fork()
    if child == 0:
        code = 1
        try:
            pool.fetch(*WAKE).send(None)
        except WrongConnection as error:
            told = "a forked child cannot use the connections of its parent" in str(error)
            code = 0 if told and pool.statements == sent else 2
        finally:
            os._exit(code)
    waited = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(waited[1]) == 0
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
