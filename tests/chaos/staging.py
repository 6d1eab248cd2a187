"""Somebody's application, to which a campaign is done."""

from __future__ import annotations

import asyncio

from leasework import App, Context

app = App("postgresql:///unused", name="shop", recover_within=9)


@app.every(seconds=1, name="beat", missed="all")
@app.task(name="beat", max_attempts=50)
async def beat(ctx: Context) -> None:
    await asyncio.sleep(0.1)
