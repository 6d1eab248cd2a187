"""The healthy, busy application of ``make healthy``."""

from __future__ import annotations

import asyncio

from leasework import App, Context

app = App()


@app.task(name="quick")
async def quick(number: int) -> None:
    if number % 1000 == 507:
        raise ValueError("one job in a thousand is wrong, and is given up")


@app.task(name="slow")
async def slow(number: int) -> None:
    await asyncio.sleep(0.15)


@app.task(name="unlucky")
async def unlucky(ctx: Context, number: int) -> None:
    if number % 1000 == 1 and ctx.attempt == 1:
        raise ConnectionError("the other side was away for a moment")


@app.every(seconds=1, name="each-second", missed="skip", grace_seconds=1)
@app.task(name="tick")
async def tick() -> None: ...


@app.every(seconds=10, name="each-ten-seconds")
@app.task(name="report")
async def report() -> None:
    async with app.lock("report"):
        await asyncio.sleep(0.15)
