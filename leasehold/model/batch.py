"""How much one statement takes."""

from __future__ import annotations

_QUICK_SECONDS = 1.0


class BatchSize:
    """Rows, or bytes: half as much after a call that got no answer in time, as on a slow link, and
    twice as much again, up to ``most``, after a quick one that was as big as allowed."""

    def __init__(self, most: int) -> None:
        self.most = self.now = most

    def unanswered(self, size: int) -> None:
        """A call of that size."""
        self.now = max(1, min(size, self.now) // 2)

    def answered(self, size: int, seconds: float) -> None:
        """A small one says nothing of a bigger one."""
        if size * 2 > self.now and seconds < _QUICK_SECONDS:
            self.now = min(self.most, self.now * 2)
