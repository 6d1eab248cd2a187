"""Jobs with limits, against plain ones: what a claim and an ack in batches cost the server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import click
import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.command import common, run
from bench.cost import cpu_seconds
from bench.report import Result
from bench.server import Server
from leasework.config import Settings
from leasework.jobs.limited import VISITS, LaneWalk
from leasework.model.begins import Begins
from leasework.model.job import ClaimedJob
from leasework.model.outcome import COMPLETED
from leasework.pg.schema import migrate
from leasework.store.jobs import AckItem
from leasework.store.nodes import NodeIdentity
from leasework.store.store import Store

COLUMNS = {"backend_us": "backend CPU µs/job", "wal_bytes": "WAL B/job"}
LEASE_SECONDS = 3600.0


@dataclass(frozen=True)
class Case:
    """Where the jobs wait."""

    name: str
    lane: str = "null"
    """An expression of SQL, over the job's number ``n``."""
    limits: tuple[tuple[str, int], ...] = ()
    """(name, concurrency)"""
    batch: int = 50
    beside: str = ""
    """The lane of jobs that are blocked, with ``blocked`` of them."""
    blocked: int = 0
    also: str = ""
    """Executed before the jobs are there."""


PLAIN = Case("plain")
CASES = (
    PLAIN,
    Case("unlimited key", "'|one:a'", (("one", 1_000_000),)),
    Case("10,000 keys", "'|key:' || n % 10000", (("key", 2),)),
    Case("one key of 1,000", "'|one:a'", (("one", 1000),)),
    Case("two limits", "'|all|key:' || n % 10000", (("key", 2), ("all", 100_000))),
    Case("batches of 5, 10,000 keys", "'|key:' || n % 10000", (("key", 2),), batch=5),
    Case(
        "a full key",
        "'|key:' || n % 1000",
        (("key", 1000), ("full", 0)),
        50,
        "'|full:x'",
        20_000
    ),
    Case("fair, 10 tenants", "'t' || n % 10 || '|'"),
    Case("1,000 keys", "'|key:' || n % 1000", (("key", 1000),)),
    Case(
        "beside 1,000,000 blocked",
        "'|key:' || n % 1000",
        (("key", 1000), ("full", 0)),
        50,
        "'|full:x'",
        1_000_000
    ),
    Case(
        "beside 10,000 full keys",
        "'|key:' || n % 1000",
        (("key", 1000), ("full", 0)),
        50,
        "'|full:' || n",
        10_000
    ),
)  # fmt: skip

FILL = """
insert into leasework.job (id, queue, task_name, payload, lane, ready, held_because)
select leasework.new_id(), 'default', 't', '{{"n": 1}}', lane, lane is null,
       case when lane is not null then 'limit' end
from (select {lane} as lane from generate_series(1, {count}) n) l
"""
KEYS = """
insert into leasework.limit_key (key, name)
select distinct k, split_part(k, ':', 1) from leasework.job j, unnest(leasework.lane_keys(j.lane)) k
"""


async def claims(server: Server, dsn: str, case: Case, jobs: int) -> dict[str, float]:
    """One slice: claim and ack all jobs in batches, on one connection."""
    settings = Settings(dsn=dsn)
    await migrate.apply(settings)
    store = Store(settings, "work", 1)
    me = NodeIdentity(uuid4(), "shop", "r1", "host", 1, "0", True, ("t",), {"default": 10})
    await store.register(me, LEASE_SECONDS, None)
    dbname = str(conninfo_to_dict(dsn)["dbname"])
    with psycopg.connect(dsn, autocommit=True) as user:
        for name, concurrency in case.limits:
            user.execute(
                "insert into leasework.limits (name, concurrency) values (%s, %s)",
                (name, concurrency),
            )
        if case.also:
            user.execute(case.also.encode())
        for lane, count in ((case.lane, jobs), (case.beside, case.blocked)):
            if count:
                user.execute(FILL.format(lane=lane, count=count).encode())
        user.execute(KEYS)  # as they are after the first job of each
        user.execute("vacuum analyze leasework.job, leasework.limit_key")
    await asyncio.sleep(0.2)  # the other session ends
    [backend] = server.backends(dbname)
    clock = asyncio.get_running_loop().time
    begins, walk, done = Begins(clock), LaneWalk(), 0
    ended = deque[str](maxlen=VISITS)
    before, wal = cpu_seconds(backend), _wal(server)
    while done < jobs:
        found: Sequence[ClaimedJob]
        if case.lane == "null":
            found = await store.claim(me.id, 1, {"default": case.batch}, [], None, begins)
        else:
            asked = walk.asks(case.batch, ended, clock())
            if asked is None:
                await asyncio.sleep(max(0.0, walk.look_at - clock()))
                continue
            if asked.hints is not None:
                ended.clear()
            answer = await store.claim_limited(me.id, 1, "default", asked, [], 0.05)
            walk.answered(answer, asked, clock())
            found = answer.jobs
            ended.extend(job.lane for job in found if job.lane)
        items = [AckItem(job.id, job.claim_token, COMPLETED, 0.001) for job in found]
        if items:
            await store.ack(me.id, items, None)
        done += len(items)
    spent = cpu_seconds(backend) - before
    written = _wal(server) - wal
    await store.close()
    return {"backend_us": spent / jobs * 1e6, "wal_bytes": written / jobs}


def _wal(server: Server) -> int:
    row = server.admin.execute(
        "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
    ).fetchone()
    assert row
    return int(row[0])


@click.command("limits")
@common()
@click.option("--jobs", default=20_000)
@click.option("--case", "cases", multiple=True, help="only these, besides plain")
def command(jobs: int, **options: Any) -> None:
    """Jobs with limits, and of fair queues, against plain ones."""
    wanted = options.pop("cases", ())
    chosen = [case for case in CASES if not wanted or case is PLAIN or case.name in wanted]
    with run(**options) as this:
        said = f"{jobs:,} jobs, claimed and acknowledged in batches of 50 on one connection"
        result = Result("Limits, leasework", said, COLUMNS, PLAIN.name)
        this.results.append(result)
        for turn in range(this.rounds):
            for case in chosen if turn % 2 == 0 else chosen[::-1]:
                with this.server.database() as dsn:
                    figures = asyncio.run(claims(this.server, dsn, replace(case), jobs))
                result.add(case.name, figures)
                click.echo(f"round {turn + 1} {case.name}: {figures}", err=True)
