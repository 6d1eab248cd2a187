"""Was the database's clock set? It decides nothing about who holds what; people want to know."""

from __future__ import annotations

from leasehold.config import Tuning


class ClockWatch:
    """Compares the database's time with this process's boot clock, answer by answer."""

    def __init__(self) -> None:
        self._ahead: tuple[float, float] | None = None
        """The least and the most by which the database's clock can be ahead of ours."""

    def step(self, at: float, sent_at: float, received_at: float) -> float | None:
        """By how many seconds the clock was set since the last answer, positive for forward; None
        if it was not. ``at`` was read between the two moments of the boot clock."""
        low, high = at - received_at, at - sent_at
        before, self._ahead = self._ahead, (low, high)
        if before and low - before[1] > Tuning.clock_step_seconds:
            return low - before[1]
        if before and before[0] - high > Tuning.clock_step_seconds:
            return high - before[0]
        return None
