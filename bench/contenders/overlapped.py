"""The raw loop as an engineer makes it fast in an afternoon: two loops at once, so that one claims
while the other runs its jobs; uvloop; and an index on the id alone."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop

from bench.contenders import raw
from bench.contenders.raw import each, load, produce, stream

__all__ = ["each", "load", "prepare", "produce", "stream", "work"]

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


async def prepare(dsn: str) -> None:
    await raw.prepare(dsn, index="id")


async def work(**options: Any) -> None:
    await raw.work(**options, order="id", loops=2)
