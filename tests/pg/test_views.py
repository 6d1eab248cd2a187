"""The views: what people and other tools may rely on. A column here is never renamed, retyped or
taken away without a major version; new ones come at the end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leasework import App, Backoff, Context
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]

CONTRACT = {
    "jobs": """
        id uuid, task_name text, queue text, payload jsonb, state text, priority smallint,
        created_at timestamp with time zone, scheduled_for timestamp with time zone,
        started_at timestamp with time zone, completed_at timestamp with time zone,
        attempt smallint, max_attempts smallint, claim_token bigint, worker_id text,
        last_error text, result jsonb, progress real, progress_note text,
        cancel_requested boolean, crashes smallint, held_because text, schedule text, node uuid,
        timeout_seconds real, tags text[], reason text, traceback text
        """,
    "leaders": """
        name text, holder text, term bigint, heartbeat timestamp with time zone, age interval,
        lease_seconds real, acquired_at timestamp with time zone, node uuid, fence bigint
        """,
    "nodes": """
        worker_id text, id uuid, app text, release text, host text, pid integer, version text,
        executes boolean, queues jsonb, tasks text[], sleeping text[],
        started_at timestamp with time zone, heartbeat timestamp with time zone, age interval,
        lease_seconds real, seq bigint, epoch integer, info jsonb
        """,
    "schedules": """
        app text, name text, described text, task_name text, missed text, grace_seconds real,
        paused boolean, next_at timestamp with time zone, high_water timestamp with time zone,
        release text, updated_at timestamp with time zone, spec jsonb, in_code boolean, job jsonb,
        last_fire_at timestamp with time zone, last_state text, last_job_id uuid
        """,
    "ticks": """
        app text, schedule text, fire_at timestamp with time zone, until timestamp with time zone,
        state text, job_id uuid,
        term bigint, decided_at timestamp with time zone, lateness interval
        """,
    "locks": """
        locktype text, classid oid, objid oid, objsubid smallint, lock_key bigint, name text,
        pid integer, mode text, granted boolean, waitstart timestamp with time zone, state text,
        query text, job_id uuid, client text, since timestamp with time zone,
        application_name text, token bigint
        """,
    "events": """
        id bigint, at timestamp with time zone, kind text, level text, worker_id text,
        fields jsonb, node uuid
        """,
}


async def test_the_columns_of_the_views_are_their_contract(sql: Sql) -> None:
    for view, columns in CONTRACT.items():
        rows = await sql(
            "select attname, format_type(atttypid, atttypmod) from pg_attribute"
            " where attrelid = format('leasework.%%s', %s::text)::regclass and attnum > 0"
            " order by attnum",
            [view],
        )
        promised = [" ".join(column.split()) for column in columns.split(",")]
        assert [f"{name} {kind}" for name, kind in rows][: len(promised)] == promised, view


async def test_each_state_of_a_job_is_seen_in_the_view(app: App, sql: Sql) -> None:
    @app.task(name="t", max_attempts=2, backoff=Backoff(base=3600))
    async def work(fail: bool = False) -> None:
        if fail:
            raise LookupError

    async def states() -> dict[str, int]:
        return dict(await sql("select state, count(*) from leasework.jobs group by 1"))

    await (await work.enqueue()).cancel()
    await work.using(run_in=60).enqueue()
    await work.enqueue()
    assert await states() == {"cancelled": 1, "scheduled": 1, "available": 1}
    async with app.node():
        await work.enqueue(fail=True)
        await work.using(max_attempts=1).enqueue(fail=True)
        wanted = {"cancelled": 1, "scheduled": 1, "completed": 1, "retryable": 1, "discarded": 1}
        await until_async(lambda: equal(states, wanted))


async def equal(look: Callable[[], Awaitable[Any]], wanted: Any) -> bool:
    return await look() == wanted


async def test_a_worker_has_one_name_in_every_view_and_log_line(
    app: App, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    seen: dict[str, Any] = {}

    @app.task()
    async def work(ctx: Context) -> None:
        ctx.log.warning("at work")
        [seen["running"]] = await sql("select worker_id, claim_token from leasework.jobs")
        seen["context"] = (ctx.worker_id, ctx.token)

    caplog.set_level(logging.INFO, "leasework")
    async with app.node():
        await until_async(lambda: sql("select 1 from leasework.leaders where holder is not null"))
        await (await work.enqueue()).wait(60)
        [node] = await sql("select worker_id, host, pid, id from leasework.nodes")
        [(holder,)] = await sql("select holder from leasework.leaders")
    [done] = await sql("select worker_id, claim_token from leasework.jobs")
    events = await sql("select distinct worker_id from leasework.events")

    name, host, pid, node_id = node
    assert name == f"{host}:{pid}:{str(node_id)[-6:]}"
    assert (host, pid) == (app.env.host, app.env.pid)
    assert seen["running"] == seen["context"] == done
    assert {name, holder, done[0], *[row[0] for row in events]} == {name}
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("leasework")]
    assert any("at work" in line for line in lines)
    assert any(line.startswith("node_started") for line in lines)
    assert all(f"worker={name}" in line for line in lines), lines


async def test_a_leader_is_seen_with_its_term_and_its_lease(app: App, sql: Sql) -> None:
    async with app.node():
        [row] = await until_async(
            lambda: sql(
                "select name, term, fence, lease_seconds, age < '10 s', heartbeat >= acquired_at"
                " from leasework.leaders where holder is not null"
            )
        )
        assert row == ("default", 1, 1, 10.0, True, True)
    assert await sql("select holder, term from leasework.leaders") == [(None, 1)]


async def test_a_finished_job_keeps_the_name_of_a_worker_that_has_left(app: App, sql: Sql) -> None:
    @app.task()
    async def work(ctx: Context) -> str:
        return ctx.worker_id

    async with app.node():
        name = await (await work.enqueue()).wait(60)
    assert await sql("select worker_id from leasework.jobs") == [(name,)]
    assert await sql("select * from leasework.nodes") == []


async def test_schedules_and_ticks_are_seen(app: App, sql: Sql) -> None:
    @app.every(seconds=1, name="beat", missed="all")
    @app.task(name="t")
    async def work(ctx: Context) -> None: ...

    async with app.node():
        rows = await until_async(
            lambda: sql("select app, schedule, state, job_id, term, lateness from leasework.ticks")
        )
        assert rows
        assert rows[0][:3] == ("default", "beat", "fired") and rows[0][4] == 1
        [schedule] = await sql(
            "select app, name, task_name, missed, paused, last_state, last_fire_at = high_water,"
            " next_at > high_water, spec ->> 'seconds' is not null from leasework.schedules"
        )
        assert schedule[:5] == ("default", "beat", "t", "all", False)
        jobs = await sql("select id, schedule from leasework.jobs order by created_at limit 1")
        assert jobs == [(rows[0][3], "beat")]
