"""Is the loop that does the duties stuck?"""

from __future__ import annotations

from leasehold.telemetry import Emit

LONGEST_LOOP_LAG = 2.0
"""In R: a loop that is stuck longer gives its leaderships to a process whose loop runs."""


class LoopWatch:
    """Looked at with each heartbeat; ``renew`` is R in seconds."""

    def __init__(self, renew: float, emit: Emit) -> None:
        self.longest = LONGEST_LOOP_LAG * renew
        self._renew = renew
        self._emit = emit
        self.stuck_seconds = 0.0
        """0: it runs."""

    def look(self, lag: float) -> bool:
        """``lag``: seconds for which it has not answered. True while nothing may stand on it."""
        if lag > self.longest:
            if not self.stuck_seconds:
                self._emit("loop_stuck", seconds=round(lag, 1))
            self.stuck_seconds = lag
            return True
        if self.stuck_seconds and lag < self._renew:
            self._emit("loop_free", seconds=round(self.stuck_seconds, 1))
            self.stuck_seconds = 0.0
        return False
