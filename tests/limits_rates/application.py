"""The application that is measured. Each handler writes a line: the time, and what it cost."""

from __future__ import annotations

import asyncio
import os
import time

from leasework import App, Rate

app = App(name="rates")
spaced = app.limit("spaced", rate=Rate(10, per=1.0, burst=1))
tokens = app.limit("tokens", rate=Rate(90_000, per=60, burst=8_000), cost="cost")
one = app.limit("one", concurrency=1)
few = app.limit("few", concurrency=5, key="key")
app.limit("fast", rate=Rate(1_000_000, per=1.0))
app.queue("tenants", fair="tenant", weight={"t1": 2.0, "t2": 0.5})
_file = os.open(os.environ.get("RATES_LEDGER", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def _note(what: object) -> None:
    os.write(_file, f"{time.time()} {what}\n".encode())  # as the database's clock


@app.task(limits=[spaced])
async def space() -> None:
    _note(1)


@app.task(limits=[tokens])
async def spend(cost: int) -> None:
    _note(cost)


@app.task(queue="tenants")
async def serve(tenant: str) -> None:
    _note(tenant)


@app.task(limits=[one])
async def alone() -> None:
    _note(1)
    await asyncio.sleep(0.01)


@app.task(limits=[few])
async def keyed(key: int) -> None:
    _note(key)
