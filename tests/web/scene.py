"""A lively application for the dashboard: its worker and its web server are real processes."""

from __future__ import annotations

import asyncio

from leasework import App, Backoff, Context

app = App()


@app.every(seconds=1, missed="all", name="each-second")
@app.task(queue="ticks", name="tick")
async def tick() -> None:
    pass


@app.periodic("0 15 * * *", timezone="Asia/Seoul", name="daily-report")
@app.task(queue="reports", name="report")
async def report(ctx: Context) -> dict[str, int]:
    return {"rows": 7}


@app.periodic("*/20 8-18 * * *", timezone="Europe/Berlin", name="sync-contacts")
@app.task(queue="reports", name="contacts")
async def contacts() -> None:
    pass


@app.task(queue="mail", name="send")
async def send(ctx: Context, user_id: int, password: str = "") -> dict[str, str]:
    await asyncio.sleep(0.02 + (user_id % 7) * 0.03)
    return {"message_id": f"<{user_id}@example.org>", "token": "t-1"}


@app.task(queue="mail", max_attempts=1, name="broken")
async def broken(ctx: Context, says: str = "no address for this user") -> None:
    raise LookupError(says)


@app.task(queue="work", max_attempts=4, name="flaky", backoff=Backoff(base=600))
async def flaky(ctx: Context) -> None:
    raise TimeoutError("the API did not answer")


@app.task(queue="work", timeout=3600, name="long")
async def long(ctx: Context, pages: int = 20) -> None:
    await ctx.progress(0.35, f"page 7 of {pages}")
    await asyncio.Event().wait()
