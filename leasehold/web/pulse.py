"""The state that every page shows: is all well? Read once for all open dashboards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leasehold import errors
from leasehold.watch.checks import Problem, database_problem, problems
from leasehold.watch.facts import Facts

if TYPE_CHECKING:
    from leasehold.app import App

EVERY_SECONDS = 2.0
STREAM_SECONDS = 15.0
"""A stream ends after this time and the browser opens another, so it never delays a shutdown."""
MOST_STREAMS = 100


@dataclass(frozen=True)
class Beat:
    facts: Facts | None = None
    found: list[Problem] = field(default_factory=list)
    away: str = ""

    @property
    def wrong(self) -> list[Problem]:
        return [problem for problem in self.found if not problem.info]


class Pulse:
    def __init__(self, app: App) -> None:
        self._app = app
        self._looked_at = float("-inf")
        self._lock: asyncio.Lock | None = None
        self.newest = Beat()
        self.streams = 0

    async def beat(self, oldest: float = EVERY_SECONDS) -> Beat:
        """Facts and problems at most ``oldest`` seconds old."""
        lock = self._lock = self._lock or asyncio.Lock()
        async with lock:
            if self._app.env.boot_now() - self._looked_at >= oldest:
                self.newest = await self._look()
                self._looked_at = self._app.env.boot_now()
        return self.newest

    async def _look(self) -> Beat:
        try:
            facts = await (await self._app.operator("", "web")).inspector.facts()
            return Beat(facts, problems(facts))
        except errors.LeaseholdError as error:
            told = database_problem(error)
            return Beat(None, [told], told.sentence)

    async def stream(self) -> AsyncIterator[str]:
        """Server-sent events that tell the page to refresh, with the number of problems."""
        self.streams += 1
        try:
            yield "retry: 1000\n\n"
            ends_at = self._app.env.boot_now() + STREAM_SECONDS
            while self._app.env.boot_now() < ends_at:
                beat = await self.beat()
                data = json.dumps({"problems": len(beat.wrong), "away": bool(beat.away)})
                yield f"event: tick\ndata: {data}\n\n"
                await asyncio.sleep(EVERY_SECONDS)
        finally:
            self.streams -= 1
