"""Where people look and act: over connections of their own, so that no claim waits behind them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from leasehold.pg.stores.reports import PgReports
from leasehold.watch.operator import Operator

if TYPE_CHECKING:
    from leasehold.app.home import Home


T = TypeVar("T")


def of_closed_loops(kept: WeakKeyDictionary[asyncio.AbstractEventLoop, T]) -> list[T]:
    """Takes out what nobody can use any more: each ``asyncio.run()`` has a loop of its own. Safe
    from any thread, as loops are run in many."""
    closed = [loop for ref in kept.keyrefs() if (loop := ref()) and loop.is_closed()]
    return [left for loop in closed if (left := kept.pop(loop, None)) is not None]


class Office:
    """Opens nothing before somebody asks; each event loop has its own."""

    def __init__(self, app: Home) -> None:
        self._app = app
        self._pid = os.getpid()
        self._reports: WeakKeyDictionary[asyncio.AbstractEventLoop, PgReports] = WeakKeyDictionary()

    async def operator(self, who: str, via: str) -> Operator:
        reports = await self._of_loop()
        return Operator(reports.store, reports, self._app.env, self._app.settings, who, via)

    async def _of_loop(self) -> PgReports:
        if self._pid != os.getpid():  # a fork shares sockets with its parent
            self._pid, self._reports = os.getpid(), WeakKeyDictionary()
        loop = asyncio.get_running_loop()
        reports = self._reports.get(loop)
        if reports is None:
            settings = await self._app.located()
            for left in of_closed_loops(self._reports):
                left.store.abandon()
            reports = self._reports.setdefault(loop, PgReports(settings))
        return reports

    def is_open(self) -> bool:
        """Some loop that is not closed has connections."""
        for left in of_closed_loops(self._reports):
            left.store.abandon()
        return bool(self._reports)

    async def close(self) -> None:
        """Close the connections of the running loop."""
        reports = self._reports.pop(asyncio.get_running_loop(), None)
        if reports:
            await reports.close()
