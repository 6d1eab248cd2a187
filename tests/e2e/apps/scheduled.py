"""An application with an APScheduler of its own, of which each worker has one.

``MODE``: ``gate`` (the leader's runs), ``adopt`` (each run is a job of leasework), or ``both``,
with a scheduler each.
``WITHOUT_CHECK``: take the question before each run out."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from fastapi import FastAPI

from leasework import App
from leasework.integrations import apscheduler as integration
from tests.e2e.apps.journal import note

app = App()


async def each_second(what: str) -> None:
    note(what)


def scheduler(what: str, late: int) -> Any:
    """``late``: for how many seconds a run that was missed is made up for."""
    made = AsyncIOScheduler(timezone="UTC")
    made.add_job(
        each_second,
        "interval",
        seconds=1,
        args=[what],
        id="each-second",
        misfire_grace_time=late,
    )
    return made


def of_the_leader() -> Any:
    """Nothing is too late: whatever a stopped process finds undone, it would do when it wakes."""
    return scheduler("run", 3600)


@asynccontextmanager
async def adopted(what: str) -> AsyncIterator[None]:
    each = scheduler(what, 5)
    integration.adopt(each, app)
    async with app.node():
        each.start()
        yield
        each.shutdown(wait=False)


@asynccontextmanager
async def lifespan(asgi: FastAPI) -> AsyncIterator[None]:
    if os.environ.get("WITHOUT_CHECK"):
        integration._guarded = lambda function, job, lead: function  # type: ignore[assignment]
    async with AsyncExitStack() as stack:
        mode = os.environ["MODE"]
        if mode in ("adopt", "both"):
            await stack.enter_async_context(adopted("run" if mode == "adopt" else "job"))
        if mode in ("gate", "both"):
            gate = integration.leader_gate(of_the_leader(), app, "engine")
            await stack.enter_async_context(gate)
        note("stands")
        yield


asgi = FastAPI(lifespan=lifespan)
