"""A busy shop for the tasks of an operator: one kind of job for each trouble."""

from __future__ import annotations

import asyncio

from leasework import App, Backoff, Context

app = App()
bank = app.limit("bank", concurrency=4)


@app.every(seconds=1, name="restock")
@app.task(queue="stock", name="restock")
async def restock() -> None:
    pass


@app.periodic("0 3 * * *", timezone="UTC", name="invoices")
@app.task(queue="office", name="invoice")
async def invoice() -> None:
    pass


@app.periodic("0 4 * * *", timezone="UTC", name="newsletter")
@app.task(queue="office", name="write")
async def write() -> None:
    pass


@app.periodic("0 5 * * *", timezone="UTC", name="stocktake")
@app.task(queue="stock", max_attempts=1, name="count")
async def count() -> None:
    raise ValueError("the shelf has less than nothing")


@app.task(queue="packing", name="pack")
async def pack(order: int) -> None:
    await asyncio.sleep(0.01)


@app.task(queue="payments", max_attempts=1, limits=[bank], name="charge")
async def charge(ctx: Context, order: int) -> None:
    ctx.log.warning("charging order %d", order)
    raise ConnectionError(f"bank-{order} refused")


@app.task(queue="labels", max_attempts=5, backoff=Backoff(base=3600), name="label")
async def label(order: int) -> None:
    raise TimeoutError(f"printer {order} did not answer")


@app.task(queue="imports", name="import")
async def hang(pages: int = 20) -> None:
    await asyncio.Event().wait()
