"""``leasework worker MODULE:APP --drain``: the running workers finish their jobs and exit."""

from __future__ import annotations

import asyncio

import click

from leasework.app import App
from leasework.cli.output import counted
from leasework.tuning import Tuning


async def drain_all(app: App) -> int:
    """Wait until the workers have stopped. Returns the exit status: 1 if some are still running
    when the time is up."""
    settings = app.settings
    asked = dict(await (await app.store()).drain(settings.name))
    reports = await app.reports()
    click.echo(f"Asked {counted(len(asked), 'worker')} of {settings.name} to drain.")
    # time for a heartbeat to deliver the request, for the jobs, and for a dead worker's lease
    left = settings.grace + 2 * settings.recover_within
    while asked and left > 0:
        await asyncio.sleep(Tuning.drain_look_seconds)
        left -= Tuning.drain_look_seconds
        here = {node.id for node in await reports.nodes(10_000)}
        for node in [node for node in asked if node not in here]:
            click.echo(f"{asked.pop(node)} has stopped.")
    for worker_id in asked.values():
        click.echo(f"leasework: {worker_id} is still running", err=True)
    return 1 if asked else 0
