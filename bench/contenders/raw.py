"""The reference: a loop as people write it by hand, batch claim and ack of 100 by asyncpg."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from typing import Any

import asyncpg

from bench.ledger import Ledger

BATCH = 100

SCHEMA = """
create table job (
    id          bigint generated always as identity primary key,
    queue       text not null default 'default',
    state       text not null default 'ready',
    priority    smallint not null default 0,
    run_at      timestamptz not null default now(),
    created_at  timestamptz not null default now(),
    started_at  timestamptz,
    finished_at timestamptz,
    attempts    smallint not null default 0,
    worker      text,
    payload     jsonb not null
);
create index job_ready on job (queue, priority, run_at, id) where state = 'ready';
"""
CLAIM = """
with next as (
    select id from job where state = 'ready' and queue = $1 and run_at <= now()
    order by priority, run_at, id limit $2 for update skip locked
)
update job set state = 'running', started_at = now(), attempts = attempts + 1, worker = $3
from next where job.id = next.id
returning job.id, job.payload
"""
FINISH = "update job set state = 'done', finished_at = now() where id = any($1::bigint[])"
DELETE = "delete from job where id = any($1::bigint[])"
INSERT = "insert into job (queue, payload) values ($1, $2)"


async def prepare(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(SCHEMA)
    await connection.close()


async def load(dsn: str, jobs: int, size: int, history: bool = True) -> dict[str, float]:
    """COPY, 10,000 rows each; seconds."""
    connection = await asyncpg.connect(dsn)
    text = "x" * size
    start = time.monotonic()
    for first in range(0, jobs, 10_000):
        rows = [
            ("default", json.dumps({"n": n, "text": text}))
            for n in range(first, min(first + 10_000, jobs))
        ]
        await connection.copy_records_to_table("job", records=rows, columns=["queue", "payload"])
    seconds = time.monotonic() - start
    await connection.close()
    return {"seconds": seconds}


async def work(dsn: str, folder: str, entries: int, history: bool = True) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    ran = Ledger.of_this_process(folder, entries).recorder()

    async def handler(n: int, text: str) -> None:
        ran(n)

    connection = await asyncpg.connect(dsn)
    finish = FINISH if history else DELETE
    while not stop.is_set():
        rows: list[Any] = await connection.fetch(CLAIM, "default", BATCH, "worker")
        for row in rows:
            await handler(**json.loads(row["payload"]))
        if rows:
            await connection.execute(finish, [row["id"] for row in rows])
        else:
            await asyncio.sleep(0.05)
    await connection.close()
