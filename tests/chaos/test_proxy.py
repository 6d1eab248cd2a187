"""The link that fails: each of its faults on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from leasework_lab.chaos.proxy import FaultProxy, WriteLoss

from leasework.env import seeded
from leasework.errors import ConfigError
from tests.support.wait import until_async

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def link(direct_dsn: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(direct_dsn) as proxy:
        yield proxy


async def connect(dsn: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(dsn, autocommit=True)


async def count(dsn: str) -> int:
    async with await connect(dsn) as connection:
        cursor = await connection.execute("select count(*) from things")
        [[found]] = await cursor.fetchall()
        return int(found)


async def things(dsn: str) -> None:
    async with await connect(dsn) as connection:
        await connection.execute("create table things (n int)")


async def test_a_write_in_a_hole_arrives_when_it_ends_though_its_client_has_gone(
    link: FaultProxy, direct_dsn: str
) -> None:
    await things(direct_dsn)
    connection = await connect(link.dsn)
    link.hole(requests=True, answers=False)
    late = asyncio.ensure_future(connection.execute("insert into things values (1)"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(late), 0.15)
    await connection.close()
    await asyncio.gather(late, return_exceptions=True)
    assert await count(direct_dsn) == 0
    link.heal()
    await until_async(lambda: count(direct_dsn), 10, "the late write")


async def test_in_a_hole_of_answers_the_write_is_done_and_nobody_is_told(
    link: FaultProxy, direct_dsn: str
) -> None:
    await things(direct_dsn)
    connection = await connect(link.dsn)
    link.hole(requests=False, answers=True)
    unheard = asyncio.ensure_future(connection.execute("insert into things values (1)"))
    await until_async(lambda: count(direct_dsn), 10, "the write")
    assert not unheard.done()
    link.heal()
    await asyncio.wait_for(unheard, 30)
    await connection.close()


async def test_an_answer_is_lost_at_commit_and_only_there(
    link: FaultProxy, direct_dsn: str
) -> None:
    await things(direct_dsn)
    connection = await connect(link.dsn)
    link.losses.append(WriteLoss(1.0, seeded(1)))
    await connection.execute("select 1")
    with pytest.raises(psycopg.OperationalError):
        async with connection.transaction():
            await connection.execute("insert into things values (1)")
            await connection.execute("insert into things values (2)")
    assert await count(direct_dsn) == 2, "both are committed"
    async with await connect(link.dsn) as again:
        with pytest.raises(psycopg.OperationalError):
            await again.execute("insert into things values (3)")
    assert await count(direct_dsn) == 3


async def test_after_a_reset_both_ends_know(link: FaultProxy, direct_dsn: str) -> None:
    connection = await connect(link.dsn)
    assert link.reset() == 1
    with pytest.raises(psycopg.OperationalError):
        await connection.execute("select 1")
    await until_async(lambda: alone(direct_dsn), 10, "the server to notice")


async def alone(dsn: str) -> bool:
    others = (
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    async with await connect(dsn) as connection:
        cursor = await connection.execute(others)
        return await cursor.fetchall() == [(0,)]


async def test_half_open_to_the_server_a_client_hears_nothing(
    link: FaultProxy, direct_dsn: str
) -> None:
    connection = await connect(link.dsn)
    assert link.forget_server() == 1
    await until_async(lambda: alone(direct_dsn), 10, "the server's end to close")
    waiting = asyncio.ensure_future(connection.execute("select 1"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.15)
    link.heal()
    with pytest.raises(psycopg.OperationalError):
        await asyncio.wait_for(waiting, 30)


async def test_half_open_to_the_client_the_server_keeps_the_session(
    link: FaultProxy, direct_dsn: str
) -> None:
    connection = await connect(link.dsn)
    await connection.execute("select 1")
    assert link.forget_client() == 1
    with pytest.raises(psycopg.OperationalError):
        await connection.execute("select 1")
    assert not await alone(direct_dsn)
    link.heal()
    await until_async(lambda: alone(direct_dsn), 10, "the session to end")


async def test_the_trap_springs_between_a_write_and_its_answer(
    link: FaultProxy, direct_dsn: str
) -> None:
    await things(direct_dsn)
    sprung: list[bool] = []
    async with await connect(link.dsn) as connection:
        link.trap, link.trap_text = lambda: sprung.append(True), b"values (2)"
        await connection.execute("select 1")
        await connection.execute("insert into things values (1)")
        assert not sprung
        await connection.execute("insert into things values (2)")
        assert sprung == [True]


async def test_a_dsn_with_an_address_goes_there_by_its_own_port_and_its_clients_to_the_link() -> (
    None
):
    hello = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    dsn = f"host=nowhere.invalid hostaddr=127.0.0.1 port={port} dbname=d user=u"
    async with server, FaultProxy(dsn) as link:
        assert "hostaddr" not in link.dsn and "dbname=d" in link.dsn
        with pytest.raises(psycopg.OperationalError):
            await connect(link.dsn)
        await asyncio.wait_for(hello.wait(), 30)


@pytest.mark.parametrize(
    ("dsn", "environ"),
    [
        ("host=h sslmode=require", ""),
        ("postgresql://h/d?sslmode=verify-full", ""),
        ("host=h channel_binding=require", ""),
        ("host=h", "verify-ca"),
    ],
)
def test_a_database_that_wants_tls_is_refused(
    monkeypatch: pytest.MonkeyPatch, dsn: str, environ: str
) -> None:
    monkeypatch.setenv("PGSSLMODE", environ)
    with pytest.raises(ConfigError, match="do not support TLS"):
        FaultProxy(dsn)


async def test_a_delay_is_one_way_and_the_other(link: FaultProxy) -> None:
    connection = await connect(link.dsn)
    link.delay = 0.1
    loop = asyncio.get_running_loop()
    before = loop.time()
    await connection.execute("select 1")
    assert loop.time() - before >= 0.2
    link.heal()
    await connection.close()
