"""The queries of ``leasework bench``, which works in a schema of its own."""

from __future__ import annotations

from typing import NamedTuple

from leasework.config import Settings
from leasework.errors import ConfigError
from leasework.pg.connection.pool import Pool
from leasework.pg.connection.session import Session
from leasework.pg.schema import migrate

SCHEMA = "leasework_bench"
_PATIENCE_SECONDS = 60.0


class Counters(NamedTuple):
    """Counters of the whole server; only differences are meaningful. A backend reports its own up
    to a second late."""

    wal_bytes: float
    transactions: float
    buffers: float
    backends: frozenset[int]
    """Pids, on the server's machine, of leasework's other connections."""


class Span(NamedTuple):
    """The jobs that finished at their first attempt."""

    runs: int
    jobs: int
    seconds: float
    """From the first start to the last end."""


class BenchStore:
    """Reads the results of a measurement. Belongs to one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._pool = Pool(settings, "bench", 1)

    async def left(self) -> bool:
        """Is any job unfinished?"""
        return bool(
            (await self._pool.fetch("leasework_lab:bench/left", {}, _PATIENCE_SECONDS))[0][0]
        )

    async def span(self) -> Span:
        return Span(*(await self._pool.fetch("leasework_lab:bench/span", {}, _PATIENCE_SECONDS))[0])

    async def waits(self) -> list[float]:
        """Seconds from each enqueue to the handler's start, for the jobs that reported them."""
        rows = await self._pool.fetch("leasework_lab:bench/waits", {}, _PATIENCE_SECONDS)
        return [row[0] for row in rows]

    async def counters(self) -> Counters:
        wal, transactions, buffers, pids = (
            await self._pool.fetch("leasework_lab:bench/counters", {})
        )[0]
        return Counters(wal, transactions, buffers, frozenset(pids))

    async def server(self) -> dict[str, str]:
        """The server's version and relevant settings."""
        return dict(await self._pool.fetch("leasework_lab:bench/server", {}))

    async def close(self) -> None:
        await self._pool.close()


async def make_anew(settings: Settings) -> None:
    """Create the schema afresh in place of an earlier one. Raises ConfigError for any other schema,
    or if another measurement's workers are alive."""
    await drop(settings)
    await migrate.apply(settings)


async def drop(settings: Settings) -> None:
    """Remove the schema. Raises ConfigError like :func:`make_anew`."""
    if settings.schema != SCHEMA:
        raise ConfigError(f"the benchmark only drops the schema {SCHEMA}", got=settings.schema)
    session = await Session.open(settings, "bench")
    try:
        if session.facts.schema_number is not None:
            await _refuse_if_alive(session, settings)
        async with session.guarded(_PATIENCE_SECONDS):
            await session.connection.execute(f"drop schema if exists {SCHEMA} cascade")
    finally:
        await session.close()


async def _refuse_if_alive(session: Session, settings: Settings) -> None:
    alive = await session.fetch("leasework_lab:bench/alive", {}, settings.call_timeout)
    if alive:
        raise ConfigError(
            "another benchmark is using this database",
            got=", ".join(row[0] for row in alive),
            do=f"Stop it first. If it was killed, wait {settings.timings.lease:g} seconds",
        )
