"""Runs a guard step by step: the test sets its clock, and the database is real."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg

from leasework.config import Settings, Timings, wait_seconds
from leasework.env import Clock, Env
from leasework.errors import Unavailable
from leasework.lease import messages
from leasework.lease.guard import Guard
from leasework.lease.host import Host
from leasework.store.nodes import NodeIdentity
from leasework.store.store import Store

TIMES = Timings.derive(9)
W = wait_seconds(TIMES.lease)


class HandClock(Clock):
    """A clock that moves only when the test moves it."""

    def __init__(self, at: float) -> None:
        self.at = at

    def boot_now(self) -> float:
        return self.at


class SlowStore(Store):
    """A store whose answers come ``delay`` seconds late, by the caller's clock."""

    clock: HandClock
    delay = 0.0
    register_delay = 0.0
    cut = False

    async def register(self, *given: Any) -> Any:
        token = await super().register(*given)
        self.clock.at += self.register_delay
        return token

    async def heartbeat(self, *given: Any) -> Any:
        if self.cut:
            raise Unavailable("the link is cut")
        answer = await super().heartbeat(*given)
        self.clock.at += self.delay
        return answer


class Process(Host):
    """A guard and its host, which records what the guard tells."""

    def __init__(self, settings: Settings, name: str, at: float) -> None:
        self.clock = HandClock(at)
        self.env = Env(clock=self.clock, rng=random.Random(1))
        self.store = SlowStore(settings, name)
        self.store.clock = self.clock
        self.told: list[object] = []
        """Of each message its type, or the note itself."""
        self.events: list[str] = []
        self.is_quiet = True
        self.lag = 0.0
        self.guard = Guard(lambda role: self.store, self.env, TIMES, self._emit, self)
        self.guard._store = self.store

    def _emit(self, kind: str, **fields: Any) -> None:
        self.events.append(kind)

    async def step(self, seconds: float = 0.0) -> float:
        """Advance the clock and run the guard. Return the seconds until its next run."""
        self.clock.at += seconds
        return await self.guard.step(poked=True)

    async def steps(self, count: int, seconds: float) -> None:
        for _ in range(count):
            await self.step(seconds)

    @property
    def leads(self) -> bool:
        return self.guard.term() is not None

    @property
    def id(self) -> UUID:
        return self.guard.membership.identity.id

    # -- the host --------------------------------------------------------------------------------
    def new_identity(self) -> NodeIdentity:
        return NodeIdentity(self.env.new_id(), "default", "r", "h", 1, "0", True, (), {})

    def quiet(self) -> bool:
        return self.is_quiet

    def loop_lag(self) -> float:
        return self.lag

    def send(self, message: messages.Message) -> None:
        note = isinstance(message, messages.Note)
        self.told.append(message if note else type(message))


class Database:
    def __init__(self, dsn: str, connection: psycopg.AsyncConnection[Any]) -> None:
        self.settings = Settings(dsn=dsn)
        self.connection = connection
        self.processes: list[Process] = []

    def process(self, at: float = 1000.0) -> Process:
        self.processes.append(Process(self.settings, f"p{len(self.processes)}", at))
        return self.processes[-1]

    async def leader(self) -> Process:
        """Make a new process that leads."""
        process = self.process()
        await process.steps(3, 0.4)
        assert process.leads
        return process

    async def sql(self, text: str, *params: Any) -> list[Any]:
        cursor = await self.connection.execute(text.encode(), params)
        return await cursor.fetchall() if cursor.description else []


@asynccontextmanager
async def a_database(direct_dsn: str) -> AsyncIterator[Database]:
    """Make a database with the schema, and close its processes' connections at the end."""
    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as connection:
        database = Database(direct_dsn, connection)
        yield database
        for process in database.processes:
            await process.store.close()
