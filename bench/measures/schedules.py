"""Many schedules: what a leader that has nothing to fire costs, and many ticks due at once."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import click

from bench import moment
from leasework import App


async def _samples(dsn: str, at: datetime, later: datetime) -> None:
    """One schedule of each kind by the public way; the others are copies of their rows."""
    app = App(dsn, name="bench", release="bench")
    for name, anchor in (("due", at), ("later", later)):
        task = app.task(name=f"{name}-noop")(_noop)
        options = {"name": name, "arguments": {"n": 0, "text": ""}}
        app.every(seconds=86400, anchor=anchor, **options)(task)
    async with app.node(execute=False) as _:
        for _ in range(600):
            if len(await (await app.inspect()).schedules()) == 2:
                break
            await asyncio.sleep(0.05)
    await app.close()


async def _noop(n: int, text: str) -> None:
    """Stands for the worker's task of the same arguments."""


@click.command("schedules")
@moment.options
def command(count: int, due: int, spread: float, **options: Any) -> None:
    """Many schedules, many of them due at one moment; how late their jobs are enqueued."""
    said = f"{count:,} daily schedules, {due:,} of them due {moment.when(spread)}, each once"
    moment.measured(
        "schedule", "Schedules, leasework", said, _samples, (count, due), spread=spread, **options
    )
