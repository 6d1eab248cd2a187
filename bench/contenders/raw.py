"""The reference: a loop as people write it by hand, batch claim and ack of 100 by asyncpg."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import suppress
from typing import Any

import asyncpg

from bench.ledger import Ledger
from bench.side import Batch, Sent, spaced, streamed

BATCH = 100
POLL_SECONDS = 5.0
ORDER = "priority, run_at, id"

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
create index job_ready on job ({index}) where state = 'ready';
"""
CLAIM = """
with next as (
    select id from job where state = 'ready' and queue = $1 and run_at <= now()
    order by {order} limit $2 for update skip locked
)
update job set state = 'running', started_at = now(), attempts = attempts + 1, worker = $3
from next where job.id = next.id
returning job.id, job.payload
"""
FINISH = "update job set state = 'done', finished_at = now() where id = any($1::bigint[])"
DELETE = "delete from job where id = any($1::bigint[])"
INSERT_MANY = (
    "with new as (insert into job (queue, payload) select $1, unnest($2::jsonb[]))"
    " select pg_notify('job', '')"
)
INSERT_NOTIFY = (
    "with new as (insert into job (queue, payload) values ($1, $2)) select pg_notify('job', '')"
)
INSERT = "insert into job (queue, payload) values ($1, $2)"


async def prepare(dsn: str, index: str = f"queue, {ORDER}") -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(SCHEMA.format(index=index))
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


async def each(dsn: str, jobs: int, size: int) -> dict[str, float]:
    """INSERT and its commit, one by one; seconds."""
    connection = await asyncpg.connect(dsn)
    text = "x" * size
    await connection.fetchval("select 1")
    start = time.monotonic()
    for n in range(jobs):
        await connection.execute(INSERT, "default", json.dumps({"n": n, "text": text}))
    seconds = time.monotonic() - start
    await connection.close()
    return {"seconds": seconds}


async def produce(dsn: str, jobs: int, first: int, gap: float, size: int) -> list[Sent]:
    """One job each ``gap`` seconds, with a notification in its transaction."""
    connection = await asyncpg.connect(dsn)
    text = "x" * size

    async def send(n: int) -> None:
        await connection.execute(INSERT_NOTIFY, "default", json.dumps({"n": n, "text": text}))

    sent = await spaced(send, jobs, first, gap)
    await connection.close()
    return sent


async def stream(dsn: str, rate: float, seconds: float, size: int) -> list[Batch]:
    """Many at once by unnest, with one notification."""
    connection = await asyncpg.connect(dsn)
    text = "x" * size

    async def send(numbers: range) -> None:
        await connection.execute(
            INSERT_MANY, "default", [json.dumps({"n": n, "text": text}) for n in numbers]
        )

    sent = await streamed(send, rate, seconds)
    await connection.close()
    return sent


async def work(
    dsn: str,
    folder: str,
    entries: int,
    history: bool = True,
    timed: bool = False,
    sleep_ms: float = 0.0,
    batch: int = BATCH,
    order: str = ORDER,
    loops: int = 1,
) -> None:
    """``loops``: how many claim and ack at once, each on a connection of its own."""
    stop, news = asyncio.Event(), [asyncio.Event() for _ in range(loops)]

    def wake(*_: Any) -> None:
        for one in news:
            one.set()

    def stopped() -> None:
        stop.set()
        wake()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped)
    ran = Ledger.of_this_process(folder, entries).recorder(timed)

    async def handler(n: int, text: str) -> None:
        ran(n)
        if sleep_ms:
            await asyncio.sleep(sleep_ms / 1000)

    claim, finish = CLAIM.format(order=order), FINISH if history else DELETE

    async def loop(news: asyncio.Event) -> None:
        connection = await asyncpg.connect(dsn)
        while not stop.is_set():
            news.clear()
            rows: list[Any] = await connection.fetch(claim, "default", batch, "worker")
            if sleep_ms:
                await asyncio.gather(*(handler(**json.loads(row["payload"])) for row in rows))
            else:
                for row in rows:
                    await handler(**json.loads(row["payload"]))
            if rows:
                await connection.execute(finish, [row["id"] for row in rows])
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), POLL_SECONDS)
        await connection.close()

    listening = await asyncpg.connect(dsn)
    await listening.add_listener("job", wake)
    await asyncio.gather(*map(loop, news))
    await listening.close()
