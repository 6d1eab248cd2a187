"""The application under fire, and a worker process of it.

The handlers write what they do and see into a ledger. Half of the workers have an older release.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import psycopg

from leasework import App, Backoff, Context, Discard, SyncContext
from leasework.config import Limits
from leasework.errors import JobFailed, LeaseworkError, WaitTimeout
from leasework.model.job import JobRequest
from tests.durable_fire.builds import apply_to_process
from tests.limits_fire.application import RECOVER_WITHIN, Ledger, _work
from tests.support.requests import job_request

SLOTS = ({"default": 12}, {"default": 4})
CONCURRENCY = 2
"""Of the limit "one", for each of its keys."""
SESSION = "leasework fire"
"""The application_name of the handlers' own sessions: they are cut off too."""
LASTING = {"max_attempts": 500}


def request(task: str, options: dict[str, Any] | None = None, **payload: Any) -> JobRequest[Any]:
    return job_request(task=task, payload=json.dumps(payload), **(options or LASTING))


class Handlers:
    def __init__(self, app: App, dsn: str, ledger: Ledger) -> None:
        self.app, self.dsn, self.ledger = app, dsn, ledger
        self.release = os.getpid() % 2
        self._sending: set[asyncio.Task[None]] = set()

    # -- their parts -----------------------------------------------------------------------------
    def saw(self, ctx: Context, step: str, value: Any) -> None:
        self.ledger.note("saw", ctx, step=step, value=value)

    async def think(self) -> str:
        if (draw := random.random()) < 0.03:
            raise ValueError("on purpose")
        await asyncio.sleep(random.choice((0.3, 1.4)) if draw > 0.94 else random.expovariate(300))
        return uuid4().hex

    async def plain(self, ctx: Context, name: str, **options: Any) -> None:
        self.saw(ctx, name, await ctx.step(name, self.think, **options))

    async def pay(self, ctx: Context, name: str) -> None:
        async with await psycopg.AsyncConnection.connect(
            self.dsn, application_name=SESSION
        ) as connection:
            value = await ctx.step(name, self._effect, connection, ctx.job_id, name, on=connection)
            await asyncio.sleep(random.choice((0.0, 0.0, 0.03)))
            if random.random() < 0.05:
                raise ValueError("before the commit")
        self.saw(ctx, name, value)

    @staticmethod
    async def _effect(connection: psycopg.AsyncConnection[Any], job: UUID, name: str) -> str:
        await connection.execute("insert into effect (job, name) values (%s, %s)", [job, name])
        return uuid4().hex

    async def event(self, ctx: Context, name: str, key: Any = None, **options: Any) -> None:
        how = random.random()
        if how < 0.2:
            await self._send(ctx, name, 0.0)
        elif how < 0.75:
            sending = asyncio.create_task(self._send(ctx, name, random.uniform(0, 0.04)))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        value = None
        with suppress(WaitTimeout):
            value = await ctx.event(name, key=key, **options)
        self.saw(ctx, name if key is None else f"{name}[{key}]", value)

    async def _send(self, ctx: Context, name: str, after: float) -> None:
        await asyncio.sleep(after)
        with suppress(psycopg.Error, LeaseworkError):
            async with await psycopg.AsyncConnection.connect(
                self.dsn, application_name=SESSION
            ) as connection:
                if signal := await send(self.app, connection, ctx.job_id, name):
                    self.ledger.note("sent", ctx, signal=signal)

    # -- tasks -----------------------------------------------------------------------------------
    async def flow(self, ctx: Context, who: str) -> str:
        self.ledger.note("start", ctx, who=who)
        await self.plain(ctx, "first", timeout=0.5)
        await self.plain(ctx, "new" if self.release else "old", retry=random.randint(0, 1))
        await self.pay(ctx, "pay")
        await ctx.sleep(random.uniform(0, 0.4))
        await self.event(ctx, "go")
        try:
            async with asyncio.TaskGroup() as group:
                for name in "xyz":
                    group.create_task(self.plain(ctx, name))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        if self.release:
            await self.pay(ctx, "pay again")
        await self.event(ctx, "late", timeout=random.uniform(0.02, 0.5))
        await self.event(ctx, "go", key=2)
        await self.pay(ctx, "pay at last")
        return uuid4().hex

    def threaded(self, ctx: SyncContext) -> None:
        self.ledger.note("start", ctx)
        self.saw(ctx, "first", ctx.step("first", uuid_of_a_while))
        with psycopg.connect(self.dsn, application_name=SESSION) as connection:

            def effect() -> str:
                connection.execute(
                    "insert into effect (job, name) values (%s, 'pay')", [ctx.job_id]
                )
                return uuid4().hex

            value = ctx.step("pay", effect, on=connection)
        self.saw(ctx, "pay", value)
        ctx.sleep(0.1)
        self.saw(ctx, "go", ctx.event("go"))

    async def parent(self, ctx: Context, depth: int, width: int, **_: Any) -> str:
        self.ledger.note("start", ctx)

        def child(label: str, place: int, task: str = "child", **more: Any) -> JobRequest[Any]:
            return request(task, of=str(ctx.job_id), label=label, place=place, **more)

        try:
            await self.plain(ctx, "plan")
            await asyncio.sleep(random.choice((0.0, 0.2)))
            self.saw(ctx, "spawn", str(await ctx.spawn(child("spawn", 0))))
            nested: dict[str, Any] = {}
            if depth:
                nested = {"task": "parent", "depth": depth - 1, "width": 2}
            found = await ctx.gather(
                [child("gather", n, **nested) for n in range(width)], return_exceptions=True
            )
            self.saw(ctx, "gather", [None if isinstance(x, JobFailed) else x for x in found])
            with suppress(JobFailed):
                found = await ctx.gather([child("more", n) for n in range(2)], name="more")
                self.saw(ctx, "more", found)
        except asyncio.CancelledError:  # it does not give up
            with suppress(LeaseworkError):
                await ctx.spawn(child("afterwards", 0), name="afterwards")
            raise
        return uuid4().hex

    async def child(self, ctx: Context, **_: Any) -> Any:
        self.ledger.note("start", ctx)
        await asyncio.sleep(random.expovariate(50))
        draw = random.random()
        if draw < 0.1:
            raise ValueError("on purpose")
        if draw < 0.2:
            return Discard("on purpose")
        if draw > 0.8:
            await ctx.sleep(0.05)
        return uuid4().hex

    async def called(self, ctx: Context, batch: dict[str, Any]) -> None:
        self.ledger.note("start", ctx, batch=batch["id"])
        await asyncio.sleep(0.01)


def uuid_of_a_while() -> str:
    time.sleep(random.expovariate(100))
    return uuid4().hex


async def send(
    app: App, connection: psycopg.AsyncConnection[Any], job: UUID | str, name: str
) -> str | None:
    """Send a signal in an open transaction, and keep it open for a while. Return its payload, or
    None if it was rolled back or is to nobody."""
    payload, sent = uuid4().hex, False
    async with connection.transaction():
        if random.random() < 0.5:
            known = await app.signal(job, name, payload, on=connection)
        else:
            rows = await connection.execute(
                "select leasework.send_signal(%s, %s, %s)", [job, name, json.dumps(payload)]
            )
            known = (await rows.fetchone() or [None])[0] is not None
        await asyncio.sleep(random.choice((0.0, 0.0, 0.01, 0.05, 0.2)))
        if random.random() < 0.1:
            raise psycopg.Rollback
        sent = known
    return payload if sent else None


def make_app(dsn: str, ledger: Ledger | None = None) -> App:
    app = App(
        dsn, name="fire", recover_within=RECOVER_WITHIN, limits=Limits(max_crashes=30_000),
        call_timeout=5.0,
    )  # fmt: skip
    one = app.limit("one", concurrency=CONCURRENCY, key="who")
    backoff = Backoff(base=0.1, factor=1.0, longest=0.2)
    if ledger is None:
        ledger = Ledger(os.devnull)
    handlers = Handlers(app, dsn, ledger)
    tasks: dict[str, Callable[..., Any]] = {
        "flow": handlers.flow, "limited": handlers.flow, "threaded": handlers.threaded,
        "parent": handlers.parent, "child": handlers.child, "member": handlers.child,
        "link": handlers.child, "done": handlers.called, "success": handlers.called,
        "failure": handlers.called,
    }  # fmt: skip
    for name, handler in tasks.items():
        limits = [one] if name == "limited" else []
        app.task(name=name, backoff=backoff, limits=limits)(handler)
    return app


def work(dsn: str, ledger: str, broken: str, log: str, slots: dict[str, int]) -> None:
    """Run a worker until SIGTERM. The process's main function."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    random.seed()
    apply_to_process(broken)
    asyncio.run(_work(make_app(dsn, Ledger(ledger)), slots))
