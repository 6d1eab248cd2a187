"""Pruning beside a long reader, such as a dump, and beside a job that takes over an old key."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from leasework import App
from leasework.config import Limits, Settings
from leasework.duties.leading import Pruner
from leasework.env import Clock, Env
from leasework.loops.service import ServiceContext
from leasework.store.operation import Term
from leasework.store.store import Store
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]


class HandClock(Clock):
    at = 1000.0

    def boot_now(self) -> float:
        return self.at


class CountingStore(Store):
    asked = 0

    async def prune_days(self, keep_days: int, now: datetime | None) -> int:
        self.asked += 1
        return await super().prune_days(keep_days, now)


async def test_rows_are_pruned_although_a_day_cannot_be_made(migrated: str, sql: Sql):
    """An administrator has made a partition that overlaps it."""
    events: list[str] = []
    store = Store(Settings(dsn=migrated), "work")
    env = Env(clock=HandClock(), rng=random.Random(1))
    term = Term("default", 1)
    pruner = Pruner(
        ServiceContext(Settings(), env, lambda kind, **_: events.append(kind), store, store),
        lambda: term,
    )
    [(day,)] = await sql("select to_char(now() at time zone 'UTC' + '1 day', 'YYYYMMDD')")
    await sql(f"drop table leasework.job_done_{day}")
    await sql(
        "create table leasework.by_hand partition of leasework.job_done"
        f" for values from ('{day} 12:00Z') to ('{day} 13:00Z')"
    )
    await sql(
        "insert into leasework.event (at, kind, level) select now() - interval '90 days', 'a', 'b'"
    )
    await pruner.tick(None)
    assert await sql("select count(*) from leasework.event") == [(0,)]
    assert events == ["service_failed"]
    await store.close()


async def test_rows_are_pruned_behind_a_long_reader_and_the_days_are_asked_for_once_a_minute(
    migrated: str, sql: Sql
):
    events: list[tuple[str, str]] = []

    def emit(kind: str, **fields: Any) -> None:
        events.append((kind, fields["service"]))

    clock, store = HandClock(), CountingStore(Settings(dsn=migrated), "work")
    env = Env(clock=clock, rng=random.Random(1))
    term = Term("default", 1)
    settings = Settings(limits=Limits(batch_rows=2))
    pruner = Pruner(ServiceContext(settings, env, emit, store, store), lambda: term)
    [(tomorrow,)] = await sql("select to_char(now() at time zone 'UTC' + '1 day', 'YYYYMMDD')")
    old = (
        "insert into leasework.event (at, kind, level, fields) "
        "select now() - interval '90 days', 'a', 'info', '{}'"
    )
    count = "select count(*) from leasework.event"
    day = f"select to_regclass('leasework.job_done_{tomorrow}') is not null"
    assert await pruner.tick(None) == 600.0, "nothing in its way"

    await sql(f"drop table leasework.job_done_{tomorrow}")
    await sql(f"{old} from generate_series(1, 5)")
    async with await psycopg.AsyncConnection.connect(migrated) as dump:
        await dump.execute("lock table leasework.job_done in access share mode")
        store.asked = 0
        assert [await pruner.tick(None) for _ in range(3)] == [0.1, 0.1, 60.0]
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


async def test_an_expired_key_that_a_new_job_is_taking_over_stays_that_jobs(
    migrated: str, sql: Sql
):
    store = Store(Settings(dsn=migrated), "work")
    days = {"events": 14, "ticks": 30, "attempts": 7, "history": 14}
    job = '{"task": "mail", "unique": "7", "unique_for": 3600}'
    wanted = f"select id, created from leasework.enqueue('{job}')"
    await sql(wanted)
    await sql("update leasework.job_key set held_until = now() - interval '1 second'")
    async with await psycopg.AsyncConnection.connect(migrated) as user:
        [(second, created)] = await (await user.execute(wanted.encode())).fetchall()
        assert created
        pruned = asyncio.create_task(store.prune(days, 100, None))
        waits = (
            "select 1 from pg_stat_activity where datname = current_database() "
            "and application_name = 'leasework work' and wait_event_type = 'Lock'"
        )

        async def looked_at_the_keys() -> bool:
            return pruned.done() or bool(await sql(waits))

        await until_async(looked_at_the_keys, 10, "the keys to be pruned, or waited for")
        await user.commit()
    await pruned
    assert await sql("select job_id from leasework.job_key") == [(second,)]
    assert await sql(wanted) == [(second, False)], "the job is there once"

    await sql("update leasework.job_key set held_until = now() - interval '1 second'")
    assert await store.prune(days, 100, None) == 1, "one that nobody takes over goes"
    assert not await sql("select 1 from leasework.job_key")
    await store.close()


async def test_a_node_creates_the_days_before_its_first_job_ends(migrated: str, sql: Sql) -> None:
    app = App(migrated)

    @app.task(name="noop")
    async def noop() -> None: ...

    days = "select count(*) from pg_class where relname ~ '^job_done_[0-9]{8}$'"
    # another process leads, and has created the days that it saw missing
    async with app.node(execute=False) as leader:
        await until_async(lambda: _true(leader.leads()), what="a leader")
        await until_async(lambda: _some(sql, days), what="its look at the days")
        [(names,)] = await sql(
            "select string_agg('leasework.' || relname, ', ') from pg_class "
            "where relname ~ '^job_done_[0-9]{8}$'"
        )
        await sql(f"drop table {names}")
        async with app.node():
            await (await noop.enqueue()).wait(60)
    assert await sql("select count(*) from leasework.job_done_default") == [(0,)]
    await app.close()


async def test_a_process_that_starts_drops_no_day_that_the_leader_may_keep(
    migrated: str, sql: Sql
) -> None:
    await sql(
        "create table leasework.job_done_20200101 partition of leasework.job_done "
        "for values from ('2020-01-01') to ('2020-01-02')"
    )
    names = "select relname from pg_class where relname ~ '^job_done_[0-9]{8}$'"
    kept = {name for [name] in await sql(names)}
    app = App(migrated)
    app.task(name="noop")(lambda: None)
    # another day may begin meanwhile, or has begun since the template was made
    first = _today_and_the_next_seven()
    await app.make_node()
    found = {name for [name] in await sql(names)}
    assert "job_done_20200101" in kept and kept <= found, "none is dropped"
    last = _today_and_the_next_seven()
    assert set(first) <= found and found - kept <= {*first, *last}, "today and the next seven"
    await app.close()


def _today_and_the_next_seven() -> list[str]:
    today = datetime.now(UTC)
    return [f"job_done_{today + timedelta(days=n):%Y%m%d}" for n in range(8)]


async def test_expired_jobs_of_the_default_partition_are_deleted(migrated: str, sql: Sql) -> None:
    await sql(
        "insert into leasework.job_done (id, finished_at, queue, task_name, priority, run_at, "
        "created_at, max_attempts, attempt, crashes, state, payload) "
        "select gen_random_uuid(), now() - n * interval '1 day', 'q', 't', 0, now(), now(), 1, 1, "
        "0, 'completed', '{}' from generate_series(-20, 20, 40) n"
    )
    store = Store(Settings(dsn=migrated), "work")
    await store.prune_days(7, None)
    assert await sql("select finished_at > now() from leasework.job_done_default") == [(True,)]
    await store.close()


async def test_a_process_that_runs_no_jobs_leaves_no_death_to_look_after(
    migrated: str, sql: Sql
) -> None:
    app = App(migrated)
    async with app.lock("nightly"):
        pass
    await app.close()
    assert await sql("select how, settled from leasework.death") == [("left", True)]


async def _true(value: bool) -> bool:
    return value


async def _some(sql: Sql, query: str) -> bool:
    [(count,)] = await sql(query)
    return bool(count)
