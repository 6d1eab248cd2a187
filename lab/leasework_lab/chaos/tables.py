"""The campaign's own tables, what its processes do with them, and the final read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, NoReturn, Self
from uuid import UUID

import psycopg

from leasework.config import Settings
from leasework.errors import ConfigError, Unavailable
from leasework.pg.connection.fast.link import Row
from leasework.pg.connection.session import Session
from leasework.pg.schema import migrate
from leasework.pg.sql import statement

SCHEMA = "leasework_chaos"
"""The campaign's schema in a user's database."""
_READ_SECONDS = 60.0


class FinalJob(NamedTuple):
    id: UUID
    task: str
    state: str
    ref: str | None
    attempt: int
    crashes: int
    schedule: str | None
    scheduled_for: datetime
    token: int | None
    node: UUID | None
    node_is_there: bool


class FinalTick(NamedTuple):
    schedule: str
    fire_at: datetime
    until: datetime
    state: str
    job: UUID | None
    app: str = ""


class LeaderRow(NamedTuple):
    node: UUID | None
    token: int
    seq: int
    pid: int | None
    host: str | None


class FinalStep(NamedTuple):
    job: UUID
    name: str
    kind: str
    open: bool
    result: Any
    token: int


class FinalBatch(NamedTuple):
    id: UUID
    parent: UUID | None
    total: int
    ended: bool
    jobs: int
    """How many jobs name it."""
    calls: int


@dataclass(frozen=True)
class Tables:
    """The final read: the database's content when everything has stopped."""

    jobs: list[FinalJob]
    ticks: list[FinalTick]
    terms: list[tuple[str, int, str]]
    effects: list[tuple[str, UUID, int]] = field(default_factory=list)
    duties: list[tuple[str, int]] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)
    deadlines: list[tuple[UUID, str, UUID | None]] = field(default_factory=list)
    """(job, verdict, the callback's job)"""
    steps: list[FinalStep] = field(default_factory=list)
    batches: list[FinalBatch] = field(default_factory=list)
    inbox: set[str] = field(default_factory=set)
    """Signals that nobody has taken."""


class ChaosSession:
    """One connection of the campaign, or of a handler in its processes."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self._schema = settings.schema

    @classmethod
    async def open(cls, settings: Settings, role: str, seconds: float = 3.0) -> Self:
        return cls(await Session.open(settings, role, seconds), settings)

    @property
    def connection(self) -> Any:
        return self._session.connection

    @property
    def usable(self) -> bool:
        return self._session.usable

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def transaction(self, seconds: float) -> AsyncIterator[None]:
        """A transaction; the socket is shut if it takes longer than ``seconds``."""
        try:
            async with self._session.guarded(seconds), self.connection.transaction():
                yield
        except psycopg.Rollback:  # the connection broke during the rollback
            raise Unavailable("a rollback was not answered", sent=True) from None

    def undo(self) -> NoReturn:
        """Leave the transaction's block and roll back, without any other effect."""
        raise psycopg.Rollback

    async def _do(self, name: str, /, **params: Any) -> list[Row]:
        """Run a statement in the open transaction."""
        cursor = await self.connection.execute(statement(name, self._schema).encode(), params)
        return await cursor.fetchall() if cursor.description else []

    async def _read(self, name: str, seconds: float, /, **params: Any) -> list[Row]:
        return await self._session.fetch(name, params, seconds)

    # -- what handlers and leaders do --------------------------------------------------------------
    async def effect(self, ref: str, job: UUID, token: int) -> None:
        await self._do("leasework_lab:chaos/effect", ref=ref, job=job, token=token)

    async def duty(self, duty: str, term: int) -> None:
        await self._do("leasework_lab:chaos/duty", duty=duty, term=term)

    async def fenced(self, name: str, term: int) -> bool:
        """Is it the newest term? Then nobody can acquire until this transaction ends."""
        return bool(await self._do("leasework_lab:chaos/fenced", name=name, term=term))

    async def be_patient(self) -> None:
        await self._do("leasework_lab:chaos/patience")

    async def duties_before(self, term: int) -> dict[int, int]:
        """The number of committed duties of each earlier term."""
        rows = await self._read("leasework_lab:chaos/before", 5.0, term=term)
        return {term: count for term, count in rows}

    # -- what the campaign does --------------------------------------------------------------------
    async def look(self, name: str) -> LeaderRow | None:
        rows = await self._read("leasework_lab:chaos/look", 1.0, name=name)
        return LeaderRow(*rows[0]) if rows else None

    async def open_jobs(self) -> tuple[int, int]:
        """(unfinished enqueued jobs, unfinished jobs of schedules)"""
        enqueued, ticks = (await self._read("leasework_lab:chaos/open_jobs", 5.0))[0]
        return enqueued, ticks

    async def break_half(self, which: int) -> int:
        """Terminate the backends with odd (1) or even (0) pids. Returns how many."""
        return int((await self._read("leasework_lab:chaos/break_half", 5.0, which=which))[0][0])

    async def backends(self) -> list[int]:
        return [pid for (pid,) in await self._read("leasework_lab:chaos/backends", 5.0)]

    async def last_event(self) -> int:
        return int((await self._read("leasework_lab:chaos/last_event", 5.0))[0][0])

    async def clock(self) -> datetime:
        """The database's time."""
        moment: datetime = (await self._read("leasework_lab:chaos/clock", 5.0, now=None))[0][0]
        return moment

    async def final(self, after_event: int, since: datetime | None) -> Tables:
        """Read everything; with ``since``, only from that moment on, in a database without the
        campaign's own effects and duties."""
        read, own_tables = _READ_SECONDS, since is None
        effects = await self._read("leasework_lab:chaos/final_effects", read) if own_tables else []
        duties = await self._read("leasework_lab:chaos/final_duties", read) if own_tables else []
        steps = await self._read("leasework_lab:chaos/final_steps", read) if own_tables else []
        batches = await self._read("leasework_lab:chaos/final_batches", read) if own_tables else []
        inbox = await self._read("leasework_lab:chaos/final_inbox", read) if own_tables else []
        return Tables(
            [
                FinalJob(*row)
                for row in await self._read("leasework_lab:chaos/final_jobs", read, since=since)
            ],
            [FinalTick(*row) for row in await self._read("leasework_lab:chaos/final_ticks", read)],
            [
                (name, token, w)
                for name, token, w in await self._read("leasework_lab:chaos/final_terms", read)
            ],
            [(ref, job, token) for ref, job, token in effects],
            [(duty, term) for duty, term in duties],
            dict(await self._read("leasework_lab:chaos/final_events", read, after=after_event)),
            [
                (job, s, told)
                for job, s, told in await self._read("leasework_lab:chaos/final_deadlines", read)
            ],
            [FinalStep(*row) for row in steps],
            [FinalBatch(*row) for row in batches],
            {signal for (signal,) in inbox},
        )


async def make_anew(settings: Settings) -> None:
    """Replace the schema of an earlier campaign by a fresh one with the campaign's tables. Raises
    ConfigError for any other schema."""
    if settings.schema != SCHEMA:
        raise ConfigError(f"the campaign only drops the schema {SCHEMA}", got=settings.schema)
    session = await Session.open(settings, "chaos")
    try:
        async with session.guarded(settings.call_timeout):
            await session.connection.execute(f"drop schema if exists {SCHEMA} cascade")
        await migrate.apply(settings)
        async with session.guarded(settings.call_timeout):
            for name in ("leasework_lab:chaos/effects", "leasework_lab:chaos/duties"):
                await session.connection.execute(statement(name, SCHEMA).encode())
    finally:
        await session.close()
