"""An application with an APScheduler of its own, of which each worker has one.

``MODE``: ``gate`` (the leader's runs) or ``adopt`` (each run is a job of leasehold).
``WITHOUT_CHECK``: take the question before each run out."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from fastapi import FastAPI

from leasehold import App
from leasehold.integrations import apscheduler as integration
from tests.e2e.apps.journal import note

app = App()


async def each_second() -> None:
    note("run")


def scheduler() -> Any:
    made = AsyncIOScheduler(timezone="UTC")
    # nothing is too late: whatever a stopped process finds undone, it would do when it wakes
    late = 3600 if os.environ["MODE"] == "gate" else 5
    made.add_job(each_second, "interval", seconds=1, id="each-second", misfire_grace_time=late)
    return made


@asynccontextmanager
async def lifespan(asgi: FastAPI) -> AsyncIterator[None]:
    if os.environ.get("WITHOUT_CHECK"):
        integration._guarded = lambda function, job, lead: function  # type: ignore[assignment]
    each = scheduler()
    if os.environ["MODE"] == "gate":
        async with integration.leader_gate(each, app, "engine"):
            note("stands")
            yield
        return
    integration.adopt(each, app)
    async with app.node():
        each.start()
        note("stands")
        yield
        each.shutdown(wait=False)


asgi = FastAPI(lifespan=lifespan)
