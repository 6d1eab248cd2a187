"""A content engine that publishes posts through a rate-limited external API and runs daily and
weekly tasks. A blue and a green release may run at once, each with any number of processes. Every
tick and every post is handled once.

    LEASEWORK_RELEASE=blue leasework worker engine:app --processes 2
"""

import os
from collections.abc import Callable

import httpx
import posts

from leasework import App, Context, Rate, Task

POSTS_PER_SWEEP = 3
MODELS = ("writer", "critic")
API = os.environ.get("ENGINE_API", "http://127.0.0.1:8099")
HOUR_SECONDS = float(os.environ.get("ENGINE_HOUR_SECONDS", 3600))

app = App(name="content-engine")
posts_api = app.limit("posts-api", rate=Rate(2, per=1.0, burst=1))
"""What the API accepts, among all processes of both releases."""


def schedule(cron: str, hours: float) -> Callable[..., Task]:
    """A cron schedule in Seoul's time, or an interval if ``ENGINE_HOUR_SECONDS`` is set."""
    if HOUR_SECONDS == 3600:
        return app.periodic(cron, timezone="Asia/Seoul")
    return app.every(seconds=max(1.0, hours * HOUR_SECONDS))


# -- publishing ----------------------------------------------------------------------------------
@schedule("0 */4 * * *", hours=4)
@app.task(queue="content")
async def sweep(ctx: Context) -> None:
    """Choose posts and enqueue their publication, in one transaction with the end of this job. A
    sweep that is killed has chosen nothing, and no post is chosen twice."""
    async with await posts.connect() as connection:
        chosen = await posts.choose(connection, ctx.scheduled_for, POSTS_PER_SWEEP)
        await app.enqueue_many([publish.job(post=post) for post in chosen], on=connection)
        await ctx.complete(on=connection, result={"posts": chosen})


@app.task(queue="content", timeout=60, max_attempts=20, limits=[posts_api])
async def publish(ctx: Context, post: int) -> None:
    """Publish one post. If this process is killed after the API has received the post and before
    that is recorded, the job runs again. The key tells the API that it is the same post."""
    headers = {"Idempotency-Key": f"post-{post}", "User-Agent": f"{app.release}/{os.getpid()}"}
    content = {"post": post, "body": await posts.body(post)}
    async with httpx.AsyncClient(base_url=API, timeout=30) as api:
        answer = await api.post("/posts", json=content, headers=headers)
    if answer.status_code == 429:
        raise posts_api.throttled(answer.headers.get("Retry-After", 60))
    answer.raise_for_status()
    async with await posts.connect() as connection:
        await posts.published(connection, post, answer.json()["id"])
        await ctx.complete(on=connection)


# -- other tasks of the service ------------------------------------------------------------------
@schedule("0 9 * * *", hours=24)
@app.task(queue="content")
async def daily_top3() -> list[dict]:
    return await posts.top(3, days=1)


@schedule("0 15 * * *", hours=24)
@app.task(queue="content", timeout=600)
async def profile_analysis() -> dict:
    summary = await posts.summary()
    return {"mean_likes": summary["mean_likes"]}


@schedule("0 * * * *", hours=1)
@app.task(queue="content", timeout=30, max_attempts=3)
async def model_health_check() -> dict[str, bool]:
    async with httpx.AsyncClient(base_url=API, timeout=10) as api:
        return {model: (await api.get(f"/models/{model}")).is_success for model in MODELS}


@schedule("0 10 * * 1", hours=7 * 24)
@app.task(queue="content")
async def weekly_report() -> dict:
    return {**await posts.summary(), "best": await posts.top(1, days=7)}
