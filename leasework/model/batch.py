"""The size of one statement's batch."""

from __future__ import annotations

from leasework.tuning import Tuning


class BatchSize:
    """A batch's limit, in rows or bytes. It halves after a call without an answer in time, as on a
    slow link, and doubles, up to ``most``, after a quick call of more than half its size."""

    def __init__(self, most: int) -> None:
        self.most = self.now = most

    def unanswered(self, size: int) -> None:
        """A call of that size got no answer."""
        self.now = max(1, min(size, self.now) // 2)

    def answered(self, size: int, seconds: float) -> None:
        """A call was answered. A small one says nothing about bigger ones."""
        if size * 2 > self.now and seconds < Tuning.quick_batch_seconds:
            self.now = min(self.most, self.now * 2)
