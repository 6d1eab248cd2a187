"""procrastinate: psycopg with its C code, uvloop, as many jobs at once as leasework (its worker
takes them one by one)."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import procrastinate
import uvloop
from procrastinate import App, PsycopgConnector

from bench.ledger import Ledger
from bench.side import Sent, spaced

CONCURRENCY = 100

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
logging.getLogger("procrastinate").setLevel(logging.ERROR)


def _app(dsn: str, ran: Any = None, sleep_ms: float = 0.0) -> tuple[App, Any]:
    app = procrastinate.App(connector=PsycopgConnector(conninfo=dsn, max_size=20))

    @app.task(name="noop")
    async def noop(n: int, text: str) -> None:
        ran(n)
        if sleep_ms:
            await asyncio.sleep(sleep_ms / 1000)

    return app, noop


async def prepare(dsn: str) -> None:
    app, _ = _app(dsn)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def load(dsn: str, jobs: int, size: int, history: bool = True) -> dict[str, float]:
    app, noop = _app(dsn)
    text = "x" * size
    async with app.open_async():
        start = time.monotonic()
        for first in range(0, jobs, 10_000):
            numbers = range(first, min(first + 10_000, jobs))
            await noop.batch_defer_async(*({"n": n, "text": text} for n in numbers))
        return {"seconds": time.monotonic() - start}


async def each(dsn: str, jobs: int, size: int) -> dict[str, float]:
    app, noop = _app(dsn)
    text = "x" * size
    async with app.open_async():
        start = time.monotonic()
        for n in range(jobs):
            await noop.defer_async(n=n, text=text)
        return {"seconds": time.monotonic() - start}


async def produce(dsn: str, jobs: int, first: int, gap: float, size: int) -> list[Sent]:
    app, noop = _app(dsn)
    text = "x" * size
    async with app.open_async():
        return await spaced(lambda n: noop.defer_async(n=n, text=text), jobs, first, gap)


async def work(
    dsn: str,
    folder: str,
    entries: int,
    history: bool = True,
    timed: bool = False,
    sleep_ms: float = 0.0,
    concurrency: int = CONCURRENCY,
) -> None:
    app, _ = _app(dsn, Ledger.of_this_process(folder, entries).recorder(timed), sleep_ms)
    async with app.open_async():
        await app.run_worker_async(
            concurrency=concurrency, delete_jobs="never" if history else "successful"
        )


def _limited(dsn: str, ran: Any = None, seconds: float = 0.0) -> tuple[App, Any]:
    """With the task of its documentation that retries the jobs of dead workers, each minute."""
    app = procrastinate.App(connector=PsycopgConnector(conninfo=dsn, max_size=20))

    @app.task(name="limited")
    async def limited(n: int) -> None:
        ran(2 * n)
        await asyncio.sleep(seconds)
        ran(2 * n + 1)

    @app.periodic(cron="* * * * *")
    @app.task(name="retry_stalled_jobs", queueing_lock="retry_stalled_jobs", pass_context=True)
    async def retry_stalled_jobs(context: Any, timestamp: int) -> None:
        for job in await app.job_manager.get_stalled_jobs():
            await app.job_manager.retry_job(job)

    return app, limited


async def load_limited(dsn: str, jobs: int, keys: int) -> None:
    """A lock is for one job: each key has two of them, in turn."""
    app, limited = _limited(dsn)
    async with app.open_async():
        for n in range(jobs):
            lock = f"{n % keys}-{n // keys % 2}"
            await limited.configure(lock=lock).defer_async(n=n)


async def work_limited(
    dsn: str, folder: str, entries: int, seconds: float, keys: int, slots: int, node: str
) -> None:
    ran = Ledger.of_this_process(folder, entries).recorder(timed=True)
    app, _ = _limited(dsn, ran, seconds)
    async with app.open_async():
        # nobody tells a worker that a lock is free: it looks each 5 s, if not told otherwise
        await app.run_worker_async(concurrency=slots, fetch_job_polling_interval=0.5)
