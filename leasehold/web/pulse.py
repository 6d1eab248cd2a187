"""The state that every page shows: its problems. Read once for all open dashboards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from msgspec import Struct, field

from leasehold import errors
from leasehold.app import App
from leasehold.tuning import Tuning
from leasehold.watch.checks import database_problem, problems
from leasehold.watch.facts import Facts
from leasehold.watch.finding import Finding

UNDER_WSGI = "leasehold.wsgi"
"""An extension in the scope of a request that came through WSGI, where a stream would occupy a
thread, or even a process."""


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
        self.streams = 0

    async def beat(self, oldest: float = Tuning.pulse_seconds) -> Beat:
        """Facts and problems at most ``oldest`` seconds old."""
        async with self._lock:
            if self._app.env.boot_now() - self._looked_at >= oldest:
                self.newest = await self._look()
                self._looked_at = self._app.env.boot_now()
        return self.newest

    async def _look(self) -> Beat:
        try:
            facts = await (await self._app.operator("", "web")).inspector.facts()
            return Beat(facts, problems(facts))
        except errors.LeaseholdError as error:
            return Beat(None, [database_problem(error)])

    async def stream(self, seconds: float = Tuning.stream_seconds) -> AsyncIterator[str]:
        """Server-sent events that tell the page to refresh, with the number of problems. With 0
        ``seconds`` there is one, and the browser asks for the next when it is due."""
        self.streams += 1
        try:
            yield f"retry: {1000 if seconds else Tuning.pulse_seconds * 1000:.0f}\n\n"
            ends_at = self._app.env.boot_now() + seconds
            while True:
                beat = await self.beat()
                data = json.dumps({"problems": len(beat.wrong), "away": beat.facts is None})
                yield f"event: tick\ndata: {data}\n\n"
                if self._app.env.boot_now() + Tuning.pulse_seconds > ends_at:
                    return
                await asyncio.sleep(Tuning.pulse_seconds)
        finally:
            self.streams -= 1
