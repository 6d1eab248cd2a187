"""The project's tasks, which the Django app finds here."""

from django.conf import settings
from django.contrib.auth import get_user_model

from leasework import SyncContext
from leasework.integrations.django import app
from tests.e2e.apps.journal import note

if settings.HAS_TASKS:
    from tests.e2e.apps.shop import django_tasks  # noqa: F401


@app.task(name="add_user", max_attempts=3)
def add_user(ctx: SyncContext, name: str) -> int:
    return get_user_model().objects.create(username=name).pk


@app.task(name="count_users", queue="in_loop", max_attempts=3)
async def count_users() -> int:
    return await get_user_model().objects.acount()


@app.task(name="read_users", queue="in_loop", max_attempts=1)
async def read_users() -> list[str]:
    names = []
    async for user in get_user_model().objects.order_by("username").aiterator(chunk_size=1):
        names.append(user.username)
        job = await count_users.enqueue()
        await job.wait(60)
    return names


@app.task(name="count_in_process", executor="process")
def count_in_process() -> int:
    return get_user_model().objects.count()


@app.task(name="late")
def late(breach: dict) -> None: ...


@app.every(seconds=1, name="tick")
@app.task(name="tick", queue="ticks")
def tick(ctx: SyncContext) -> None:
    note("tick", f"{ctx.scheduled_for.timestamp():.0f}")
