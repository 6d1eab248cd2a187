"""pgqueuer: asyncpg, uvloop, a large batch (each dequeue is one statement, acks are buffered by the
batch), and durability "durable", its default: everybody here keeps what was committed."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import time
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from bench.ledger import Ledger
from bench.side import Sent, spaced

BATCH = 1000

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
logging.getLogger("pgqueuer").setLevel(logging.ERROR)


def payload(n: int, size: int) -> bytes:
    return json.dumps({"n": n, "text": "x" * size}).encode()


async def prepare(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def load(dsn: str, jobs: int, size: int, history: bool = True) -> dict[str, float]:
    connection = await asyncpg.connect(dsn)
    queries = Queries(AsyncpgDriver(connection))
    start = time.monotonic()
    for first in range(0, jobs, 10_000):
        numbers = range(first, min(first + 10_000, jobs))
        await queries.enqueue(
            ["noop"] * len(numbers), [payload(n, size) for n in numbers], [0] * len(numbers)
        )
    seconds = time.monotonic() - start
    await connection.close()
    return {"seconds": seconds}


async def each(dsn: str, jobs: int, size: int) -> dict[str, float]:
    connection = await asyncpg.connect(dsn)
    queries = Queries(AsyncpgDriver(connection))
    start = time.monotonic()
    for n in range(jobs):
        await queries.enqueue("noop", payload(n, size))
    seconds = time.monotonic() - start
    await connection.close()
    return {"seconds": seconds}


async def produce(dsn: str, jobs: int, first: int, gap: float, size: int) -> list[Sent]:
    connection = await asyncpg.connect(dsn)
    queries = Queries(AsyncpgDriver(connection))
    sent = await spaced(lambda n: queries.enqueue("noop", payload(n, size)), jobs, first, gap)
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
) -> None:
    ran = Ledger.of_this_process(folder, entries).recorder(timed)
    connection = await asyncpg.connect(dsn)
    app = PgQueuer(AsyncpgDriver(connection))

    @app.entrypoint("noop")
    async def noop(job: Any) -> None:
        ran(json.loads(job.payload)["n"])
        if sleep_ms:
            await asyncio.sleep(sleep_ms / 1000)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, app.shutdown.set)
    await app.run(batch_size=batch)


async def load_limited(dsn: str, jobs: int, keys: int) -> None:
    """An entrypoint for each key: that is what a limit belongs to."""
    connection = await asyncpg.connect(dsn)
    queries = Queries(AsyncpgDriver(connection))
    names = [f"key{n % keys}" for n in range(jobs)]
    await queries.enqueue(names, [payload(n, 0) for n in range(jobs)], [0] * jobs)
    await connection.close()


async def work_limited(
    dsn: str, folder: str, entries: int, seconds: float, keys: int, slots: int, node: str
) -> None:
    ran = Ledger.of_this_process(folder, entries).recorder(timed=True)
    app = PgQueuer(AsyncpgDriver(await asyncpg.connect(dsn)))

    async def limited(job: Any) -> None:
        n = json.loads(job.payload)["n"]
        ran(2 * n)
        await asyncio.sleep(seconds)
        ran(2 * n + 1)

    for key in range(keys):
        app.entrypoint(f"key{key}", concurrency_limit=2)(limited)
    await app.run(batch_size=slots // 2, max_concurrent_tasks=slots)
