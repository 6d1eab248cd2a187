"""Many deadlines: what a leader costs while none of them passes, and many that pass at once."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from bench import moment
from leasework import App


async def _samples(dsn: str, at: datetime, later: datetime) -> None:
    """One of each kind by the public way; the others are copies of their rows."""
    app = App(dsn, name="bench", release="bench")
    told = app.task(name="told")(_told)
    await app.deadline("due", due=at, on_breach=told)
    await app.deadline("later", due=later, on_breach=told)
    await app.close()


async def _told(breach: dict[str, Any]) -> None:
    """Stands for the worker's task of this name."""


@click.command("deadlines")
@moment.options
def command(count: int, due: int, spread: float, **options: Any) -> None:
    """Many deadlines, many of them passing at one moment; how late their breach is seen."""
    said = f"{count:,} armed, {due:,} of them pass {moment.when(spread)}, each callback once"
    moment.measured(
        "deadline", "Deadlines, leasework", said, _samples, (count, due), spread=spread, **options
    )
