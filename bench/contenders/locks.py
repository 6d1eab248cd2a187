"""Contenders for one lock: leasework's lease, its advisory locks, and plain advisory locks on
connections that stay open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import asyncpg

from leasework import App

Held = tuple[int, int, int]
"""CLOCK_MONOTONIC in ns: asked, got, let go."""

KEY = 4711
PATIENCE_SECONDS = 60.0


async def prepare(dsn: str) -> None:
    app = App(dsn, name="bench")
    await app.apply_schema()
    await app.close()


async def contend(
    dsn: str, kind: str, contenders: int, seconds: float, hold_ms: float
) -> list[Held]:
    """Each contender asks again and again, for ``seconds``; all that it held."""
    held: list[Held] = []
    end = time.monotonic() + seconds

    async def one(take: Callable[[], Any]) -> None:
        while time.monotonic() < end:
            asked = time.monotonic_ns()
            try:
                async with take():
                    got = time.monotonic_ns()
                    await asyncio.sleep(hold_ms / 1000)
                    held.append((asked, got, time.monotonic_ns()))
            except TimeoutError:
                return

    async with AsyncExitStack() as stack:
        takes = await _TAKES[kind](stack, dsn, contenders)
        await asyncio.gather(*(one(take) for take in takes))
    return held


async def _lease(stack: AsyncExitStack, dsn: str, contenders: int) -> list[Any]:
    app = App(dsn, name="bench")
    stack.push_async_callback(app.close)
    await stack.enter_async_context(app.node(execute=False))
    return [lambda: app.lock("bench")] * contenders


async def _advisory(stack: AsyncExitStack, dsn: str, contenders: int, scope: str) -> list[Any]:
    app = App(dsn, name="bench")
    stack.push_async_callback(app.close)
    return [lambda: app.advisory_lock("bench", scope=scope, timeout=PATIENCE_SECONDS)] * contenders


async def _session(stack: AsyncExitStack, dsn: str, contenders: int) -> list[Any]:
    return await _advisory(stack, dsn, contenders, "session")


async def _transaction(stack: AsyncExitStack, dsn: str, contenders: int) -> list[Any]:
    return await _advisory(stack, dsn, contenders, "transaction")


class _Plain:
    """pg_advisory_lock and unlock on a connection that stays."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def __aenter__(self) -> None:
        await self._connection.execute("select pg_advisory_lock($1)", KEY)

    async def __aexit__(self, *_: object) -> None:
        await self._connection.execute("select pg_advisory_unlock($1)", KEY)


async def _plain(stack: AsyncExitStack, dsn: str, contenders: int) -> list[Any]:
    takes = []
    for _ in range(contenders):
        connection = await asyncpg.connect(dsn)
        stack.push_async_callback(connection.close)
        takes.append(lambda c=connection: _Plain(c))
    return takes


_TAKES: dict[str, Callable[[AsyncExitStack, str, int], Awaitable[list[Any]]]] = {
    "lease": _lease,
    "session": _session,
    "transaction": _transaction,
    "plain": _plain,
}
