"""What lies below a mark, looked at piece by piece, again and again."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from math import ceil
from typing import NamedTuple

from leasehold.model.job import FIRST, Mark, Span


class Pace(NamedTuple):
    """How soon pieces follow each other, and how long they are."""

    seconds: float
    """All of them are looked at once in this time,"""
    rest: float
    """with a pause after each of this many times what it took, at least."""
    joined: float
    """What is likely to take no longer than this (seconds) is one piece."""


USUAL = Pace(seconds=20.0, rest=10.0, joined=0.0)
BLIND = Pace(seconds=1.0, rest=1.0, joined=0.05)
"""We would not be told of a job that has become free."""
HURRY = Pace(seconds=0.0, rest=1.0, joined=0.05)
"""We were told of one."""

_CUT_SECONDS = 5.0
"""What is claimed in this time is a piece at first."""
_MOST = 32
"""So many cuts are made; then pieces become twice as long."""
_MOST_JOINED = 8
"""In one piece: what they take is known by chance only."""


class Walk:
    """Times are of CLOCK_BOOTTIME, in seconds."""

    def __init__(self) -> None:
        self._cuts: list[Mark] = []
        """Where one piece ends and the next begins, if they are not joined."""
        self._every, self._cut_at = _CUT_SECONDS, float("-inf")
        self.at = FIRST
        """Where the next piece begins."""
        self._joined, self._last = 1, False
        """Of the present piece: how many are in it, and whether it is the last one."""
        self._took = self._marked = 0.0
        """Seconds: the last piece, the last look from the mark."""
        self._each = float("inf")
        """Seconds of a piece that is not joined, above a look from the mark."""
        self._began = self._looked_at = 0.0
        self._passed, self._searched = 0, 0.0
        """This time round."""

    def start(self, now: float) -> None:
        """It has become slow: it is not yet time for a first piece. The cuts of before stay."""
        self._began = self._looked_at = now
        self._every = _CUT_SECONDS

    def cut(self, mark: Mark, now: float) -> None:
        if now - self._cut_at < self._every or mark in self._cuts:
            return
        self._cut_at = now
        insort(self._cuts, mark)
        if len(self._cuts) > _MOST:
            del self._cuts[::2]
            self._every *= 2

    def due_in(self, now: float, reached: Mark, pace: Pace) -> float:
        """Seconds until the next piece."""
        left = bisect_left(self._cuts, reached) - bisect_right(self._cuts, self.at) + 1
        share = (self._began + pace.seconds - self._looked_at) / max(1, ceil(left / self._in(pace)))
        pause = min(max(share, self._took * pace.rest), USUAL.seconds)
        return max(0.0, self._looked_at + pause - now)

    def next(self, reached: Mark, pace: Pace) -> Span:
        """The next piece of what is below the mark."""
        if self.at >= reached:  # the mark went back
            self.at = FIRST
        first, last = bisect_right(self._cuts, self.at), bisect_left(self._cuts, reached)
        self._joined = min(self._in(pace), last - first + 1)
        self._last = first + self._joined > last
        return Span(self.at, reached if self._last else self._cuts[first + self._joined - 1])

    def _in(self, pace: Pace) -> int:
        """How many are joined to one piece."""
        if pace.joined <= self._each:
            return 1
        return _MOST_JOINED if self._each <= 0 else min(_MOST_JOINED, int(pace.joined / self._each))

    def stopped(self, at: Mark) -> None:
        """There was more in a piece than one claim takes: the rest of it comes next, soon."""
        self.at = at

    def passed(self, end: Mark, took: float, now: float) -> bool:
        """True: it was the last one, and the first one is the next."""
        self._took, self._looked_at = took, now
        self._passed += self._joined
        self._searched += took - self._marked
        self.at = FIRST if self._last else end
        return self._last

    def marked(self, took: float) -> None:
        """A look from the mark, for comparison."""
        self._marked = took

    def again(self, now: float) -> float:
        """Once round: about how many seconds one look at everything would take, but for what each
        look takes."""
        searched, self._each = self._searched, self._searched / max(1, self._passed)
        self._began, self._passed, self._searched = now, 0, 0.0
        return searched
