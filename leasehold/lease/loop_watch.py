"""Notices stuck event loops. All methods run in the guard's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from leasehold.config import Timings
from leasehold.env import Env
from leasehold.telemetry import Emit


class LoopWatch:
    """The loop that runs the duties. Each heartbeat checks it."""

    def __init__(self, timings: Timings, emit: Emit) -> None:
        self._timings = timings
        self._emit = emit
        self.stuck_seconds = 0.0
        """0: it runs."""

    def look(self, lag: float) -> bool:
        """Return whether the loop is stuck. ``lag`` is how long it has not answered, in seconds. A
        stuck loop must answer within R before it counts as running."""
        if lag > self._timings.stuck:
            if not self.stuck_seconds:
                self._emit("loop_stuck", seconds=round(lag, 1))
            self.stuck_seconds = lag
            return True
        if self.stuck_seconds and lag < self._timings.renew:
            self._emit("loop_free", seconds=round(self.stuck_seconds, 1))
            self.stuck_seconds = 0.0
        return False


class UserLoops:
    """The loops in which users' leaders run. Their threads only send the answers."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._asked_at: dict[asyncio.AbstractEventLoop, float] = {}
        self._answered: set[asyncio.AbstractEventLoop] = set()

    def ask(self, loops: Iterable[asyncio.AbstractEventLoop | None]) -> None:
        """Ask each of these loops that has answered before, and forget all others. None stands
        for no loop."""
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
            except RuntimeError:  # closed
                self._asked_at[loop] = float("-inf")

    def lag(self, loop: asyncio.AbstractEventLoop | None) -> float:
        """Return for how many seconds a loop has not answered. 0: it has. inf: it is closed."""
        if loop is None or loop in self._answered or loop not in self._asked_at:
            return 0.0
        return self._env.boot_now() - self._asked_at[loop]
