"""An example application for the files in this folder: one task, one schedule, one page."""

import logging

from fastapi import FastAPI

from leasework import App, Context
from leasework.web import probes

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
app = App()  # the database is in LEASEWORK_DSN


@app.task(max_attempts=5, timeout=60)
async def send_welcome(ctx: Context, user_id: int) -> None:
    ctx.log.info("welcome, %s", user_id)


@app.periodic("*/5 * * * *")
@app.task
async def refresh(ctx: Context) -> None:
    ctx.log.info("refreshed for %s", ctx.scheduled_for)


web = FastAPI(lifespan=app.lifespan(execute=False))  # the workers run the jobs
web.mount("/leasework-ops", probes(app))  # only your own machines may reach it


@web.post("/users/{user_id}")
async def register(user_id: int) -> str:
    return str((await send_welcome.enqueue(user_id)).id)
