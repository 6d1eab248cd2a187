"""Notices when the database's clock is set. This is for operators: no lease depends on it."""

from __future__ import annotations

from leasehold.tuning import Tuning


class ClockWatch:
    """Compares the database's time in each answer with this process's boot clock."""

    def __init__(self) -> None:
        self._ahead: tuple[float, float] | None = None
        """By how much the database's clock is ahead of ours, at least and at most."""

    def step(self, at: float, sent_at: float, received_at: float) -> float | None:
        """Return by how many seconds the clock was set since the last answer, positive for forward,
        or None. The database read ``at`` between the two moments of the boot clock."""
        low, high = at - received_at, at - sent_at
        before, self._ahead = self._ahead, (low, high)
        if before and low - before[1] > Tuning.clock_step_seconds:
            return low - before[1]
        if before and before[0] - high > Tuning.clock_step_seconds:
            return high - before[0]
        return None
