"""A connection whose socket the loop watches all the time: nothing is lost, nothing spins."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import psycopg
import pytest

from leasehold.pg.connect import connect
from leasehold.pg.link import Link
from tests.support.wait import until_async


@pytest.fixture
async def link(direct_dsn: str) -> AsyncIterator[Link]:
    made = await connect(psycopg.conninfo.conninfo_to_dict(direct_dsn))
    yield made
    await made.close()


@pytest.fixture
async def other(direct_dsn: str) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as connection:
        yield connection


async def one(connection: psycopg.AsyncConnection, text: str, *params: object) -> object:
    row = await (await connection.execute(text.encode(), params)).fetchone()
    return row and row[0]


async def test_a_cancelled_statement_ends_in_the_server_and_the_next_one_gets_its_own_answer(
    link: Link, other: psycopg.AsyncConnection
):
    asleep = asyncio.ensure_future(one(link, "select 'late' from pg_sleep(60)"))
    pid = link.info.backend_pid
    state = "select 1 from pg_stat_activity where pid = %s and state = %s"
    await until_async(lambda: one(other, state + " and wait_event = 'PgSleep'", pid, "active"))
    asleep.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asleep
    assert await one(other, state, pid, "idle")
    assert await one(link, "select 'own'") == "own"


async def test_what_arrives_while_nobody_waits_calls_the_loop_once(
    link: Link, other: psycopg.AsyncConnection, monkeypatch: pytest.MonkeyPatch
):
    calls = []
    really = Link._on_readable
    monkeypatch.setattr(Link, "_on_readable", lambda link: (calls.append(1), really(link)))
    await one(link, "select 1")
    calls.clear()
    await other.execute("select pg_terminate_backend(%s)", [link.info.backend_pid])
    await until_async(lambda: calls)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(calls) == 1
    with pytest.raises(psycopg.OperationalError):
        await one(link, "select 1")


async def test_a_connection_that_was_cut_leaves_its_sockets_number_to_the_next(
    direct_dsn: str, other: psycopg.AsyncConnection
):
    numbers = []
    for _ in range(10):
        link = await connect(psycopg.conninfo.conninfo_to_dict(direct_dsn))
        numbers.append(link.fileno())
        asleep = asyncio.ensure_future(one(link, "select 1 from pg_sleep(60)"))
        sleeping = "select 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
        await until_async(lambda: one(other, sleeping, link.info.backend_pid))  # noqa: B023
        with socket.socket(fileno=os.dup(link.fileno())) as twin:
            twin.shutdown(socket.SHUT_RDWR)
        with pytest.raises(psycopg.OperationalError):
            await asleep
        # libpq has closed its socket: the next one gets the number, and is heard
        again = await connect(psycopg.conninfo.conninfo_to_dict(direct_dsn))
        numbers.append(again.fileno())
        async with asyncio.timeout(30):
            assert await one(again, "select 2") == 2
        await link.close()
        async with asyncio.timeout(30):
            assert await one(again, "select 3") == 3
        await again.close()
    assert numbers[0] == numbers[1], "no number was used again: this shows nothing"


async def test_a_statement_larger_than_the_sockets_buffer_is_sent_and_answered(link: Link):
    assert await one(link, "select 1") == 1  # watched by now
    text = "x" * 20_000_000
    assert await one(link, "select %s::text", text) == text
    assert await one(link, "select 2") == 2


async def test_notifications_are_read_between_statements(
    link: Link, other: psycopg.AsyncConnection
):
    await link.execute("listen here")
    for number in range(3):
        await other.execute("select pg_notify('here', %s)", [str(number)])
        async with asyncio.timeout(30):
            await link.readable()
        link.pgconn.consume_input()
        note = link.pgconn.notifies()
        assert note
        assert note.extra == str(number).encode()
        assert await one(link, "select 1") == 1
