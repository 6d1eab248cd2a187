"""The campaign's own view of the database, on a connection without a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from leasework.config import Settings
from leasework.env import Env
from leasework.errors import LeaseworkError, Unavailable
from leasework_lab.chaos.history import Line
from leasework_lab.chaos.tables import ChaosSession, LeaderRow, Tables

T = TypeVar("T")

_POLL_SECONDS = 0.1
_FINAL_TRIES = 10


class Watcher:
    """Reads the leader's row many times a second; ``rows`` has a line for each change."""

    def __init__(self, settings: Settings, election: str, env: Env) -> None:
        self._settings = replace(settings, call_timeout=3.0)
        self._election = election
        self._env = env
        self._session: ChaosSession | None = None
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.row: LeaderRow | None = None
        self.rows: list[Line] = []

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop watching. Raises the error that ended the watching early, if any."""
        error: BaseException | None = None
        if self._task:
            self._task.cancel()
            [error] = await asyncio.gather(self._task, return_exceptions=True)
        await self._drop()
        if isinstance(error, Exception):
            raise error

    async def _run(self) -> None:
        while True:
            with suppress(LeaseworkError):
                row = await self._ask(lambda session: session.look(self._election))
                if row != self.row and row is not None:
                    now = self._env.boot_now()
                    self.rows.append({"kind": "row", "at": now, **row._asdict()})
                self.row = row
            await asyncio.sleep(_POLL_SECONDS)

    async def break_half(self, which: int) -> int:
        return await self._ask(lambda session: session.break_half(which))

    async def backends(self) -> list[int]:
        return await self._ask(lambda session: session.backends())

    async def open_jobs(self) -> tuple[int, int]:
        return await self._ask(lambda session: session.open_jobs())

    async def last_event(self) -> int:
        return await self._ask(lambda session: session.last_event())

    async def final(self, after_event: int, since: datetime | None) -> Tables | None:
        """``since``: for a user's database. None if it could not be read."""
        return await self._insist(lambda session: session.final(after_event, since))

    async def began(self) -> datetime:
        """The database's time at the start. Raises the database's error."""
        return await self._ask(lambda session: session.clock())

    async def clock(self) -> datetime | None:
        """The database's time. None if it does not answer."""
        return await self._insist(lambda session: session.clock())

    async def _insist(self, question: Callable[[ChaosSession], Awaitable[T]]) -> T | None:
        for _ in range(_FINAL_TRIES):
            with suppress(LeaseworkError):
                return await self._ask(question)
            await asyncio.sleep(_POLL_SECONDS)
        return None

    async def _ask(self, question: Callable[[ChaosSession], Awaitable[T]]) -> T:
        async with self._turn:
            try:
                if self._session is None or not self._session.usable:
                    await self._drop()
                    self._session = await ChaosSession.open(self._settings, "chaos")
                return await question(self._session)
            except Unavailable:
                await self._drop()
                raise

    async def _drop(self) -> None:
        if self._session:
            await self._session.close()
        self._session = None
