"""Was the database's clock set? It decides nothing about who holds what; people want to know."""

from __future__ import annotations

TOLERANCE_SECONDS = 1.0
"""Less is no step: clocks are kept right by small corrections."""


class ClockWatch:
    """Compares the database's time with this process's boot clock, answer by answer."""

    def __init__(self) -> None:
        self._between: tuple[float, float] | None = None
        """The least and the most that the one may be ahead of the other."""

    def step(self, at: float, sent_at: float, received_at: float) -> float | None:
        """Seconds by which it was set since the last answer, positive for forward; None when it
        was not. ``at`` was read between the two moments of the boot clock."""
        low, high = at - received_at, at - sent_at
        before, self._between = self._between, (low, high)
        if before is None:
            return None
        if low - before[1] > TOLERANCE_SECONDS:
            return low - before[1]
        if before[0] - high > TOLERANCE_SECONDS:
            return high - before[0]
        return None
