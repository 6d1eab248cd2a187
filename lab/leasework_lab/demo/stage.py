"""The state that the parts of the demo share while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from leasework.errors import Unavailable
from leasework_lab.demo.app import NAME, DemoApp
from leasework_lab.demo.fleet import Fleet, Worker
from leasework_lab.demo.scorecard import Act, Death, Scorecard
from leasework_lab.demo.show import Picture

T = TypeVar("T")

_POLL_SECONDS = 0.02


@dataclass
class Stage:
    """Belongs to one event loop. ``stop`` ends the run; the scorecard follows."""

    demo: DemoApp
    fleet: Fleet
    started_at: float
    """CLOCK_BOOTTIME."""
    stop: asyncio.Event
    picture: Picture = field(default_factory=Picture)
    enqueued: set[UUID] = field(default_factory=set)
    deaths: list[Death] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    hunting: bool = False
    """Waiting for a leader that runs slow jobs, so many of them are enqueued."""
    killing: bool = False
    """A leader was killed, and its successor is not known yet."""
    database_away: bool = False
    """It was stopped and is not back yet."""
    release: str = ""
    """The deployed release."""
    card: Scorecard | None = None
    """Set at the end."""
    clock: tuple[datetime, float] | None = None
    """The same moment by the database's clock and in seconds since the start."""

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self.demo.app.env.boot_now() - self.started_at

    def moment(self, seconds: float) -> datetime:
        """The database's time for a number of seconds since the start."""
        assert self.clock
        return self.clock[0] + timedelta(seconds=seconds - self.clock[1])

    def since(self, moment: datetime) -> float:
        """Seconds since the start for a moment by the database's clock."""
        assert self.clock
        return self.clock[1] + (moment - self.clock[0]).total_seconds()

    def lane(self, worker: Worker) -> str:
        """A process's name in pictures."""
        return f"{worker.release or 'pid'} {worker.pid}"

    def tell(self, text: str) -> None:
        self.picture.stories.append((self.seconds, text))

    async def database_now(self) -> datetime:
        return await (await self.demo.app.reports()).database_now(None)

    async def leader(self) -> tuple[Worker | None, int]:
        """The live leader, if it is one of our processes, and its term."""
        reports = await self.demo.app.reports()
        for row in await reports.leaders(100):
            if row.name == NAME:
                worker = self.fleet.find(row.holder)
                return (worker if worker in self.fleet.alive else None), row.term
        return None, 0

    async def pause(self, seconds: float) -> None:
        """Sleep, but wake when the run ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stop.wait()

    async def until(
        self, seconds: float, look: Callable[[], Awaitable[T]], *, or_stop: bool = False
    ) -> T | None:
        """The first answer of ``look`` that is not empty; None if there is none in time, or (with
        ``or_stop``) before the run ends."""
        env = self.demo.app.env
        deadline = env.boot_now() + seconds
        while True:
            with suppress(Unavailable):
                found = await look()
                if found:
                    return found
            if env.boot_now() >= deadline or (or_stop and self.stop.is_set()):
                return None
            await asyncio.sleep(_POLL_SECONDS)
