"""absurd: an asyncio worker with its defaults, and as many tasks at once as slots."""

from __future__ import annotations

import asyncio
from typing import Any

from absurd_sdk import AsyncAbsurd

from bench.flows import Flows


def prepare(dsn: str) -> None:
    """The harness applies its schema."""


async def load(dsn: str, jobs: int, what: dict[str, Any]) -> None:
    app = AsyncAbsurd(dsn)
    await app.create_queue()
    for n in range(jobs):
        await app.spawn("flow", {"n": n, "what": what}, queue="default")
    await app.close()


def work(
    dsn: str, folder: str, entries: int, slots: int = 1, node: str = "", lease: int = 120
) -> None:
    """``lease``: seconds of its claim timeout."""
    flows = Flows(folder, entries)

    async def run() -> None:
        app = AsyncAbsurd(dsn)

        @app.register_task("flow")
        async def flow(params: dict[str, Any], ctx: Any) -> None:
            async def step(name: str, key: object, function: Any, *args: Any) -> Any:
                return await ctx.step(name, lambda: function(*args))

            await flows.run(step, params["n"], params["what"])

        await app.start_worker(concurrency=slots, claim_timeout=lease)

    asyncio.run(run())
