"""A worker process whose handlers misbehave as they are told, and say so in the history.

Settings come from the environment: ``HISTORY`` (the file), ``QUEUES`` and ``SLOTS`` of each,
``HARD_EXIT=0`` for a process that must not be ended, ``TICKS=1`` for a schedule of each second,
``LOOP=uvloop`` for uvloop in every thread.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import time
from typing import Any

from leasework import App, Backoff, Context, errors

app = App()


def boot_now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def note(kind: str, **fields: Any) -> None:
    """One line of history, appended as a whole."""
    line = json.dumps({"kind": kind, "pid": os.getpid(), "at": boot_now(), **fields}) + "\n"
    file = os.open(os.environ["HISTORY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def tell(ctx: Context, kind: str, **fields: Any) -> None:
    job = {"job": str(ctx.job_id), "token": ctx.token, "attempt": ctx.attempt}
    note(kind, **job, task=ctx.claim.job.task, worker=ctx.worker_id, **fields)


# -- handlers that behave ------------------------------------------------------------------------
@app.task(name="quick")
async def quick(ctx: Context, number: int = 0) -> None:
    tell(ctx, "start")
    tell(ctx, "end")


@app.task(name="nap")
async def nap(ctx: Context, seconds: float) -> None:
    """Works for a while; ends at once when it is cancelled."""
    tell(ctx, "start")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        tell(ctx, "cancelled")
        raise
    tell(ctx, "end")


@app.task(name="enqueue_one")
async def enqueue_one(ctx: Context, key: str) -> None:
    """Enqueues a job with a unique key, however long a user's transaction holds that."""
    tell(ctx, "start")
    while True:
        try:
            await app.enqueue(quick.using(unique=key).job())
            break
        except errors.Unavailable:
            await asyncio.sleep(0.1)
    tell(ctx, "end")


# -- handlers that do not ------------------------------------------------------------------------
@app.task(name="block")
async def block(ctx: Context, seconds: float) -> None:
    """Blocks the event loop, at its first run."""
    tell(ctx, "start")
    if ctx.attempt == 1:
        time.sleep(seconds)  # noqa: ASYNC251
    tell(ctx, "end")


@app.task(name="burn")
async def burn(ctx: Context, seconds: float) -> None:
    """Burns CPU in Python, in the event loop."""
    tell(ctx, "start")
    end = boot_now() + seconds
    while boot_now() < end:
        sum(range(1000))
    tell(ctx, "end")


@app.task(name="hold_gil")
async def hold_gil(ctx: Context, seconds: int) -> None:
    """At its first run, C code that sleeps and never lets Python run."""
    tell(ctx, "start")
    if ctx.attempt == 1:
        ctypes.PyDLL(None).sleep(seconds)
    tell(ctx, "end")


@app.task(name="thread")
def in_thread(ctx: Context, seconds: float, times: int = 1) -> None:
    """In a thread, deaf to everything, at its first ``times`` runs."""
    tell(ctx, "start")
    if ctx.attempt <= times:
        time.sleep(seconds)
    tell(ctx, "end")


@app.task(name="fail", backoff=Backoff(base=0.1))
async def fail(ctx: Context) -> None:
    tell(ctx, "start")
    raise RuntimeError("it does not work")


@app.task(name="die")
async def die(ctx: Context) -> None:
    """Takes its process along."""
    tell(ctx, "start")
    os.kill(os.getpid(), signal.SIGKILL)


if os.environ.get("TICKS") == "1":

    @app.every(seconds=1, name="each second", missed="all")
    @app.task(name="tick")
    async def tick(ctx: Context) -> None:
        tell(ctx, "tick", due=ctx.scheduled_for.timestamp())


async def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)6d %(message)s")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    hard_exit = os.environ.get("HARD_EXIT", "1") == "1"
    slots = int(os.environ.get("SLOTS", "20"))
    queues = os.environ.get("QUEUES", "default").split()
    async with app.node(queues=dict.fromkeys(queues, slots), hard_exit=hard_exit):
        note("up")
        print("up", flush=True)
        await stop.wait()
    await app.close()


if __name__ == "__main__":
    if os.environ.get("LOOP") == "uvloop":
        import uvloop

        uvloop.install()
    asyncio.run(main())
