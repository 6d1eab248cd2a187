"""A connection whose socket the loop watches all the time: nothing is lost, nothing spins."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from leasework.pg.connection.connect import connect
from leasework.pg.connection.fast.link import Link, settle
from leasework.pg.sql import Query
from tests.support.wait import until_async

pytestmark = pytest.mark.every_loop


@pytest.fixture
async def link(direct_dsn: str) -> AsyncIterator[Link]:
    made = await connect(psycopg.conninfo.conninfo_to_dict(direct_dsn), 60)
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


async def test_an_end_that_comes_while_nobody_waits_is_known_at_once_and_does_not_spin(
    link: Link, other: psycopg.AsyncConnection, monkeypatch: pytest.MonkeyPatch
):
    calls = []
    really = Link._go_on
    monkeypatch.setattr(Link, "_go_on", lambda link, ready: (calls.append(1), really(link, ready)))
    await one(link, "select 1")
    calls.clear()
    await other.execute("select pg_terminate_backend(%s)", [link.info.backend_pid])
    await until_async(lambda: not link.usable)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(calls) <= 2, "the server's last words, and the end"
    with pytest.raises(psycopg.OperationalError):
        await one(link, "select 1")


async def test_a_connection_that_was_cut_leaves_its_sockets_number_to_the_next(
    direct_dsn: str, other: psycopg.AsyncConnection
):
    numbers = []
    for _ in range(10):
        link = await connect(psycopg.conninfo.conninfo_to_dict(direct_dsn), 60)
        numbers.append(link.fileno())
        asleep = asyncio.ensure_future(one(link, "select 1 from pg_sleep(60)"))
        sleeping = "select 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
        await until_async(lambda: one(other, sleeping, link.info.backend_pid))  # noqa: B023
        with socket.socket(fileno=os.dup(link.fileno())) as twin:
            twin.shutdown(socket.SHUT_RDWR)
        with pytest.raises(psycopg.OperationalError):
            await asleep
        # libpq has closed its socket: the next one gets the number, and is heard
        again = await connect(psycopg.conninfo.conninfo_to_dict(direct_dsn), 60)
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
    heard: list[str | None] = []
    link.on_notification(heard.append)
    await link.execute("listen here")
    for number in range(3):
        for text in (f"{number} a", f"{number} ä"):
            await other.execute("select pg_notify('here', %s)", [text])
            await until_async(lambda t=text: t in heard, 30)
        assert await one(link, "select 1") == 1
    assert heard == ["0 a", "0 ä", "1 a", "1 ä", "2 a", "2 ä"]


@pytest.mark.parametrize("way", ["cursor", "no cursor", "transaction"])
async def test_notifications_that_come_with_an_answer_are_read(link: Link, way: str):
    heard: list[str | None] = []
    link.on_notification(heard.append)
    await link.execute("listen here")
    for number in "12":
        if way == "no cursor":
            await sent(link, Query(b"select pg_notify('here', $1)", ("text",)), text=number)
        else:
            if way == "transaction":
                await link.execute("begin")
            await link.execute("select pg_notify('here', %s)", [number])
            if way == "transaction":
                await link.commit()
        assert heard.pop() == number, "the server sends it before it says that it is ready"
    assert not heard


@pytest.mark.parametrize("waits", [False, True], ids=["idle", "in a statement"])
@pytest.mark.parametrize("how", ["terminated", "cut", "closed"])
async def test_whoever_hears_notifications_is_told_once_that_the_connection_is_gone(
    link: Link, other: psycopg.AsyncConnection, how: str, waits: bool
):
    heard: list[str | None] = []
    link.on_notification(heard.append)
    await link.execute("listen here")
    await sent(link, Query(b"select 1", ()))
    calls = []
    if waits:
        calls = [asyncio.ensure_future(sent(link, Query(b"select 1 from pg_sleep(60)", ())))]
        await until_async(lambda: not link.usable, 30)
    assert not heard
    if how == "closed":
        await link.close()
    elif how == "cut":
        link.give_up("its time is over")
    else:
        await other.execute("select pg_terminate_backend(%s)", [link.info.backend_pid])
    await until_async(lambda: heard, 30)
    for call in calls:
        with pytest.raises(psycopg.OperationalError):
            await call
    await link.close()
    assert heard == [None], "whoever listens again by then would take it for a new loss"


# -- statements without a cursor -----------------------------------------------------------------
async def sent(link: Link, query: Query, **params: Any) -> list[Any]:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.send(query, params, partial(settle, answer))
    async with asyncio.timeout(60):
        return link.rows(await answer)


_PREPARED = "select count(*) from pg_prepared_statements where name like 'leasework%'"


async def prepared(link: Link) -> int:
    row = await (await link.execute(_PREPARED, prepare=False)).fetchone()
    assert row is not None
    return int(row[0])


async def test_values_and_rows_are_what_a_cursor_makes_of_them(link: Link):
    text = "select %(a)s::int4, %(b)s::text, %(c)s::uuid[], %(d)s::timestamptz, %(e)s::jsonb"
    now = (await (await link.execute("select now()")).fetchone() or [None])[0]
    value = {"a": 7, "b": "ä\t", "c": [UUID(int=1), UUID(int=2)], "d": now, "e": '{"x": [1]}'}
    cursor = await link.execute(text.encode(), value)
    mine = Query(b"select $1::int4, $2::text, $3::uuid[], $4::timestamptz, $5::jsonb", (*"abcde",))
    assert await sent(link, mine, **value) == await cursor.fetchall()
    nothing = dict.fromkeys("abcde")
    assert await sent(link, mine, **nothing) == [(None,) * 5]


async def test_a_statement_is_prepared_when_it_comes_for_the_fifth_time(link: Link):
    query = Query(b"select $1::int", ("n",))
    for times in range(1, 8):
        assert await sent(link, query, n=times) == [(times,)]
        assert await prepared(link) == (times >= 5)


async def test_behind_a_pooler_nothing_is_prepared(link: Link):
    link.prepare_threshold = None
    query = Query(b"select $1::int", ("n",))
    for times in range(8):
        assert await sent(link, query, n=times) == [(times,)]
    assert await prepared(link) == 0


@pytest.mark.parametrize(
    "disturb", ["alter table t add column more int", "deallocate all", "rollback"]
)
async def test_a_prepared_statement_that_the_server_does_not_take_any_more_is_sent_as_it_is(
    link: Link, other: psycopg.AsyncConnection, disturb: str
):
    await other.execute("create table t (a int)")
    query = Query(b"select * from t where a is distinct from $1::int", ("a",))
    for _ in range(6):
        await sent(link, query, a=1)
    assert await prepared(link) == 1
    if disturb.startswith("alter"):
        await other.execute(disturb.encode())
    elif disturb == "rollback":
        await link.execute("select 1", prepare=True)
        await link.execute("begin")
        await link.rollback()  # after which psycopg deallocates everything
    else:
        await link.execute(disturb.encode())
    for _ in range(8):
        assert await sent(link, query, a=1) == []
    assert await prepared(link) >= 1


async def test_an_error_is_told_and_the_next_statement_gets_its_own_answer(link: Link):
    with pytest.raises(psycopg.errors.DivisionByZero):
        await sent(link, Query(b"select 1 / $1::int", ("n",)), n=0)
    with pytest.raises(psycopg.DataError):
        await sent(link, Query(b"select $1::text", ("n",)), n="a\0b")
    assert await sent(link, Query(b"select 2", ())) == [(2,)]


async def test_a_second_statement_is_refused_while_one_is_under_way(link: Link):
    slow = asyncio.ensure_future(sent(link, Query(b"select 1 from pg_sleep(0.1)", ())))
    await asyncio.sleep(0)
    with pytest.raises(psycopg.OperationalError, match="another statement"):
        await sent(link, Query(b"select 2", ()))
    assert await slow == [(1,)]


async def test_a_value_larger_than_the_sockets_buffer_is_sent_and_answered(link: Link):
    text = "x" * 20_000_000
    echo = Query(b"select $1::text", ("text",))
    assert await sent(link, echo, text=text) == [(text,)]
    assert await sent(link, echo, text="short") == [("short",)]


async def test_whoever_waits_for_a_connection_that_is_cut_or_closed_is_told(
    direct_dsn: str, other: psycopg.AsyncConnection
):
    for close in (False, True):
        link = await connect(psycopg.conninfo.conninfo_to_dict(direct_dsn), 60)
        pid = link.info.backend_pid
        asleep = asyncio.ensure_future(sent(link, Query(b"select 1 from pg_sleep(60)", ())))
        sleeping = "select 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
        await until_async(lambda: one(other, sleeping, pid))  # noqa: B023
        await (link.close() if close else other.execute("select pg_terminate_backend(%s)", [pid]))
        with pytest.raises(psycopg.OperationalError):
            await asleep
        await link.close()


@pytest.mark.parametrize("how", [socket.SHUT_RD, socket.SHUT_RDWR], ids=["heard", "cut"])
async def test_a_connection_that_ends_while_a_statement_is_being_sent_leaves_nothing_behind(
    direct_dsn: str, how: int
):
    """Only then the loop watches for both, to read and to write."""
    link = await connect(psycopg.conninfo.conninfo_to_dict(direct_dsn), 60)
    number, pid = link.fileno(), link.info.backend_pid
    big = Query(b"select length($1::text)", ("text",))
    await sent(link, big, text="x" * 100_000)  # prepared from now on: the next is all values
    os.kill(pid, signal.SIGSTOP)
    try:
        call = asyncio.ensure_future(sent(link, big, text="x" * 20_000_000))
        await until_async(lambda: link._writes, 30, "the socket to be full")
        with socket.socket(fileno=os.dup(number)) as twin:
            twin.shutdown(how)
        with pytest.raises(psycopg.OperationalError):
            await call
    finally:
        os.kill(pid, signal.SIGCONT)
    again = await connect(psycopg.conninfo.conninfo_to_dict(direct_dsn), 60)
    assert again.fileno() == number, "no number was used again: this shows nothing"
    assert await sent(again, Query(b"select 2", ())) == [(2,)]
    await link.close()
    assert await sent(again, Query(b"select 3", ())) == [(3,)]
    await again.close()


async def test_why_the_server_hung_up_is_told(link: Link, other: psycopg.AsyncConnection):
    asleep = asyncio.ensure_future(sent(link, Query(b"select 1 from pg_sleep(60)", ())))
    pid = link.info.backend_pid
    sleeping = "select 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
    await until_async(lambda: one(other, sleeping, pid))
    await other.execute("select pg_terminate_backend(%s)", [pid])
    with pytest.raises(psycopg.errors.AdminShutdown):
        await asleep


async def test_what_cannot_be_prepared_takes_no_place_from_others(link: Link):
    missing = Query(b"select a from missing where a = $1::int", ("a",))
    for _ in range(120):
        with pytest.raises(psycopg.errors.UndefinedTable):
            await sent(link, missing, a=1)
    query = Query(b"select $1::int", ("n",))
    for n in range(6):
        assert await sent(link, query, n=n) == [(n,)]
    assert await prepared(link) == 1
