"""Many deadlines: what a leader costs while none of them passes, and many that pass at once."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import click

from bench import moment
from bench.command import common, run
from bench.parties import LEASEHOLD
from bench.report import Result
from bench.workers import Place
from leasehold import App


def filled(here: Place, count: int, due: int, at: datetime, later: datetime) -> None:
    """``count`` armed deadlines, ``due`` of them for one moment soon."""
    asyncio.run(_samples(here.dsn, at, later))
    here.queries.multiply_deadlines(here.watcher, due, count - due)
    here.watcher.execute("vacuum analyze leasehold.deadline")


async def _samples(dsn: str, at: datetime, later: datetime) -> None:
    """One of each kind by the public way; the others are copies of their rows."""
    app = App(dsn, name="bench", release="bench")
    told = app.task(_told, name="told")
    await app.deadline("due", due=at, on_breach=told)
    await app.deadline("later", due=later, on_breach=told)
    await app.close()


async def _told(breach: dict[str, Any]) -> None:
    """Stands for the worker's task of this name."""


@click.command("deadlines")
@common(rounds=1)
@moment.count
@moment.due
@moment.idle
@moment.lead
def command(count: int, due: int, idle: float, lead: float, **options: Any) -> None:
    """Many deadlines, many of them passing at one moment; how late their breach is seen."""
    with run(**options) as this:
        said = f"{count:,} armed, {due:,} of them pass at one moment, each callback once"
        result = Result("Deadlines, leasehold", said, moment.COLUMNS, LEASEHOLD.name)
        this.results.append(result)
        for _ in range(this.rounds):
            figures = moment.at_one_moment(
                this.server,
                due,
                idle,
                lead,
                lambda here, at, later: filled(here, count, due, at, later),
                lambda here: here.queries.lateness_of_breaches(here.watcher),
            )
            result.add(LEASEHOLD.name, figures)
