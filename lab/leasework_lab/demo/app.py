"""The application that the demo runs in each of its processes: one schedule, two queues."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

from leasework.app import App, Task
from leasework.jobs.context import Context
from leasework.model.schedule import every
from leasework_lab.demo.tables import SCHEMA, SLOW, DemoStore

NAME = "demo"
SCHEDULE = "every-second"
TICK_SECONDS = 1.0
SPEC = every(seconds=TICK_SECONDS)
QUEUES = {"quick": 16, "slow": 32}
"""Concurrent jobs per process: enough that a dead process's jobs need not wait."""


class DemoApp:
    """The :class:`App` and its tasks. Each handler records the start and the end of its run."""

    def __init__(self, dsn: str | None = None) -> None:
        self.app = App(dsn, schema=SCHEMA, name=NAME)
        self.evidence = DemoStore(self.app.settings)
        app, recorded = self.app, self._recorded

        @app.every(seconds=TICK_SECONDS, name=SCHEDULE, missed="all")
        @app.task(name="tick", queue="quick")
        async def tick(ctx: Context) -> None:
            async with recorded(ctx):
                pass

        @app.task(name="quick", queue="quick")
        async def quick(ctx: Context, seconds: float) -> None:
            async with recorded(ctx):
                await asyncio.sleep(seconds)

        @app.task(name=SLOW, queue="slow")
        async def slow(ctx: Context, seconds: float) -> None:
            async with recorded(ctx):
                await asyncio.sleep(seconds)

        self.quick: Task[Any, Any] = quick
        self.slow: Task[Any, Any] = slow

    def _recorded(self, ctx: Context) -> AbstractAsyncContextManager[None]:
        moment = ctx.scheduled_for if ctx.schedule else None
        return self.evidence.run(ctx.job_id, ctx.claim.job.task, moment, ctx.worker_id, ctx.attempt)

    async def close(self) -> None:
        await self.evidence.close()
        await self.app.close()


def make_app() -> App:
    """The App for ``leasework worker``, on the database of LEASEWORK_DSN."""
    return DemoApp().app
