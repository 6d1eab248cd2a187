"""What lies below a mark, looked at piece by piece, again and again."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from leasehold.model.job import FIRST, Mark, Span

_WALK_SECONDS = 20.0
"""All pieces are looked at once in this time."""
_SHARE = 1 / 10
"""Unless that takes more of the time."""
_CUT_SECONDS = 5.0
"""What is claimed in this time is a piece at first."""
_MOST = 32
"""So many cuts are made; then pieces become twice as long."""


class Walk:
    """Times are of CLOCK_BOOTTIME, in seconds."""

    def __init__(self, now: float) -> None:
        self._cuts: list[Mark] = []
        """Where one piece ends and the next begins."""
        self._every, self._cut_at = _CUT_SECONDS, now
        self.at = FIRST
        """Where the next piece begins."""
        self._last = False
        self._began = self._looked_at = now
        self._took = 0.0
        self._pieces, self._spent, self._least = 0, 0.0, float("inf")
        """This time round."""

    def cut(self, mark: Mark, now: float) -> None:
        if now - self._cut_at < self._every or mark in self._cuts:
            return
        self._cut_at = now
        insort(self._cuts, mark)
        if len(self._cuts) > _MOST:
            del self._cuts[::2]
            self._every *= 2

    def due_in(self, now: float, reached: Mark, hurry: bool) -> float:
        """Seconds until the next piece. ``hurry``: half of the time may be spent on them."""
        left = bisect_left(self._cuts, reached) - bisect_right(self._cuts, self.at) + 1
        usual = (self._began + _WALK_SECONDS - self._looked_at) / max(1, left)
        pause = self._took if hurry else max(usual, self._took / _SHARE)
        return max(0.0, self._looked_at + min(pause, _WALK_SECONDS) - now)

    def next(self, reached: Mark) -> Span:
        """The next piece of what is below the mark."""
        if self.at >= reached:  # the mark went back
            self.at = FIRST
        following = bisect_right(self._cuts, self.at)
        end = min(self._cuts[following], reached) if following < len(self._cuts) else reached
        self._last = end == reached
        return Span(self.at, end)

    def stopped(self, at: Mark) -> None:
        """There was more in a piece than one claim takes: the rest of it comes next, soon."""
        self.at = at

    def passed(self, end: Mark, took: float, now: float) -> bool:
        """True: it was the last one, and the first one is the next."""
        self._took, self._looked_at = took, now
        self._pieces += 1
        self._spent += took
        self._least = min(self._least, took)
        self.at = FIRST if self._last else end
        return self._last

    def marked(self, took: float) -> None:
        """A look from the mark, for comparison."""
        self._least = min(self._least, took)

    def again(self, now: float) -> float:
        """Once round: about how many seconds one look at everything would take, but for what each
        look takes."""
        searched = self._spent - self._pieces * self._least
        self._began, self._pieces, self._spent, self._least = now, 0, 0.0, float("inf")
        return searched
