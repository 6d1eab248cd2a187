"""A sleep that a wake-up can end: how services and the guard wait for their next round."""

from __future__ import annotations

import asyncio


class Bell:
    """Wakes the one task that waits for it, within a time limit. Each wait takes one future and one
    timer, a third of the cost of asyncio.Event under asyncio.timeout."""

    def __init__(self) -> None:
        self.rung = False
        self._waiter: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def ring(self) -> None:
        """Wake the waiter; no wait blocks until ``clear``. Call it only in the waiter's loop."""
        self.rung = True
        if self._waiter:
            _end(self._waiter)

    def clear(self) -> None:
        self.rung = False

    async def wait(self, seconds: float) -> None:
        """Wait until it rings, at most ``seconds``."""
        if self.rung:
            return
        loop = self._loop
        if loop is None:  # kept, because asking costs a system call
            loop = self._loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, _end, self._waiter)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
