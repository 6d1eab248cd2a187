"""Metrics are computed from the database: each count grows by what happened, and never falls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from leasework import App
from leasework.app.metrics import Exposition, as_text
from leasework.cli.locking import Runner
from leasework.watch.metric_names import COUNTER, METRICS
from leasework.watch.metrics import Sheet, read_metrics
from tests.services.sessions import Two, two_processes

Sql = Any


@pytest.fixture
async def two(dsn: str, migrated: str) -> AsyncIterator[Two]:
    async with two_processes(dsn) as made:
        yield made


async def sheet_of(app: App) -> Sheet:
    operator = await app.operator("test", "test")
    return await read_metrics(operator.inspector, operator.reports)


async def lease(app: App, event: str) -> float:
    sheet = await sheet_of(app)
    return sheet.series[f"leasework_lease_{event}_total"][("default",)]


async def test_each_lease_event_is_a_count_of_its_own(app: App, two: Two, sql: Sql):
    a, b = two.a, two.b
    seen = await b.see()
    term = await a.lead()
    assert await b.acquire(seen) is None, "somebody was quicker"
    for _ in range(3):
        assert "default" in (await a.beat(term)).led
    assert await a.store.resign(term, a.id, 10.0, None)
    await b.lead()
    await b.store.certify(b.id, 10.0)
    events = ("acquired", "renewed", "resigned", "expired", "contended")
    assert [await lease(app, event) for event in events] == [2, 3, 1, 1, 1]
    await a.lead()
    await b.join()
    assert await b.acquire(await b.see()), "a's lease is not looked at: the caller has waited"
    assert [await lease(app, event) for event in events] == [4, 3, 1, 2, 1]


async def test_leaderless_seconds_are_those_between_two_leases(app: App, two: Two, sql: Sql):
    a, b = two.a, two.b
    term = await a.lead()
    assert await lease(app, "leaderless_seconds") == 0
    await a.store.resign(term, a.id, 10.0, None)
    await sql("update leasework.leader set vacated_at = vacated_at - interval '100 s'")
    assert 100 <= await lease(app, "leaderless_seconds") < 130, "nobody leads yet"
    await b.lead()
    assert 100 <= await lease(app, "leaderless_seconds") < 130
    # it was not heard of for longer than its lease of 6 s
    await sql("update leasework.leader set renewed_at = clock_timestamp() - interval '56 s'")
    sheet = await sheet_of(app)
    assert sheet.series["leasework_leader_held"][("default",)] == 0
    assert 150 <= await lease(app, "leaderless_seconds") < 190
    await a.lead()
    assert 150 <= await lease(app, "leaderless_seconds") < 190


async def test_a_leader_whose_row_was_deleted_and_made_again_is_not_held(
    app: App, two: Two, sql: Sql
):
    a = two.a
    await a.lead()
    await sql("delete from leasework.leader")
    assert await a.store.ensure_election("default", 6.0)
    [(node, renewed)] = await sql("select node, renewed_at from leasework.leader")
    assert (node, renewed) == (a.id, None)
    sheet = await sheet_of(app)
    assert sheet.series["leasework_up"][()] == 1
    assert sheet.series["leasework_leader_held"][("default",)] == 0
    assert sheet.series["leasework_lease_leaderless_seconds_total"][("default",)] == 0


async def test_the_holder_of_a_lock_is_named_also_where_nothing_says_since_when(
    app: App, two: Two, sql: Sql
):
    row = (
        "insert into leasework.leader (name, node, token, lease_seconds, acquired_at) "
        "values ('lock:nightly', %s, 3, 6, %s)"
    )

    async def holder() -> str:
        try:
            return await Runner(app, "nightly", ("true",), 1.0)._holder()
        finally:
            await sql("delete from leasework.leader where name = 'lock:nightly'")

    [(worker,)] = await sql("select worker_id from leasework.workers where node = %s", [two.a.id])
    await sql(row, [two.a.id, "2026-01-01 12:00+00"])
    who, _, since = (await holder()).partition(" since ")
    assert who == f"held by {worker}"
    # the command prints the time of this machine's zone
    assert datetime.fromisoformat(since).astimezone(UTC) == datetime(2026, 1, 1, 12, tzinfo=UTC)
    await sql(row, [two.a.id, None])
    assert await holder() == f"held by {worker}"
    await sql(row, [uuid4(), None])
    assert await holder() == "held by a process that is gone"


async def test_counts_outlive_the_rows_they_were_counted_from(app: App, two: Two, sql: Sql):
    a = two.a
    row = {"age": 0.0, "level": "warning", "node": None, "worker_id": "w", "fields": {}}
    for kind in ("tick_missed", "ack_refused", "tick_missed"):
        await a.store.record([{**row, "kind": kind}], None)
    await a.store.heartbeat(a.id, a.token, [], ["default"], {"renew_failed": 7}, [], 10.0, None)
    minute = "(date_trunc('minute', now()), 'mail', 'send', 5, 0, 1, 0, 2, '{\"20\": 6}'"
    minute += ", '{\"30\": 4}')"
    await sql(f"insert into leasework.history values {minute}")
    await sql(
        "update leasework.history set completed = 8, wait = '{\"20\": 9}'"
        ', run = \'{"30": 7, "31": 1}\''
    )

    async def counts() -> list[Any]:
        sheet = await sheet_of(app)
        series = sheet.series
        return [
            sheet.durations["leasework_job_wait_seconds"],
            sheet.durations["leasework_job_run_seconds"],
            series["leasework_events_total"][("tick_missed",)],
            series["leasework_events_total"][("ack_refused",)],
            series["leasework_lease_renew_failed_total"][("default",)],
            series["leasework_jobs_finished_total"][("mail", "send", "completed")],
            series["leasework_jobs_finished_total"][("mail", "send", "discarded")],
            series["leasework_attempts_failed_total"][("mail", "send")],
        ]

    expected = [
        {("mail",): {20: 9}},
        {("mail", "send"): {30: 7, 31: 1}},
        2.0,
        1.0,
        7.0,
        8.0,
        1.0,
        2.0,
    ]
    assert await counts() == expected
    assert await a.store.fold_counts(100) > 0
    assert await counts() == expected
    await sql("delete from leasework.event")
    await sql("delete from leasework.history")
    await sql("delete from leasework.node")
    assert await counts() == expected
    await a.store.fold_counts(100)
    assert await sql("select count(*) from leasework.tally") == [(0,)]
    assert await counts() == expected


async def test_many_series_of_one_metric_leave_room_for_the_others(app: App, sql: Sql):
    await sql(
        "insert into leasework.total (metric, subject, part, n) "
        "select metric, 'queue' || n, '0', n from (values ('run'), ('wait')) m (metric), "
        "generate_series(1, 5) n"
    )
    operator = await app.operator("test", "test")
    rows = await operator.reports.counts(3)
    assert [row.metric for row in rows] == ["run"] * 3 + ["wait"] * 3


async def test_two_who_fold_at_once_count_nothing_twice(app: App, two: Two, sql: Sql):
    await sql(
        "insert into leasework.tally (metric, subject, n) "
        "select 'event', 'tick_missed', 1 from generate_series(1, 3000)"
    )
    folded = 0
    while more := sum(await asyncio.gather(*[p.store.fold_counts(70) for p in (two.a, two.b)])):
        folded += more
    assert folded == 3000
    rows = "select metric, subject, n from leasework.total"
    assert await sql(rows) == [("event", "tick_missed", 3000)]


async def test_a_queue_with_many_priorities_hides_no_other(app: App, sql: Sql):
    jobs = """
        insert into leasework.job (id, queue, task_name, payload, priority, run_at, created_at,
                                   max_attempts, ready)
        select gen_random_uuid(), queue, 'task', '{}', n,
               now() - make_interval(secs => seconds + n), now(), 1, true
        from (values ('first', 300, 1000), ('second', 2, 50), ('third', 17000, 0))
             queue (queue, jobs, seconds), generate_series(1, jobs) n
    """
    await sql(jobs)
    operator = await app.operator("test", "test")
    rows = {row.queue: row for row in await operator.reports.queues(None)}
    assert {name: (row.ready, row.capped) for name, row in rows.items()} == {
        "first": (300, False), "second": (2, False), "third": (50_000 // 3, True),
    }  # fmt: skip
    assert 1300 <= rows["first"].oldest_seconds < 1330, "the oldest has the last priority"
    assert 52 <= rows["second"].oldest_seconds < 82
    sheet = await sheet_of(app)
    assert set(sheet.series["leasework_queue_ready"]) == {("first",), ("second",), ("third",)}

    await sql("update leasework.job set node = gen_random_uuid() where priority > 1")
    rows = {row.queue: row for row in await operator.reports.queues(None)}
    assert 1001 <= rows["first"].oldest_seconds < 1031, "of those that could run"
    await sql("update leasework.job set node = gen_random_uuid()")
    rows = {row.queue: row for row in await operator.reports.queues(None)}
    assert [row.oldest_seconds for row in rows.values()] == [None] * 3


async def test_an_open_transaction_and_a_waiting_lock_are_seen(app: App, migrated: str, sql: Sql):
    async with await psycopg.AsyncConnection.connect(migrated) as holder:
        await holder.execute("create table public.mine ()")
        await holder.execute("select pg_advisory_xact_lock(77)")
        async with await psycopg.AsyncConnection.connect(migrated) as waiting:
            wait = asyncio.create_task(waiting.execute("select pg_advisory_xact_lock(77)"))
            series: dict[str, Any] = {}
            for _ in range(300):
                series = (await sheet_of(app)).series
                if series["leasework_advisory_locks_waiting"][()] == 1:
                    break
                await asyncio.sleep(0.1)
            assert series["leasework_advisory_locks_waiting"][()] == 1
            assert series["leasework_advisory_locks_held"][()] == 1
            assert series["leasework_xmin_pinned_seconds"][()] > 0
            await holder.rollback()
            await wait


async def test_the_text_is_what_prometheus_reads(app: App, two: Two):
    text = (await Exposition(app).text()).decode()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    for name, known in METRICS.items():
        family = found[name.removesuffix("_total") if known.kind == COUNTER else name]
        assert family.type == known.kind
        for sample in family.samples:
            assert sample.name == name
            assert tuple(sample.labels) == known.labels
    assert "_created" not in text
    assert found["leasework_up"].samples[0].value == 1


async def test_a_database_without_the_schema_is_said_and_the_endpoint_answers(direct_dsn: str):
    app = App(direct_dsn)
    try:
        text = (await Exposition(app).text()).decode()
    finally:
        await app.close()
    assert "leasework_up 0.0" in text
    assert 'leasework_problems{cause="",kind="schema_missing",subject=""} 1.0' in text
    assert 'leasework_problems{cause="",kind="no_leader",subject=""} 0.0' in text


def test_hostile_names_do_not_break_the_text():
    sheet = Sheet()
    sheet.put("leasework_queue_ready", 3, 'a"b\\c\nd{}')
    [sample] = [
        sample
        for family in text_string_to_metric_families(as_text(sheet).decode())
        for sample in family.samples
    ]
    assert (sample.labels, sample.value) == ({"queue": 'a"b\\c\nd{}'}, 3.0)


async def test_of_a_queue_beyond_those_that_are_read_no_figure_is_made_up(app: App, sql: Sql):
    await sql("""
        insert into leasework.job (id, queue, task_name, payload, run_at, created_at, max_attempts,
                                   ready)
        select gen_random_uuid(), 'q' || n, 'task', '{}', now(), now(), 1, true
        from generate_series(1, 220) n
    """)

    @app.task(queue="zz")
    async def last() -> None: ...

    async with app.node():
        sheet = await sheet_of(app)
    assert len(sheet.series["leasework_queue_ready"]) == 200
    assert ("zz",) in sheet.series["leasework_queue_slots"]
