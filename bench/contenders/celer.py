"""celery on redis: no results, no events, gossip, mingle or heartbeat; a deep prefetch."""

from __future__ import annotations

import time
from typing import Any

from celery import Celery
from celery.signals import worker_process_init

from bench.ledger import Ledger
from bench.side import Sent, spaced

PREFETCH = 1000


def _app(dsn: str, sleep_ms: float = 0.0) -> tuple[Celery, Any]:
    app = Celery("bench", broker=f"redis+socket://{dsn}")
    app.conf.update(
        task_ignore_result=True,
        task_default_queue="default",
        worker_prefetch_multiplier=PREFETCH,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_pool_limit=10,
        worker_hijack_root_logger=False,
    )
    ran: list[Any] = []

    @app.task(name="noop")
    def noop(n: int, text: str) -> None:
        ran[0](n)
        if sleep_ms:
            time.sleep(sleep_ms / 1000)

    noop.ran = ran
    return app, noop


def prepare(dsn: str) -> None:
    _app(dsn)[0].control.purge()


def load(dsn: str, jobs: int, size: int, history: bool = True) -> dict[str, float]:
    app, noop = _app(dsn)
    text = "x" * size
    with app.producer_pool.acquire(block=True) as producer:
        start = time.monotonic()
        for n in range(jobs):  # it has no call for many
            noop.apply_async(kwargs={"n": n, "text": text}, producer=producer)
        return {"seconds": time.monotonic() - start}


def each(dsn: str, jobs: int, size: int) -> dict[str, float]:
    return load(dsn, jobs, size)


async def produce(dsn: str, jobs: int, first: int, gap: float, size: int) -> list[Sent]:
    _, noop = _app(dsn)
    text = "x" * size

    async def send(n: int) -> None:
        noop.delay(n=n, text=text)

    return await spaced(send, jobs, first, gap)


def work(
    dsn: str,
    folder: str,
    entries: int,
    history: bool = True,
    timed: bool = False,
    sleep_ms: float = 0.0,
    pool: str = "solo",
    concurrency: int = 1,
) -> None:
    app, noop = _app(dsn, sleep_ms)

    def open_ledger(**_: Any) -> None:
        noop.ran.append(Ledger.of_this_process(folder, entries).recorder(timed))

    if pool == "prefork":
        worker_process_init.connect(open_ledger, weak=False)
    else:
        open_ledger()
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
    app.worker_main(["worker", f"--pool={pool}", f"--concurrency={concurrency}", *quiet])
