"""The application of the cells. It runs in a folder of its own, and knows leasework alone.

``leasework worker application:cell`` works for the cell that CELL names, ``python application.py
work`` for all cells, and ``python application.py enqueue`` enqueues until it is told to end.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from leasework import App, Cells, Context
from leasework.errors import LeaseworkError

JOBS_PER_SECOND = float(os.environ.get("JOBS_PER_SECOND", "20"))
"""Of each cell."""
KEYS = [f"customer-{n}" for n in range(60)]
PINS = {"customer-1": "a", "customer-2": "b", "customer-3": "c"}
LATE_SECONDS = 0.5
"""An enqueuer that is later than this has lost its pace, and says so."""


def note(what: str, **more: Any) -> None:
    """Append a line to the ledger, in one write."""
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (json.dumps({"what": what, "at": time.time(), **more}) + "\n").encode())
    os.close(file)


@asynccontextmanager
async def name_of_cell(part: App) -> AsyncIterator[str]:
    yield next(name for name, one in cells.apps.items() if one is part)


app = App(name="cells", recover_within=9.0, call_timeout=5.0, lifespan=name_of_cell)
cells = Cells(app, json.loads(os.environ["CELLS"]), schedules="a", pins=PINS)


@app.task(name="serve")
async def serve(ctx: Context, key: str) -> None:
    note("effect", job=str(ctx.job_id), key=key, cell=ctx.state)


@app.every(seconds=1, missed="all")
@app.task(name="second")
async def second(ctx: Context) -> None:
    note("tick", cell=ctx.state)


def cell() -> App:
    return cells.apps[os.environ["CELL"]]


async def until_told(*work: Any) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    tasks = [asyncio.create_task(each) for each in work]
    await stop.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def enqueue_for(name: str, keys: list[str]) -> None:
    """Enqueue for the keys of a cell at a steady rate. A cell that is away delays its own keys."""
    began, n = time.monotonic(), 0
    while True:
        key = keys[n % len(keys)]
        try:
            job = await cells.of(key).enqueue(serve.job(key=key))
            note("sent", job=str(job.id), key=key, cell=name)
        except LeaseworkError as error:
            note("not enqueued", cell=name, error=f"{type(error).__name__}: {error}")
        n += 1
        late = time.monotonic() - began - n / JOBS_PER_SECOND
        if late > LATE_SECONDS:
            note("late", cell=name, seconds=late)
            began += late  # it does not catch up: the rate of this cell was lower
        await asyncio.sleep(max(0.0, -late))


async def enqueue() -> None:
    by_cell: dict[str, list[str]] = {name: [] for name in cells.apps}
    for key in KEYS:
        by_cell[cells.name_of(key)].append(key)
    await until_told(*[enqueue_for(name, keys) for name, keys in by_cell.items()])
    await cells.close()


async def work() -> None:
    async with cells.nodes():
        await until_told()
    await cells.close()


if __name__ == "__main__":
    asyncio.run({"enqueue": enqueue, "work": work}[sys.argv[1]]())
