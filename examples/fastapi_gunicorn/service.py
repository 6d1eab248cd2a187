"""The service with leasework: every worker takes part, and each due moment runs once."""

import os

from analysis import analyse
from fastapi import FastAPI

from leasework import App, SyncContext

app = App(os.environ.get("LEASEWORK_DSN", "embedded"), name="profiles")

every_seconds = os.environ.get("ANALYSIS_EVERY_SECONDS")
daily = (
    app.every(seconds=float(every_seconds), missed="all")  # to see results within a minute
    if every_seconds
    else app.periodic("0 15 * * *", timezone="Asia/Seoul")
)


@daily
@app.task(queue="analysis", timeout=600)
def profile_analysis(ctx: SyncContext) -> None:
    analyse(due=ctx.scheduled_for)


web = FastAPI(lifespan=app.lifespan)


@web.get("/")
async def latest() -> list[dict[str, object]]:
    jobs = await app.jobs(task=profile_analysis.name, limit=5)
    return [{"due": job.scheduled_for, "state": job.state, "by": job.worker_id} for job in jobs]
