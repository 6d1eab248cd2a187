"""``leasework events --follow``."""

from __future__ import annotations

import asyncio

import click

from leasework import errors
from leasework.app import App
from leasework.cli.output import show_json, text
from leasework.cli.tables import fields
from leasework.store.rows import EventView
from leasework.tuning import Tuning


async def follow_events(app: App, kind: str | None, limit: int, as_json: bool) -> None:
    """Print events as they arrive, until interrupted. Waits while the database is unavailable."""
    feed = (await app.inspect()).follow(kind)
    away = False
    first = True
    while True:
        try:
            rows, missed = await feed.fresh(limit)
        except errors.Unavailable as error:
            if first:
                raise
            if not away:
                click.echo(f"leasework: {' '.join(str(error).split())} Retrying.", err=True)
            away = True
            await asyncio.sleep(Tuning.follow_away_seconds)
            continue
        first = away = False
        if missed:
            click.echo("leasework: some events were skipped", err=True)
        for row in rows:
            if as_json:
                show_json(row._asdict(), line=True)
            else:
                click.echo(_line(row))
        await asyncio.sleep(Tuning.follow_seconds)


def _line(row: EventView) -> str:
    words = [row.at, row.level, row.kind, f"worker={row.worker_id}", fields(row._asdict())]
    return " ".join(text(word) for word in words if word != "")
