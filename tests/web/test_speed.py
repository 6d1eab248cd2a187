"""Every page with ten million finished and one million ready jobs. Long: ``make web-speed``.

It is collected only with LEASEWORK_LONG=1. LEASEWORK_FINISHED and LEASEWORK_READY choose smaller
tables; LEASEWORK_FILLED_DSN is a database that fill() has filled before.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pytest

from leasework import App
from leasework.model.filter import JobFilter
from leasework.pg.connection.pool import Pool
from leasework.web import dashboard

FINISHED = int(os.environ.get("LEASEWORK_FINISHED", "10_000_000"))
READY = int(os.environ.get("LEASEWORK_READY", "1_000_000"))
PAGE_SECONDS, DATABASE_SECONDS = 0.3, 0.1
SLOWER = {
    "failures": 0.3, "failures?span=7d": 0.3,
    "jobs?q=state:running": 0.3, "jobs?q=node:host-1 state:running": 0.3,
}  # fmt: skip
"""The database's share of pages that may take longer: those of failures do not load themselves
again, and few people keep the running jobs open."""
ROUNDS = 7

ID = """
create function pg_temp.id(at timestamptz, n bigint) returns uuid language sql immutable as $$
    select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7'
            || lpad(to_hex(n % 4096), 3, '0') || '8' || lpad(to_hex(n), 15, '0'))::uuid $$
"""
DONE = """
insert into leasework.job_done (id, finished_at, queue, task_name, priority, run_at, created_at,
    started_at, max_attempts, attempt, crashes, state, payload, last_error)
select pg_temp.id(m.at, n), m.at + interval '2 s', 'queue-' || n %% 10, 'task-' || n %% 50, 0, m.at,
    m.at, m.at + interval '1 s', 5, 1, 0,
    case when n %% 50 = 7 then 'discarded' when n %% 100 = 8 then 'cancelled' else 'completed' end,
    jsonb_build_object('user_id', n %% 100000), case when n %% 50 = 7 then 'ValueError: no' end
from generate_series(%(first)s::bigint, %(last)s::bigint) n,
    lateral (select now() - interval '6 days' * (1 - n::float8 / %(all)s) - interval '3 s' as at) m
"""
WAITING = """
insert into leasework.job (id, queue, task_name, priority, run_at, created_at, payload, ready,
    held_because)
select pg_temp.id(m.at, n), 'queue-' || n %% 20, 'task-' || n %% 50, n %% 3,
    case when n %% 20 = 0 then m.at + interval '2 hours' else m.at end, m.at,
    jsonb_build_object('user_id', n %% 100000), n %% 20 <> 0,
    case when n %% 20 = 0 then 'scheduled' end
from generate_series(1, %(all)s::bigint) n,
    lateral (select now() - interval '30 min' * (1 - n::float8 / %(all)s) as at) m
"""
NODES = """
insert into leasework.node (id, token, lease_seconds, app, release, host, pid, version, queues,
    tasks)
select gen_random_uuid(), n, 1e6, 'default', 'r', 'host-' || n, n, '0', '{"queue-1": 100}',
    array['task-1'] from generate_series(1, 8) n
"""
RUNNING = """
with claimed as (
    insert into leasework.claimed_to (node, queue, level, seat)
    select n.id, j.queue, leasework.level(j.priority, j.fresh),
        percentile_disc(0.05) within group (order by j.seat)
    from leasework.job j, (select id from leasework.node order by pid limit 1) n
    where j.ready group by 1, 2, 3
)
update leasework.job set node = (select id from leasework.node order by pid limit 1), attempt = 1,
    claim_token = 1, claimed_at = now()
where id in (select id from leasework.job where ready and queue = 'queue-1' and priority = 1
             order by seat limit 300)
"""
FAILED = """
insert into leasework.attempt (job_id, claim_token, attempt, started_at, ended_at, outcome, error,
    fingerprint)
select d.id, d.n, 1, d.started_at, d.finished_at,
    case d.state when 'discarded' then d.state else 'retryable' end,
    'ValueError: no', lpad(case when d.n % 10 < 6 then '0' when d.n % 10 < 9 then 'a' || d.n % 40
                                else 'b' || d.n % 300 end, 12, '0')
from (select *, row_number() over () as n from leasework.job_done
      where finished_at > now() - interval '1 day' and (state = 'discarded' or random() < 0.1)) d
limit 200000
"""
EVENTS = """
insert into leasework.event (at, kind, level, worker_id, fields)
select now() - interval '1 s' * n, case when n %% 9 = 0 then 'job_failed' else 'node_started' end,
    'warning', 'host:1:abcdef', jsonb_build_object('job', gen_random_uuid(), 'task', 'task-1')
from generate_series(1, 200000) n
"""


@pytest.fixture(scope="module")
def full(postgres: Any) -> Iterator[str]:
    from tests.support.postgres import database

    if filled := os.environ.get("LEASEWORK_FILLED_DSN"):
        yield filled
        return
    with database(postgres.dsn) as dsn:
        fill(dsn)
        yield dsn


def fill(dsn: str) -> None:
    """The schema and the rows, into an empty database."""
    asyncio.run(_apply(dsn))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        connection.execute(ID)
        connection.execute("select leasework.partitions(now() - interval '6 days', 6, 36500)")
        step = 500_000
        for first in range(1, FINISHED + 1, step):
            last = min(first + step - 1, FINISHED)
            connection.execute(DONE, {"first": first, "last": last, "all": FINISHED})
        connection.execute(WAITING, {"all": READY})
        for statement in (NODES, RUNNING, FAILED, EVENTS.replace("%%", "%")):
            connection.execute(statement)
        connection.execute("vacuum analyze")


async def _apply(dsn: str) -> None:
    app = App(dsn=dsn)
    await app.apply_schema()
    await app.close()


PAGES = (
    "now", "jobs", "jobs?q=state:running", "jobs?q=state:available", "jobs?q=state:scheduled",
    "jobs?q=state:discarded", "jobs?q=state:completed", "jobs?q=state:quarantined",
    "jobs?q=queue:queue-3", "jobs?q=queue:none", "jobs?q=task:task-7 state:discarded",
    "jobs?q=args.user_id:77", "jobs?q=args.user_id:none", "jobs?q=node:host-1",
    "jobs?q=node:host-1 state:running", "jobs?q=queue:queue-1 state:running args.user_id:41",
    "jobs/bulk?act=retry&q=state:discarded", "jobs/bulk?act=cancel&q=queue:queue-3",
    "history?queue=queue-3&span=1h", "history?queue=queue-3&span=14d",
    "history?task=task-7&span=14d", "failures", "failures?span=7d",
    "jobs?q=error:000000000000 since:24h",
    "jobs?q=-task:task-7* error:no since:1h", "schedules", "leaders?span=7d", "nodes", "locks",
    "deadlines", "database", "events", "events?kind=job_failed", "events?kind=clock_stepped",
)  # fmt: skip


@pytest.mark.timeout(3600)
async def test_every_page_is_fast(full: str, monkeypatch: pytest.MonkeyPatch):
    spent = [0.0]
    statements: dict[str, float] = {}
    fetch = Pool.fetch

    async def timed(*given: Any) -> Any:
        start = time.perf_counter()
        try:
            return await fetch(*given)
        finally:
            took = time.perf_counter() - start
            spent[0] += took
            statements[given[1]] = max(took, statements.get(given[1], 0.0))

    monkeypatch.setattr(Pool, "fetch", timed)
    app = App(dsn=full)
    operator = await app.operator("test", "test")
    counted = None
    rolls: list[float] = []
    for _ in range(48):
        start = time.perf_counter()
        counted = await operator.store.roll_up(counted, None)
        rolls.append(time.perf_counter() - start)
    slow: list[str] = []
    print(f"\n{FINISHED:,} finished, {READY:,} waiting; ms, median of {ROUNDS} (worst)")
    print(f"history, half an hour at once: {statistics.median(rolls) * 1000:.0f} ms")
    jobs = [await operator.reports.jobs(JobFilter(state), 1) for state in (None, "discarded")]
    one = [f"jobs/{found[0].id}" for found in jobs]
    transport = httpx.ASGITransport(dashboard(app, unprotected=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        for path in (*PAGES, *one):
            whole, database = [], []
            statements.clear()
            address = "/" + quote(path, safe="/?=&:.")
            for _ in range(ROUNDS):
                spent[0], start = 0.0, time.perf_counter()
                answer = await http.get(address)
                whole.append(time.perf_counter() - start)
                database.append(spent[0])
                assert answer.status_code == 200, (path, answer.text)
            page, share = statistics.median(whole), statistics.median(database)
            says = (
                f"{path:55} {page * 1000:6.0f} ({max(whole) * 1000:.0f})"
                f"   database {share * 1000:6.0f} ({max(database) * 1000:.0f})"
            )
            print(says)
            if page > PAGE_SECONDS or share > SLOWER.get(path, DATABASE_SECONDS):
                worst = sorted(statements.items(), key=lambda pair: -pair[1])[:3]
                slow.append(f"{says}  {[(n, round(t * 1000)) for n, t in worst]}")
    await app.close()
    assert statements, "the database's share was measured"
    assert not slow, "\n".join(slow)
