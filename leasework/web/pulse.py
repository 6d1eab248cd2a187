"""The state that every page shows: its problems. Read once for all open dashboards."""

from __future__ import annotations

import asyncio

from msgspec import Struct, field

from leasework import errors
from leasework.app import App
from leasework.tuning import Tuning
from leasework.watch.checks import database_problem
from leasework.watch.facts import Facts
from leasework.watch.finding import Finding


class Beat(Struct, frozen=True):
    facts: Facts | None = None
    found: list[Finding] = field(default_factory=list)

    @property
    def wrong(self) -> list[Finding]:
        return [problem for problem in self.found if not problem.info]


class Pulse:
    def __init__(self, app: App) -> None:
        self._app = app
        self._looked_at = float("-inf")
        self._lock = asyncio.Lock()
        self.newest = Beat()

    async def beat(self, oldest: float = Tuning.pulse_seconds) -> Beat:
        """Facts and problems at most ``oldest`` seconds old."""
        async with self._lock:
            if self._app.env.boot_now() - self._looked_at >= oldest:
                self.newest = await self._look()
                self._looked_at = self._app.env.boot_now()
        return self.newest

    async def _look(self) -> Beat:
        try:
            return Beat(*await (await self._app.operator("", "web")).inspector.look())
        except errors.LeaseworkError as error:  # there is no connection
            return Beat(None, [database_problem(error)])
