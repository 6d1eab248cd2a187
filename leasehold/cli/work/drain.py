"""``leasehold worker MODULE:APP --drain``: the running workers finish what they have, and end."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import click

from leasehold.app import App
from leasehold.cli.output import counted
from leasehold.cli.work.load import load_app

_LOOK_SECONDS = 0.2


def run_drain(target: str, options: dict[str, Any]) -> int:
    """Wait until they are gone; the exit status: 1 if some are still there when the time for it
    is over."""
    app = load_app(target)
    if options:
        app.configure(**options)
    return asyncio.run(_drain(app))


async def _drain(app: App) -> int:
    settings = app.settings
    try:
        store = await app.store()
        asked = dict(await store.drain(settings.name))
        click.echo(f"Asked {counted(len(asked), 'worker')} of {settings.name} to drain.")
        # a heartbeat to hear of it, the grace for the jobs, and a dead one's lease
        left = settings.grace + 2 * settings.recover_within
        while asked and left > 0:
            await asyncio.sleep(_LOOK_SECONDS)
            left -= _LOOK_SECONDS
            here: set[UUID] = {node.id for node in await store.nodes(10_000)}
            for node in [node for node in asked if node not in here]:
                click.echo(f"{asked.pop(node)} has stopped.")
    finally:
        await app.close()
    for worker_id in asked.values():
        click.echo(f"leasehold: {worker_id} is still running", err=True)
    return 1 if asked else 0
