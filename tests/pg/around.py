"""An application with a lifespan and middleware; child processes import it as well."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from leasework import App, CallNext, Context, Snooze
from leasework.jobs.context import SyncContext

journal = Path(os.environ.get("LEASEWORK_TEST_AROUND", "/dev/null"))
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
later: ContextVar[str] = ContextVar("later", default="nobody")
left: list[asyncio.Task[Any]] = []
gave_up = threading.Event()


def note(line: str) -> None:
    with journal.open("a") as lines:
        lines.write(f"{line}\n")


@asynccontextmanager
async def clients(app: App) -> AsyncIterator[dict[str, int]]:
    note("enter")
    yield {"pid": os.getpid()}
    note("leave")


app = App("postgresql://nobody@127.0.0.1:1/nothing", lifespan=clients)


@app.middleware
async def outer(ctx: Context, call_next: CallNext) -> Any:
    note(f"outer of {ctx.task}, attempt {ctx.attempt} of {ctx.max_attempts}")
    tenant.set("acme")
    try:
        return await call_next()
    except LookupError as error:
        note(f"outer saw {error!r}")
        raise ValueError("told by the middleware") from error
    finally:
        note("outer ends")


@app.middleware
async def inner(ctx: Context, call_next: CallNext) -> Any:
    if ctx.task == "refused":
        return Snooze(3600)
    if ctx.task == "slow_thread":
        try:
            async with asyncio.timeout(0.1):
                return await call_next()
        finally:
            gave_up.set()
    result = await call_next()
    note(f"inner saw {result}")
    return result


@app.task(name="enqueues_in_process", executor="process")
def enqueues_in_process() -> str:
    return str(app.sync.enqueue(in_loop.job()).id)


def told(ctx: Context) -> list[Any]:
    return [tenant.get(), ctx.state and ctx.state["pid"] == os.getpid()]


@app.task(name="in_loop")
async def in_loop(ctx: Context) -> list[Any]:
    return told(ctx)


@app.task(name="in_thread")
def in_thread(ctx: SyncContext) -> list[Any]:
    return told(ctx)


@app.task(name="in_process", executor="process")
def in_process(ctx: SyncContext) -> list[Any]:
    return told(ctx)


@app.task(name="async_in_process", executor="process")
async def async_in_process(ctx: Context) -> list[Any]:
    await ctx.progress(0.5)
    return told(ctx)


@app.task(name="without_context")
async def without_context() -> str:
    return tenant.get()


@app.task(name="fails", max_attempts=1)
async def fails() -> None:
    raise LookupError("no such user")


@app.task(name="fails_in_thread", max_attempts=1)
def fails_in_thread() -> None:
    raise LookupError("no such user")


@app.task(name="fails_in_process", max_attempts=1, executor="process")
def fails_in_process() -> None:
    raise LookupError("no such user")


@app.task(name="refused")
async def refused() -> None:
    note("refused ran")


@app.task(name="tells_tenant", executor="process")
async def tells_tenant(sets: bool) -> str:
    before = later.get()
    if sets:
        later.set("acme")
        left.append(asyncio.create_task(asyncio.Event().wait()))
    return f"{before} {[task.cancelled() for task in left]}"


@app.task(name="runs_a_loop", executor="process")
def runs_a_loop() -> int:
    async def inside() -> int:
        return 7

    return asyncio.run(inside())


@app.task(name="slow_thread", max_attempts=1)
def slow_thread() -> str:
    gave_up.wait(30)
    time.sleep(0.1)
    note("thread ends")
    return "done"


@app.task(name="versioned", executor="process", version=2)
def versioned(new: int) -> int:
    return new


@versioned.upcast(1)
def renamed(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"new": arguments["old"] + 1}
