"""An application with an APScheduler of its own, of which each worker has one.

``WITHOUT_CHECK``: take the question before each run out."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from fastapi import FastAPI

from leasework import App
from leasework.integrations import apscheduler as integration
from tests.e2e.apps.journal import note

app = App()


async def each_second() -> None:
    note("run")


@asynccontextmanager
async def lifespan(asgi: FastAPI) -> AsyncIterator[None]:
    if os.environ.get("WITHOUT_CHECK"):
        integration._guarded = lambda function, job, lead: function  # type: ignore[assignment]
    scheduler = AsyncIOScheduler(timezone="UTC")
    # nothing is too late: whatever a stopped process finds undone, it would do when it wakes
    scheduler.add_job(each_second, "interval", seconds=1, id="each-second", misfire_grace_time=3600)
    async with integration.leader_gate(scheduler, app, "engine"):
        note("stands")
        yield


asgi = FastAPI(lifespan=lifespan)
