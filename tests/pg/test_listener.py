"""Wake-ups come by a channel to which every login of the database may write."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leasehold import App
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]


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

        with caplog.at_level(logging.WARNING, "leasehold"):
            for note in notes:
                await sql("select pg_notify('leasehold', %s)", [note])
            await until_async(told, 30, "each of them to be told")
        assert node.wakeups.healthy
        async with app.lock("one", timeout=30) as lock:
            assert lock.held
    assert not await sql("select 1 from leasehold.event where kind = 'listen_lost'")
    await app.close()


async def test_each_time_that_wakeups_are_lost_is_told_once(migrated: str, sql: Sql):
    cut = (
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where application_name = 'leasehold listen' and datname = current_database()"
    )
    lost = "select 1 from leasehold.event where kind = 'listen_lost'"
    app = App(migrated)
    async with app.node() as node:
        for times in (1, 2):
            await until_async(lambda: node.wakeups.healthy, 60)
            assert await sql(cut) == [(True,)]
            await until_async(lambda: sql(lost), 30)

            async def told(times: int = times) -> bool:
                return len(await sql(lost)) >= times

            await until_async(told, 30, f"the loss number {times} to be told")
        await until_async(lambda: node.wakeups.healthy, 60)
    assert len(await sql(lost)) == 2
    await app.close()
