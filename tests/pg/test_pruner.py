"""Pruning beside a long reader, such as a dump."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import psycopg

from leasehold.config import Limits, Retention, Settings
from leasehold.env import Clock, Env
from leasehold.pg.store import PgStore
from leasehold.ports import Term
from leasehold.services.leading import Pruner

Sql = Callable[..., Awaitable[list[Any]]]


class HandClock(Clock):
    at = 1000.0

    def boot_now(self) -> float:
        return self.at


class CountingStore(PgStore):
    asked = 0

    async def prune_days(self, keep_days: int, now: datetime | None) -> int:
        self.asked += 1
        return await super().prune_days(keep_days, now)


async def test_rows_are_pruned_behind_a_long_reader_and_the_days_are_asked_for_once_a_minute(
    migrated: str, sql: Sql
):
    events: list[tuple[str, str]] = []

    def emit(kind: str, **fields: Any) -> None:
        events.append((kind, fields["service"]))

    clock, store = HandClock(), CountingStore(Settings(dsn=migrated), "work")
    env = Env(clock=clock, rng=random.Random(1))
    term = Term("default", 1)
    pruner = Pruner(store, env, Limits(batch_rows=2), Retention(), lambda: term, emit)
    [(tomorrow,)] = await sql("select to_char(now() at time zone 'UTC' + '1 day', 'YYYYMMDD')")
    old = (
        "insert into leasehold.event (at, kind, level, fields) "
        "select now() - interval '90 days', 'a', 'info', '{}'"
    )
    count = "select count(*) from leasehold.event"
    day = f"select to_regclass('leasehold.job_done_{tomorrow}') is not null"
    assert await pruner.tick(None) == 600.0, "nothing in its way"

    await sql(f"drop table leasehold.job_done_{tomorrow}")
    await sql(f"{old} from generate_series(1, 5)")
    async with await psycopg.AsyncConnection.connect(migrated) as dump:
        await dump.execute("lock table leasehold.job_done in access share mode")
        store.asked = 0
        assert [await pruner.tick(None) for _ in range(3)] == [1.0, 1.0, 60.0]
        assert await sql(count) == [(0,)]
        assert store.asked == 1 and events == []
        for _ in range(6):
            clock.at += 60
            assert await pruner.tick(None) == 60.0
        assert store.asked == 7
        assert events == [("service_failed", "pruner")], "told once"
    assert await sql(day) == [(False,)]
    clock.at += 60
    assert await pruner.tick(None) == 600.0
    assert await sql(day) == [(True,)]
    await store.close()
