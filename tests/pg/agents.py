"""Passes connections that monitoring agents have wrapped to everything that takes one.

A process of its own, because agents patch the drivers for the whole process. ddtrace wraps psycopg
and asyncpg, and Elastic APM wraps psycopg again: a proxy in a proxy.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import ddtrace
import psycopg
from elasticapm.instrumentation.control import instrument

from leasework import App, Context, SyncContext
from leasework.testing import open_rival_session
from tests.pg.drivers import ALL, SYNC, done

DSN = os.environ["LEASEWORK_DSN"]
NAMES = ("psycopg", "psycopg async", "asyncpg", "asyncpg pool", "sqlalchemy Session")
app = App(DSN)


@app.task(name="hello")
async def hello() -> None: ...


@app.task(name="pay")
async def pay(ctx: Context, name: str) -> None:
    async with ALL[name](DSN) as way:
        await ctx.assert_mine(way.connection)
        await ctx.complete(on=way.connection)
        await done(way.commit())


@app.task(name="pay in a thread")
def pay_in_thread(ctx: SyncContext) -> None:
    with psycopg.connect(DSN) as connection:
        ctx.assert_mine(connection)
        ctx.complete(on=connection)


async def use(name: str, lock: Any) -> None:
    async with ALL[name](DSN) as way:
        on = way.connection
        if name in ("psycopg", "psycopg async", "asyncpg"):
            assert hasattr(on, "__wrapped__"), f"no agent has wrapped {name}: {type(on)}"
        if name in SYNC:
            app.sync.enqueue(hello.job(), on=on)
            assert await asyncio.to_thread(app.sync.advisory_lock(name, on=on, timeout=9).acquire)
            with open_rival_session(DSN):
                pass
        else:
            await hello.using(on=on).enqueue()
            assert await app.advisory_lock(name, on=on, timeout=9).acquire()
            await lock.verify(on)
        await done(way.commit())


async def main() -> None:
    async with app.node(), app.lock("books") as lock:
        for name in NAMES:
            await use(name, lock)
            if name not in SYNC:
                await (await pay.enqueue(name)).wait(60)
        await (await pay_in_thread.enqueue()).wait(60)
        assert len(await app.jobs(task="hello")) == len(NAMES)
    await app.close()


ddtrace.patch(psycopg=True, asyncpg=True)
instrument()
asyncio.run(main())
