"""Wake-ups come by a channel to which every login of the database may write."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leasework import App
from leasework.config import Polling
from leasework.pg.connection.session import Session
from tests.support.pgbouncer import PgBouncer
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]
pytestmark = pytest.mark.every_loop
CUT = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where application_name = 'leasework work' and datname = current_database()
"""
LOST = "select fields->>'why' from leasework.event where kind = 'listen_lost'"
ASLEEP = "select 1 from leasework.node where sleeping <> '{}'"
NEVER = Polling(listening=3600.0, blind=3600.0)
"""A job starts only when its notification arrives."""


async def test_what_others_send_on_the_channel_ends_nothing(
    migrated: str, sql: Sql, caplog: pytest.LogCaptureFixture
):
    app = App(migrated)
    async with app.node() as node:
        await until_async(lambda: node.wakeups.healthy, 30)
        me = node.guard.membership.identity.id
        notes = ["l:x", f"l:{me} no numbers here", "l:", "", ":", "x:y", "c:", "n:", "q:€"]
        # refused are only those of which more is expected
        refused = ["l:x", f"l:{me} no numbers here", "l:"]

        def told() -> bool:
            lines = [r for r in caplog.records if getattr(r, "event", "") == "note_refused"]
            return [r.fields["note"] for r in lines] == refused  # type: ignore[attr-defined]

        with caplog.at_level(logging.WARNING, "leasework"):
            for note in notes:
                await sql("select pg_notify('leasework', %s)", [note])
            await until_async(told, 30, "each of them to be told")
        assert node.wakeups.healthy
        async with app.lock("one", timeout=30) as lock:
            assert lock.held
    assert not await sql("select 1 from leasework.event where kind = 'listen_lost'")
    await app.close()


async def test_each_time_that_wakeups_are_lost_is_told_once(migrated: str, sql: Sql):
    app = App(migrated)
    async with app.node() as node:
        for times in (1, 2):
            await until_async(lambda: node.wakeups.healthy, 60)
            assert await sql(CUT) == [(True,)]
            await until_async(lambda: sql(LOST), 30)

            async def told(times: int = times) -> bool:
                return len(await sql(LOST)) >= times

            await until_async(told, 30, f"the loss number {times} to be told")
        await until_async(lambda: node.wakeups.healthy, 60)
    assert len(await sql(LOST)) == 2
    await app.close()


@pytest.mark.parametrize("connections", [1, 3])
async def test_a_connection_that_takes_the_place_of_a_lost_one_listens_and_nothing_is_missed(
    migrated: str, sql: Sql, connections: int
):
    app = App(migrated, polling=NEVER, work_connections=connections)

    @app.task(name="hello")
    async def hello() -> None: ...

    async with app.node() as node:
        for _ in range(2):
            await until_async(lambda: node.wakeups.healthy, 60)
            await until_async(lambda: sql(ASLEEP), 60, "the node to sleep")
            await (await app.enqueue(hello.job())).wait(60)
            assert await sql(CUT)
            await until_async(lambda: not node.wakeups.healthy, 60)
            unheard = await app.enqueue(hello.job())
            await unheard.wait(60)
    await app.close()


async def test_two_nodes_of_a_loop_hear_each_and_the_second_goes_on_when_the_first_has_ended(
    migrated: str, sql: Sql
):
    app = App(migrated)
    async with app.node() as two:
        heard: list[str] = []
        before, two.wakeups._handlers = two.wakeups._handlers, {"q": heard.append}
        async with app.node() as one:
            await until_async(lambda: one.wakeups.healthy and two.wakeups.healthy, 60)
            one.wakeups._handlers = two.wakeups._handlers
            await sql("select pg_notify('leasework', 'q:both')")
            await until_async(lambda: heard.count("both") == 2, 30, "both to hear")
        await sql("select pg_notify('leasework', 'q:one')")
        await until_async(lambda: "one" in heard, 30, "the other to hear")
        assert heard.count("one") == 1
        two.wakeups._handlers = before
    await app.close()


async def test_behind_a_pooler_a_node_polls_says_so_once_and_listens_nowhere(
    migrated: str, pgbouncer: PgBouncer, sql: Sql, monkeypatch: pytest.MonkeyPatch
):
    heard: list[Any] = []
    monkeypatch.setattr(Session, "listen", lambda *given: heard.append(given))
    app = App(pgbouncer.dsn)

    @app.task(name="hello")
    async def hello() -> None: ...

    async with app.node() as node:
        await until_async(lambda: node.wakeups.pooled, 60)
        await (await app.enqueue(hello.job())).wait(60)
        await until_async(lambda: sql(LOST), 30, "it to be told")
        assert not node.wakeups.healthy
        assert not heard
    assert await sql(LOST) == [("connected through a pooler, which has no LISTEN: polling only",)]
    await app.close()


async def test_without_listen_a_node_neither_listens_nor_says_that_it_cannot(
    migrated: str, sql: Sql
):
    app = App(migrated, listen=False)

    @app.task(name="hello")
    async def hello() -> None: ...

    async with app.node() as node:
        await (await app.enqueue(hello.job())).wait(60)
        assert not node.wakeups.healthy
    assert not await sql(LOST)
    await app.close()


async def test_behind_a_pooler_no_wake_ups_are_missed(pgbouncer: PgBouncer, sql: Sql):
    """They are not expected there: status would name each node as a problem."""
    app = App(pgbouncer.dsn, recover_within=9)
    report = "select seq, info from leasework.node where seq >= %s"
    async with app.node():
        [(seq, _)] = await until_async(lambda: sql(report, [0]), 60)
        [(_, info)] = await until_async(lambda: sql(report, [seq + 2]), 60)
    assert info["deaf_seconds"] == 0.0
    await app.close()
