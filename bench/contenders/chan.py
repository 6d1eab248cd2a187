"""chancy: psycopg with its C code, uvloop, AsyncExecutor, a large concurrency (that is its batch)
and eager polling."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import uvloop
from chancy import Chancy, Job, Queue, Worker

from bench.ledger import Ledger
from bench.side import Sent, spaced

CONCURRENCY = 1000
_ran: list[Callable[[int], None]] = []
_sleep_ms = [0.0]

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
logging.getLogger("chancy").setLevel(logging.ERROR)


async def noop(*, n: int, text: str) -> None:
    _ran[0](n)
    if _sleep_ms[0]:
        await asyncio.sleep(_sleep_ms[0] / 1000)


def _job(n: int, size: int) -> Job:
    return Job.from_func(noop, queue="default", kwargs={"n": n, "text": "x" * size})


def _app(dsn: str) -> Chancy:
    log = logging.getLogger("chancy")
    return Chancy(dsn, log=log)


async def prepare(dsn: str) -> None:
    async with _app(dsn) as app:
        await app.migrate()
        await app.declare(
            Queue(
                "default",
                concurrency=CONCURRENCY,
                executor=Chancy.Executor.Async,
                polling_interval=1,
                eager_polling=True,
            )
        )


async def load(dsn: str, jobs: int, size: int, history: bool = True) -> dict[str, float]:
    async with _app(dsn) as app:
        start = time.monotonic()
        for first in range(0, jobs, 10_000):
            numbers = range(first, min(first + 10_000, jobs))
            async for _ in app.push_many([_job(n, size) for n in numbers]):
                pass
        return {"seconds": time.monotonic() - start}


async def each(dsn: str, jobs: int, size: int) -> dict[str, float]:
    async with _app(dsn) as app:
        start = time.monotonic()
        for n in range(jobs):
            await app.push(_job(n, size))
        return {"seconds": time.monotonic() - start}


async def produce(dsn: str, jobs: int, first: int, gap: float, size: int) -> list[Sent]:
    async with _app(dsn) as app:
        return await spaced(lambda n: app.push(_job(n, size)), jobs, first, gap)


async def work(
    dsn: str,
    folder: str,
    entries: int,
    history: bool = True,
    timed: bool = False,
    sleep_ms: float = 0.0,
) -> None:
    _sleep_ms[0] = sleep_ms
    _ran.append(Ledger.of_this_process(folder, entries).recorder(timed))
    # jobs name their function by its path: the executor must find this very module
    async with _app(dsn) as app, Worker(app) as worker:
        await worker.wait_for_shutdown()
        await asyncio.sleep(0)
