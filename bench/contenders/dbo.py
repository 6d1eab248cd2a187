"""DBOS: workflows of a queue, their steps by ``DBOS.run_step_async``."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from dbos import DBOS, DBOSClient

from bench.flows import Flows
from bench.ledger import Ledger


def prepare(dsn: str) -> None:
    _launch(dsn, "prepare")
    DBOS.destroy()


def _launch(dsn: str, executor: str) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": dsn,
            "executor_id": executor,
            "application_version": "1",
            "log_level": "ERROR",
        }
    )
    DBOS.launch()


def load(dsn: str, jobs: int, what: dict[str, Any]) -> None:
    client = DBOSClient(system_database_url=dsn)
    for n in range(jobs):
        client.enqueue({"workflow_name": "flow", "queue_name": "default"}, n, what)
    client.destroy()


def work(dsn: str, folder: str, entries: int, slots: int = 0, node: str = "one") -> None:
    """``node``: its executor id."""
    flows = Flows(folder, entries)

    async def step(name: str, key: object, function: Any, *args: Any) -> Any:
        return await DBOS.run_step_async({"name": name}, function, *args)

    @DBOS.workflow(name="flow")
    async def flow(n: int, what: dict[str, Any]) -> None:
        await flows.run(step, n, what)

    _launch(dsn, node)
    DBOS.register_queue("default", worker_concurrency=slots or None)
    threading.Event().wait()


def load_limited(dsn: str, jobs: int, keys: int) -> None:
    client = DBOSClient(system_database_url=dsn)
    for n in range(jobs):
        options = {"workflow_name": "limited", "queue_name": "limited", "workflow_id": str(n)}
        client.enqueue({**options, "queue_partition_key": str(n % keys)}, n)
    client.destroy()


def work_limited(
    dsn: str, folder: str, entries: int, seconds: float, keys: int, slots: int, node: str
) -> None:
    """``node``: its executor id. One that starts again continues its workflows."""
    ran = Ledger.of_this_process(folder, entries).recorder(timed=True)

    @DBOS.workflow(name="limited")
    async def limited(n: int) -> None:
        ran(2 * n)
        await asyncio.sleep(seconds)
        ran(2 * n + 1)

    _launch(dsn, node)
    DBOS.register_queue("limited", partition_concurrency=2, worker_concurrency=slots)
    threading.Event().wait()
