"""A web application with a schedule of one second. Everything else comes from the environment:
LEASEWORK_DSN, _NAME, _RELEASE, _RECOVER_WITHIN; what the tests vary is read below."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request

from leasework import App, Context
from tests.e2e.apps.journal import note

app = App()
loaded_by = os.getpid()


@app.every(seconds=1, missed="all", name="each-second")
@app.task(queue="ticks")
async def tick(ctx: Context) -> None:
    note("tick", ctx.scheduled_for.timestamp(), ctx.attempt)


@app.periodic(os.environ.get("CRON", "0 3 * * *"), name="nightly")
@app.task(queue="ticks")
async def nightly(ctx: Context) -> None:
    note("nightly")


@app.task(queue="work")
async def work(ctx: Context, seconds: float = 0.0) -> None:
    note("work-began", ctx.job_id, ctx.attempt)
    await asyncio.sleep(seconds)
    note("work-done", ctx.job_id, ctx.attempt)


@app.task(queue="work")
async def warm(ctx: Context) -> None:
    note("warm-began", ctx.job_id, ctx.attempt)
    if os.environ.get("WARM_HANGS") and ctx.attempt == 1:
        await asyncio.Event().wait()
    note("warm-done", ctx.job_id, ctx.attempt)


@asynccontextmanager
async def own_lifespan(asgi_app: Any) -> AsyncIterator[dict[str, str]]:
    note("own-start")
    if release := app.settings.release:
        once = warm.using(unique=f"warm-{release}", unique_for=3600, on_conflict="return")
        await once.enqueue()
    yield {"greeting": "from the user's own lifespan"}
    note("own-stop")


asgi = FastAPI(
    lifespan=app.lifespan(
        wrap=own_lifespan,
        execute=not os.environ.get("NO_EXECUTE"),
        queues={"ticks": 10, "work": int(os.environ.get("SLOTS", "10"))},
    )
)


@asgi.get("/")
async def index(request: Request) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "loaded_by": loaded_by,
        "greeting": request.state.greeting,
        "env_pid": app.env.pid,
    }
