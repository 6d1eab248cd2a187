"""The application under test. ``python -m tests.failover.load worker|producer``; what happens is
written to the file JOURNAL, a JSON object a line, each in one write."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
import sys
import time
from typing import Any

from leasework import App, Context
from leasework.errors import LeaseworkError

RECOVER_WITHIN = 9.0
app = App(recover_within=RECOVER_WITHIN, call_timeout=5.0)


def note(what: str, **fields: Any) -> None:
    line = json.dumps({"what": what, "at": time.monotonic(), "pid": os.getpid(), **fields})
    with open(os.environ["JOURNAL"], "ab", buffering=0) as journal:
        journal.write(line.encode() + b"\n")


@app.task(name="work", max_attempts=50)
async def work(ctx: Context, n: str) -> None:
    note("ran", job=str(ctx.job_id), token=ctx.token, n=n)


@app.every(seconds=1, name="tick", grace_seconds=0.5)
@app.task(name="tick", max_attempts=50)
async def tick(ctx: Context) -> None:
    note("tick", job=str(ctx.job_id), token=ctx.token)


async def produce() -> None:
    """One enqueue after the other: acknowledged, or of unknown outcome."""
    name = os.environ["PRODUCER"]
    for number in itertools.count():
        n = f"{name}-{number}"
        try:
            job = await work.enqueue(n=n)
        except LeaseworkError as error:
            note("unknown", n=n, why=type(error).__name__)
            await asyncio.sleep(0.1)
        else:
            note("acked", n=n, job=str(job.id))
            await asyncio.sleep(0.005)


class Terms(logging.Handler):
    """The terms of this process, as it logs them: a row of the database may be lost."""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", "") == "lease_acquired":
            note("term", **record.__dict__["fields"])


async def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("leasework").addHandler(Terms())
    if sys.argv[1] == "producer":
        await produce()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    while not stop.is_set():
        # a node gives up only at its start: the database may be on its way to another host
        try:
            async with app.node():
                await stop.wait()
        except LeaseworkError as error:
            note("start_failed", why=str(error))
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main())
