"""Heartbeats in a fleet: each reads all nodes, so its cost grows with their number."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import click
from psycopg.conninfo import conninfo_to_dict

from bench.command import common, run
from bench.cost import cpu_seconds
from bench.report import Result
from bench.server import Server
from leasework.config import Settings
from leasework.pg.schema import migrate
from leasework.store.nodes import NodeIdentity
from leasework.store.store import Store

COLUMNS = {
    "backend_us": "backend CPU µs, one right after the other",
    "rested_backend_us": "backend CPU µs, each after a pause",
    "client_us": "client CPU µs",
}
LEASE_SECONDS = 3600.0
TIMEOUT_SECONDS = 30.0
INFO: dict[str, Any] = {"running": 0, "leads": {}, "overdue": []}


async def heartbeats(
    server: Server, dsn: str, nodes: int, count: int, pause: float
) -> dict[str, float]:
    """One slice: ``nodes`` are registered, and the last of them sends heartbeats."""
    settings = Settings(dsn=dsn)
    await migrate.apply(settings)
    store = Store(settings, "guard", 1)
    tasks = tuple(f"task-{number}" for number in range(20))
    for number in range(nodes):
        me = NodeIdentity(uuid4(), "shop", "r1", "host", number, "0", True, tasks, {"default": 10})
        token = await store.register(me, LEASE_SECONDS, None)

    async def beat() -> None:
        await store.heartbeat(me.id, token, [], ["shop"], INFO, [], TIMEOUT_SECONDS, None)

    for _ in range(20):  # until the statement is prepared and planned
        await beat()
    [backend] = server.backends(str(conninfo_to_dict(dsn)["dbname"]))
    figures = {}
    for name, times, rest in (("", count, 0.0), ("rested_", count // 10, pause)):
        before, mine = cpu_seconds(backend), time.process_time()
        for _ in range(times):
            await beat()
            await asyncio.sleep(rest)
        figures[f"{name}backend_us"] = (cpu_seconds(backend) - before) / times * 1e6
        figures[f"{name}client_us"] = (time.process_time() - mine) / times * 1e6
    await store.close()
    return figures


@click.command("heartbeats")
@common()
@click.option("--nodes", "sizes", multiple=True, type=int, default=(10, 100, 1000))
@click.option("--count", default=1000, help="heartbeats without a pause; with one, a tenth of it")
@click.option("--pause", default=0.03, help="seconds")
def command(sizes: tuple[int, ...], count: int, pause: float, **options: Any) -> None:
    """One node's heartbeat, among many nodes."""
    with run(**options) as this:
        said = (
            f"{count:,} heartbeats without a pause, {count // 10:,} with one of {pause * 1e3:g} ms"
        )
        result = Result("Heartbeats, leasework", said, COLUMNS, f"{sizes[0]:,} nodes")
        this.results.append(result)
        for turn in range(this.rounds):
            for nodes in sizes if turn % 2 == 0 else sizes[::-1]:
                with this.server.database() as dsn:
                    figures = asyncio.run(heartbeats(this.server, dsn, nodes, count, pause))
                result.add(f"{nodes:,} nodes", figures)
                click.echo(f"round {turn + 1}, {nodes:,} nodes: {figures}", err=True)
