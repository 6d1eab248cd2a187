"""The event loops in which users' leaders run: which of them stands still. Belongs to the guard's
loop; only the answers come from the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from leasehold.env import Env


class Loops:
    """Each is asked once, and asked again when it has answered."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._asked_at: dict[asyncio.AbstractEventLoop, float] = {}
        self._answered: set[asyncio.AbstractEventLoop] = set()

    def ask(self, loops: Iterable[asyncio.AbstractEventLoop | None]) -> None:
        """Of these and no others it is known from now on. None is no loop at all."""
        now, wanted = self._env.boot_now(), {loop for loop in loops if loop is not None}
        for loop in self._asked_at.keys() - wanted:
            del self._asked_at[loop]
        self._answered &= wanted
        for loop in wanted:
            if loop in self._asked_at and loop not in self._answered:
                continue
            self._answered.discard(loop)
            self._asked_at[loop] = now
            try:
                loop.call_soon_threadsafe(self._answered.add, loop)
            except RuntimeError:  # it is closed
                self._asked_at[loop] = float("-inf")

    def lag(self, loop: asyncio.AbstractEventLoop | None) -> float:
        """For how many seconds it owes an answer; 0 when it does not, inf when it is closed."""
        if loop is None or loop in self._answered or loop not in self._asked_at:
            return 0.0
        return self._env.boot_now() - self._asked_at[loop]
