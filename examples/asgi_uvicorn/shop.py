"""A shop: each order sends a receipt, and a report is due every minute. The web services of this
folder share it."""

import os

from leasework import App, Context

app = App(os.environ.get("LEASEWORK_DSN", "embedded"), name="shop")


@app.every(seconds=float(os.environ.get("REPORT_EVERY_SECONDS", "60")))
@app.task(queue="reports", timeout=600)
async def report(ctx: Context) -> None:
    ctx.log.info("the report of %s", ctx.scheduled_for)


@app.task(queue="mail", max_attempts=10)
async def send_receipt(order: int) -> str:
    return f"receipt for order {order} sent by process {os.getpid()}"


async def buy(order: int) -> str:
    """Only the first click of a day sends a receipt. Return the job's id."""
    once = send_receipt.using(unique=f"receipt-{order}", unique_for=86_400)
    return str((await once.enqueue(order)).id)


def password() -> str:
    """The dashboard's password. Your own login goes here."""
    return os.environ.get("OPS_PASSWORD", "an example password: set your own")
