"""The demo's own table: each run of a handler leaves a row, and the scorecard counts the rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from leasework.config import Settings
from leasework.errors import ConfigError
from leasework.pg.connection.pool import Pool
from leasework.pg.connection.session import Session
from leasework.pg.schema import migrate
from leasework.pg.sql import statement

SCHEMA = "leasework_demo"
SLOW = "slow"
"""The task whose jobs take seconds."""


class Run(NamedTuple):
    """One run of a handler, by the database's clock; ``finished_at`` None: it did not end."""

    id: int
    job: UUID
    task: str
    tick_at: datetime | None
    worker: str
    attempt: int
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True)
class Look:
    """The demo at one moment."""

    jobs_done: int
    ticks_done: int
    open_jobs: int
    """Unfinished jobs, including those of ticks."""
    bad_jobs: int
    """Jobs that finished without being completed."""
    running: dict[str, tuple[int, int]]
    """Worker → runs that have not ended, and how many of them take seconds."""
    ticks: list[tuple[datetime, str]]
    """The latest ticks, newest first: the moment, and the worker that ran it."""


class DemoStore:
    """Reads and writes the demo's table. Belongs to one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._pool = Pool(settings, "demo", 2)

    @asynccontextmanager
    async def run(
        self, job: UUID, task: str, tick_at: datetime | None, worker: str, attempt: int
    ) -> AsyncIterator[None]:
        """Record the run that is the block's body: its start before, its end after."""
        params = {
            "job": job,
            "task": task,
            "tick_at": tick_at,
            "worker": worker,
            "attempt": attempt,
            "now": None,
        }
        run = (await self._pool.fetch("leasework_lab:demo/started", params))[0][0]
        yield
        await self._pool.fetch("leasework_lab:demo/finished", {"run": run, "now": None})

    async def runs(self, jobs: Collection[UUID] | None = None) -> list[Run]:
        """All runs, or those of some jobs, oldest first."""
        params = {"jobs": None if jobs is None else list(jobs)}
        return [
            Run(*row) for row in await self._pool.fetch("leasework_lab:demo/runs", params, 30.0)
        ]

    async def look(self, ticks: int) -> Look:
        row = (await self._pool.fetch("leasework_lab:demo/look", {"slow": SLOW, "limit": ticks}))[0]
        done, ticked, open_jobs, bad_jobs, running, last = row
        return Look(
            done,
            ticked,
            open_jobs,
            bad_jobs,
            {worker: (many, slow) for worker, many, slow in running},
            [(datetime.fromisoformat(at), worker) for at, worker in last],
        )

    async def held(self, node: UUID | None) -> frozenset[UUID]:
        """The jobs that this node holds in the database; None: any node."""
        return frozenset(
            row[0] for row in await self._pool.fetch("leasework_lab:demo/held", {"node": node})
        )

    async def decided(self, app: str, schedule: str) -> tuple[datetime | None, datetime | None]:
        """The first and the last moment that the ledger decided."""
        rows = await self._pool.fetch(
            "leasework_lab:demo/decided", {"app": app, "schedule": schedule}
        )
        return rows[0][0], rows[0][1]

    async def close(self) -> None:
        await self._pool.close()


async def make_anew(settings: Settings) -> None:
    """Replace the schema of an earlier demo by a fresh one with the demo's table.

    Raises ConfigError for any other schema, or if another demo's workers are alive.
    """
    if settings.schema != SCHEMA:
        raise ConfigError(f"the demo only drops the schema {SCHEMA}", got=settings.schema)
    session = await Session.open(settings, "demo")
    try:
        if session.facts.schema_number is not None:
            await _refuse_if_alive(session, settings)
        async with session.guarded(settings.call_timeout):
            await session.connection.execute(f"drop schema if exists {SCHEMA} cascade")
        await migrate.apply(settings)
        async with session.guarded(settings.call_timeout):
            await session.connection.execute(statement("leasework_lab:demo/table", SCHEMA).encode())
    finally:
        await session.close()


async def _refuse_if_alive(session: Session, settings: Settings) -> None:
    alive = await session.fetch("leasework_lab:demo/alive", {}, settings.call_timeout)
    if alive:
        raise ConfigError(
            "another demo is using this database",
            got=", ".join(row[0] for row in alive),
            do=f"Stop it first. If it was killed, wait {settings.timings.lease:g} seconds",
        )
