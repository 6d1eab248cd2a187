"""The same service with a scheduler in its lifespan: every worker runs every analysis."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from analysis import analyse
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger
from fastapi import FastAPI

every_seconds = os.environ.get("ANALYSIS_EVERY_SECONDS")
daily = (
    CronTrigger(second=f"*/{every_seconds}")
    if every_seconds
    else CronTrigger(hour=15, timezone="Asia/Seoul")
)


def profile_analysis() -> None:
    analyse(due=datetime.now(UTC).replace(microsecond=0))


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    scheduler = AsyncIOScheduler()
    scheduler.add_job(profile_analysis, daily)
    scheduler.start()
    yield
    scheduler.shutdown()


web = FastAPI(lifespan=lifespan)
