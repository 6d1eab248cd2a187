"""leasework's steps; and what waits: suspended jobs, signals and batches."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from bench.contenders.lease import prepare
from bench.flows import Flows
from bench.ledger import Ledger
from bench.side import Sent, spaced
from leasework import App, Context
from leasework.cli.work.worker import run_worker

__all__ = ["load", "many", "prepare", "signals", "wait", "work"]

CALLBACK = -1
"""The number of a batch's callback in the ledger."""
_work: dict[str, Any] = {}


def _app(dsn: str, flows: Flows | None = None, ran: Any = None) -> tuple[App, dict[str, Any]]:
    app = App(dsn, name="bench", release="bench")

    async def flow(ctx: Context, n: int, what: dict[str, Any]) -> None:
        async def step(name: str, key: object, function: Any, *args: Any) -> Any:
            return await ctx.step(name, function, *args, key=key)

        assert flows
        await flows.run(step, n, what)

    async def noop(n: int) -> None:
        ran(n)

    async def waits(ctx: Context, n: int) -> None:
        await ctx.event("go")
        ran(n)

    async def report(batch: dict[str, Any]) -> None:
        ran(CALLBACK)

    handlers: list[Any] = [flow, noop, waits, report]
    return app, {each.__name__: app.task(name=each.__name__)(each) for each in handlers}


def made() -> App:
    """The App of this process's worker, as ``leasework worker`` loads it."""
    return _app(**_work)[0]


async def load(dsn: str, jobs: int, what: dict[str, Any]) -> None:
    app, tasks = _app(dsn)
    for first in range(0, jobs, 10_000):
        last = min(first + 10_000, jobs)
        await app.enqueue_many(tasks["flow"].job(n=n, what=what) for n in range(first, last))
    await app.close()


async def wait(dsn: str, jobs: int) -> list[str]:
    """Jobs that wait for a signal; their ids."""
    app, tasks = _app(dsn)
    made = await app.enqueue_many(tasks["waits"].job(n=n) for n in range(jobs))
    await app.close()
    return [str(job.id) for job in made]


async def signals(dsn: str, ids: list[str], gap: float) -> list[Sent]:
    """In turn a signal to each of these jobs, and a job ``n + len(ids)`` of nothing."""
    app, tasks = _app(dsn)
    await app.jobs(limit=1)

    async def send(n: int) -> None:
        number, plain = divmod(n, 2)
        if plain:
            await tasks["noop"].enqueue(n=number + len(ids))
        else:
            await app.signal(UUID(ids[number]), "go")

    sent = await spaced(send, 2 * len(ids), 0, gap)
    await app.close()
    return [(n // 2 + n % 2 * len(ids), before, after) for n, before, after in sent]


async def many(dsn: str, jobs: int, batch: bool) -> dict[str, float]:
    """Jobs of nothing, in one call: of a batch with a callback, or by ``enqueue_many``."""
    app, tasks = _app(dsn)
    await app.jobs(limit=1)
    start = time.monotonic()
    made = (tasks["noop"].job(n=n) for n in range(jobs))
    if batch:
        await app.batch(made, on_done=tasks["report"])
    else:
        await app.enqueue_many(made)
    seconds = time.monotonic() - start
    await app.close()
    return {"seconds": seconds}


def work(
    dsn: str, folder: str, entries: int, slots: int = 0, flow: bool = True, node: str = ""
) -> int:
    """``flow``: for the jobs of ``load``. Without it, for the others. ``node``: see DBOS."""
    if flow:
        _work.update(dsn=dsn, flows=Flows(folder, entries))
    else:
        _work.update(dsn=dsn, ran=Ledger.of_this_process(folder, entries).recorder(timed=True))
    return run_worker(f"{__name__}:made", {}, {"default": slots} if slots else None, execute=True)
