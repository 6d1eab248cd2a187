"""Where the next claim of a queue may begin to look.

What was claimed and finished leaves dead entries at the head of the index until a vacuum, and
while somebody holds a transaction open, no vacuum can take them away: each claim walks over all of
them. So a claim may begin at the last job that was claimed. It is a lower bound of a search and no
promise: a job below it (of an enqueue that took long to commit, or given back) is found by the next
look at everything, which comes about once a second, at once when we are told of such a job, and
always before the queue sleeps, unless it has become slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from leasehold.model.job import ClaimedJob, Mark

_BULK = 50
"""A claim of so many that got them all: there is a backlog."""
_FULL_SECONDS = 1.0
"""Between two looks at everything, while there is a backlog."""
_SHARE = 200
"""A slow look at everything is made so rarely that it takes less than a 200th of the time."""
_LONGEST_SECONDS = 20.0
_SLOW_SECONDS = 0.005
"""More than this above a look from the mark, and a look at everything is slow."""
_ROW_SECONDS = 50e-6
"""What a claimed row takes at most: not counted as searching."""
_SAMPLES = 3


class LowWater:
    """Of one queue in one process. Times are of CLOCK_BOOTTIME, in seconds."""

    def __init__(self) -> None:
        self._reached: Mark | None = None
        self._backlog = False
        self._full_at = float("-inf")
        # the least of a few: one that was slow by chance counts for nothing
        self._full: deque[float] = deque(maxlen=_SAMPLES)
        self._marked: deque[float] = deque(maxlen=_SAMPLES)

    def forget(self) -> None:
        """Look at everything next time: a job that was there before has become free."""
        self._reached = None

    @property
    def _excess(self) -> float:
        """Seconds that a look at everything takes longer; 0 while that is not known."""
        if len(self._full) < _SAMPLES or len(self._marked) < _SAMPLES:
            return 0.0
        return min(self._full) - min(self._marked)

    @property
    def slow(self) -> bool:
        return self._excess > _SLOW_SECONDS

    def full_in(self, now: float) -> float:
        """Seconds until the next look at everything."""
        pause = min(max(_FULL_SECONDS, self._excess * _SHARE), _LONGEST_SECONDS)
        return max(0.0, self._full_at + pause - now)

    def start(self, now: float) -> Mark | None:
        """From where to look; None: at everything."""
        if self._reached is None or self.full_in(now) <= 0:
            return None
        unsure = (
            len(self._full) == _SAMPLES
            and min(self._full) > _SLOW_SECONDS
            and len(self._marked) < _SAMPLES
        )
        return self._reached if self._backlog or self.slow or unsure else None

    def looked(
        self, mark: Mark | None, jobs: Sequence[ClaimedJob], limit: int, began: float, now: float
    ) -> bool:
        """What a look from ``mark`` found, best first. True: the queue is empty, as far as one may
        know; False: there may be more."""
        searched = max(0.0, now - began - _ROW_SECONDS * len(jobs))
        if mark is None:
            self._full_at = began
            self._full.append(searched)
        else:
            self._marked.append(searched)
        self._backlog = len(jobs) == limit and limit >= _BULK
        if jobs:
            last = jobs[-1]
            self._reached = Mark(last.priority, last.scheduled_for, last.id)
        return len(jobs) < limit and (mark is None or self.slow)
