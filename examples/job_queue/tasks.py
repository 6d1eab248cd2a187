"""Three tasks, each with a queue of its own.

leasework worker tasks:app
"""

import asyncio
import os

from leasework import App, Backoff, Context

PAGE_SECONDS = float(os.environ.get("PAGE_SECONDS", "0.1"))

app = App(os.environ.get("LEASEWORK_DSN", "embedded"), name="job-queue")


class GatewayDown(Exception):
    """The payment gateway did not answer."""


@app.task(queue="mail", max_attempts=10)
async def send_email(ctx: Context, to: str, subject: str) -> None:
    await asyncio.sleep(0.1)  # the mail server takes its time
    ctx.log.info("sent %r to %s", subject, to)


@app.task(queue="reports", timeout=600)
async def generate_report(ctx: Context, month: str, pages: int = 10) -> dict[str, object]:
    for page in range(1, pages + 1):
        await asyncio.sleep(PAGE_SECONDS)
        await ctx.progress(page / pages, f"page {page} of {pages}")
    return {"file": f"report-{month}.pdf", "pages": pages}


@app.task(queue="payments", timeout=30, max_attempts=3, backoff=Backoff(base=0.5, longest=60))
async def process_payment(
    ctx: Context, order: int, amount_won: int, gateway_down: bool = False
) -> dict[str, object]:
    """Tried three times, then discarded. ``order`` is the gateway's idempotency key."""
    await asyncio.sleep(0.05)
    if gateway_down:
        raise GatewayDown(f"no answer for order {order}, attempt {ctx.attempt}")
    return {"order": order, "charged_won": amount_won}
