"""The application that is upgraded. It runs in a folder of its own, and knows leasework alone.

``leasework worker application:app`` works. ``python application.py`` enqueues until it is told to
end, and ``python application.py once`` enqueues one job. Each process writes into the ledger.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from typing import Any

from leasework import App, Backoff, Context
from leasework.version import VERSION

JOBS_PER_SECOND = float(os.environ.get("JOBS_PER_SECOND", "25"))
app = App(name="upgrade", recover_within=9.0)
every_one = app.limit("every_one", concurrency=6)


def note(what: str, **more: Any) -> None:
    """Append a line to the ledger, in one write."""
    line = {"what": what, "at": time.time(), "name": os.environ["NAME"], "version": VERSION, **more}
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (json.dumps(line) + "\n").encode())
    os.close(file)


async def act(ctx: Context, *, fails: bool = False) -> int:
    job = str(ctx.job_id)
    note("began", job=job)
    await asyncio.sleep(random.uniform(0.05, 0.4))
    if fails:
        note("raised", job=job)
        raise ValueError("on purpose")
    note("effect", job=job)
    return ctx.attempt


@app.task(name="plain")
async def plain(ctx: Context, n: int) -> int:
    return await act(ctx)


@app.task(name="flaky", backoff=Backoff(base=0.2, factor=1.0, longest=0.3))
async def flaky(ctx: Context, n: int) -> int:
    return await act(ctx, fails=ctx.attempt == 1)


@app.task(name="limited", limits=[every_one])
async def limited(ctx: Context, n: int) -> int:
    return await act(ctx)


@app.every(seconds=1, missed="all")
async def second(ctx: Context) -> int:
    return await act(ctx)


def jobs(n: int) -> list[Any]:
    """What is enqueued in one call: mostly one plain job, now and then something else."""
    kind = n % 10
    if kind == 0:
        return [plain.job(n=n), plain.job(n=n), limited.job(n=n)]
    if kind in (1, 2):
        return [flaky.job(n=n)]
    if kind == 3:
        return [plain.using(run_in=1.0).job(n=n)]
    if kind == 4:
        return [limited.job(n=n)]
    if kind == 5:
        return [plain.using(unique=f"{os.environ['NAME']}-{n}", priority=1).job(n=n)]
    return [plain.job(n=n)]


async def enqueue(once: bool) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    n = 6
    while not stop.is_set():
        wanted = jobs(n)
        try:
            made = (
                await app.enqueue_many(wanted)
                if len(wanted) > 1
                else [await app.enqueue(wanted[0])]
            )
        except Exception as error:
            note("not enqueued", error=f"{type(error).__name__}: {error}")
            if once:
                raise
            made = []
        for job in made:
            note("sent", job=str(job.id))
        if once:
            break
        n += 1
        await asyncio.sleep(len(wanted) / JOBS_PER_SECOND)
    await app.close()


if __name__ == "__main__":
    asyncio.run(enqueue(sys.argv[1:] == ["once"]))
