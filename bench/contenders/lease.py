"""leasework with its defaults: the worker is the body of the verb ``leasework worker``."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench.ledger import Ledger
from bench.side import Batch, Sent, spaced, streamed
from leasework import App
from leasework.cli.work.worker import run_worker

_work: dict[str, Any] = {}


def _app(
    dsn: str,
    ran: Any = None,
    history: bool = True,
    sleep_ms: float = 0.0,
    queues: int = 1,
    claim: str = "rows",
) -> Any:
    app = App(dsn, name="bench", release="bench")
    if claim != "rows":
        app.queue("default", claim=claim)

    async def run(n: int, text: str) -> None:
        ran(n)
        if sleep_ms:
            await asyncio.sleep(sleep_ms / 1000)

    async def told(breach: dict[str, Any]) -> None:
        ran(int(breach["name"].rpartition("-")[2]))

    noop = app.task(name="noop", history=history)(run)
    app.task(name="told", history=history)(told)
    for number in range(1, queues):
        app.task(name=f"noop-{number}", queue=f"queue-{number}", history=history)(run)
    return app, noop


def made() -> App:
    """The App of this process's worker, as ``leasework worker`` loads it."""
    app: App = _app(**_work)[0]
    return app


async def prepare(dsn: str) -> None:
    app, _ = _app(dsn)
    await app.apply_schema()
    await app.close()


async def load(
    dsn: str, jobs: int, size: int, history: bool = True, queues: int = 1
) -> dict[str, float]:
    """``enqueue_many`` of a generator of 10,000 jobs each; seconds. With ``queues`` in turn to each
    of them."""
    app, noop = _app(dsn, history=history)
    text = "x" * size
    names = ["default", *(f"queue-{number}" for number in range(1, queues))]
    tasks = [noop.using(queue=name) for name in names]
    await app.jobs(limit=1)  # connected, as the others are
    start = time.monotonic()
    for first in range(0, jobs, 10_000):
        await app.enqueue_many(
            tasks[n % queues].job(n=n, text=text) for n in range(first, min(first + 10_000, jobs))
        )
    seconds = time.monotonic() - start
    await app.close()
    return {"seconds": seconds}


async def each(dsn: str, jobs: int, size: int) -> dict[str, float]:
    """``enqueue`` one by one; seconds."""
    app, noop = _app(dsn)
    text = "x" * size
    await app.jobs(limit=1)
    start = time.monotonic()
    for n in range(jobs):
        await noop.enqueue(n=n, text=text)
    seconds = time.monotonic() - start
    await app.close()
    return {"seconds": seconds}


async def produce(dsn: str, jobs: int, first: int, gap: float, size: int) -> list[Sent]:
    """One job each ``gap`` seconds."""
    app, noop = _app(dsn)
    text = "x" * size
    await app.jobs(limit=1)
    sent = await spaced(lambda n: noop.enqueue(n=n, text=text), jobs, first, gap)
    await app.close()
    return sent


async def stream(dsn: str, rate: float, seconds: float, size: int) -> list[Batch]:
    """``enqueue_many``."""
    app, noop = _app(dsn)
    text = "x" * size

    async def send(numbers: range) -> None:
        await app.enqueue_many([noop.job(n=n, text=text) for n in numbers])

    sent = await streamed(send, rate, seconds)
    await app.close()
    return sent


def _limited(dsn: str, ran: Any = None, seconds: float = 0.0) -> tuple[App, Any]:
    """A task with a limit: two at once of each key."""
    app = App(dsn, name="bench", release="bench")
    two = app.limit("two", concurrency=2, key="key")

    @app.task(name="limited", limits=[two])
    async def limited(n: int, key: int) -> None:
        ran(2 * n)
        await asyncio.sleep(seconds)
        ran(2 * n + 1)

    return app, limited


def made_limited() -> App:
    """The App of a worker of jobs with a limit."""
    return _limited(**_work)[0]


async def load_limited(dsn: str, jobs: int, keys: int) -> None:
    app, limited = _limited(dsn)
    await app.enqueue_many(limited.job(n=n, key=n % keys) for n in range(jobs))
    await app.close()


def work_limited(
    dsn: str, folder: str, entries: int, seconds: float, keys: int, slots: int, node: str
) -> int:
    ran = Ledger.of_this_process(folder, entries).recorder(timed=True)
    _work.update(dsn=dsn, ran=ran, seconds=seconds)
    return run_worker(f"{__name__}:made_limited", {}, {"default": slots}, execute=True)


def work(
    dsn: str,
    folder: str,
    entries: int,
    history: bool = True,
    timed: bool = False,
    sleep_ms: float = 0.0,
    queues: int = 1,
    claim: str = "rows",
    slots: int = 0,
    loop: str = "asyncio",
) -> int:
    """``slots``: how many jobs it runs at once, if not the default. ``loop``: asyncio or uvloop."""
    if loop == "uvloop":
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    ran = Ledger.of_this_process(folder, entries).recorder(timed)
    options = {"history": history, "sleep_ms": sleep_ms, "queues": queues, "claim": claim}
    _work.update(dsn=dsn, ran=ran, **options)
    return run_worker(f"{__name__}:made", {}, {"default": slots} if slots else None, execute=True)
