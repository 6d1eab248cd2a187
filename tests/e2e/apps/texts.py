"""An application whose arguments, results, failures and names are not ASCII."""

from __future__ import annotations

import asyncio
import os

from leasework import App, Context
from leasework.config import Polling

TEXT = os.environ.get("TEXT", "")

app = App(polling=Polling(listen_check=1.0))


@app.task(name="echo")
async def echo(text: str) -> dict[str, str]:
    return {text: text}


@app.task(name="say")
async def say(codes: list[int]) -> str:
    return "".join(map(chr, codes))


@app.task(name="fail")
async def fail(codes: list[int]) -> None:
    raise ValueError("".join(map(chr, codes)))


@app.task(name="locked")
async def locked(ctx: Context, name: str) -> str:
    async with app.lock(name), app.advisory_lock(name):
        await ctx.progress(0.5, name)
    return name


@app.task(name="hold")
async def hold() -> None:
    await asyncio.Event().wait()


if TEXT:

    @app.every(seconds=1, name=f"each {TEXT}", arguments={"text": TEXT})
    @app.task(name="tick")
    async def tick(text: str) -> str:
        return text
