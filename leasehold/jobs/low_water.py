"""Where the next claim of a queue begins to look, and where it ends.

What was claimed and finished leaves dead entries at the head of the index until a vacuum, and
while somebody holds a transaction open, no vacuum can take them away: each claim walks over all of
them. So a claim may begin at the last job that was claimed. It is a lower bound of a search and no
promise: a job below it (of an enqueue that took long to commit, or given back) is found by the next
look at everything, which comes about once a second, at once when we are told of such a job, and
always before the queue sleeps, unless it has become slow.

Where it has become slow, no claim looks at everything, for all others would wait behind it, but to
try whether it is still slow, where that cannot take long: what lies below the mark is looked at
piece by piece, one claim each (``Walk``, ADR 18); sooner, where nobody could tell us.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leasehold.jobs.walk import BLIND, HURRY, USUAL, Pace, Walk
from leasehold.model.job import EVERYTHING, FIRST, LAST, ClaimedJob, Mark, Span

_BULK = 50
"""A claim of so many that got them all: there is a backlog."""
_FULL_SECONDS = 1.0
"""Between two looks at everything, while there is a backlog and they are quick."""
_SLOW_SECONDS = 0.005
"""More than this above a look from the mark, and a look at everything is slow."""
_ENOUGH = 12
"""Points that make a slow search. A look at everything that was slow is one, and one more for each
``_POINT_SECONDS``; one that was not takes three away. A busy machine, where chance decides which of
two looks is the longer one, would have to toss heads a dozen times."""
_POINT_SECONDS = 0.25
_SURE_SECONDS = 3.0
_SURE_LOOKS = 10
"""After a comparison that left no point: so long, and for so many looks at everything, no look is
made for comparison alone."""
_TRIED_SHARE = 1 / 5000
"""So much of the time is for looks at everything where they are slow."""


class _Look(NamedTuple):
    took: float
    rows: int


class LowWater:
    """Of one queue in one process. Times are of CLOCK_BOOTTIME, in seconds."""

    def __init__(self) -> None:
        self._reached: Mark | None = None
        self._told = self._heard = self._hearing = 0
        """How often we were told of an older job: ever, before the last look at everything began,
        and before the present one did."""
        self._backlog = False
        self._full_at, self._full_took = float("-inf"), 0.0
        """The last look at everything: when it began, and seconds."""
        self._from_mark: _Look | None = None
        """The last look from the mark, if one at everything after it may be compared with it."""
        self._claimed = False
        """So did the last look."""
        self._points = 0
        self._sure_until, self._sure_for = float("-inf"), 0
        self._walk = Walk()
        self._after_piece = self._trying = False
        self.blind = False
        """Nobody can tell us of an older job."""

    def forget(self) -> None:
        """Look at everything: a job that was there before has become free."""
        self._told += 1

    @property
    def slow(self) -> bool:
        """Pieces are looked at, not everything."""
        return self._points >= _ENOUGH

    @property
    def _pace(self) -> Pace:
        return HURRY if self._heard != self._told else BLIND if self.blind else USUAL

    def looks_back_in(self, now: float) -> float:
        """Seconds until the next look at what is below the mark, or at a piece of it."""
        if self.slow and self._reached:
            return self._walk.due_in(now, self._reached, self._pace)
        return max(0.0, self._full_at + _FULL_SECONDS - now)

    def next(self, now: float) -> Span:
        """Where to look now."""
        if self._reached is None:
            self._hearing = self._told
            return EVERYTHING
        if self.slow:
            return self._next_slow(self._reached, now)
        self._hearing = self._told
        if self._heard == self._told and (
            self._in_doubt(now) or (self._backlog and self.looks_back_in(now) > 0)
        ):
            return Span(self._reached, LAST)
        return EVERYTHING

    def _in_doubt(self, now: float) -> bool:
        """A look at everything took long; one from the mark, before the next, tells whether that is
        the search, or the link, or a busy machine."""
        long = self._full_took > _SLOW_SECONDS
        sure = now < self._sure_until or self._sure_for > 0
        return long and not self._from_mark and not sure

    def _next_slow(self, reached: Mark, now: float) -> Span:
        """One from the mark after each piece, so that what is new or more urgent has its turn."""
        if self._after_piece or self.looks_back_in(now) > 0:
            self._after_piece = False
            return Span(reached, LAST)
        if self._walk.at == FIRST:
            self._hearing = self._told
        if self._trying:
            self._trying = False
            return EVERYTHING
        self._after_piece = True
        return self._walk.next(reached, self._pace)

    def looked(
        self, span: Span, jobs: Sequence[ClaimedJob], limit: int, began: float, now: float
    ) -> bool:
        """What a look at ``span`` found, best first. True: the queue is empty, as far as one may
        know; False: there may be more."""
        more, look = len(jobs) == limit, _Look(now - began, len(jobs))
        claimed, self._claimed = self._claimed, bool(jobs)
        if span.end != LAST:
            self._looked_at_piece(span, look, _place(jobs[-1]) if more else None, now)
            return False
        if span == EVERYTHING:
            self._looked_at_everything(look, began)
        else:
            # a job that starts makes the next look longer: of both, or of none
            self._from_mark = look if claimed or not jobs else None
            if look.rows < _BULK:
                self._walk.marked(look.took)
        self._backlog = more and limit >= _BULK
        if jobs:
            self._reach(_place(jobs[-1]), more)
        if self.slow and self._reached:
            self._walk.cut(self._reached, began)
        return not more and (span == EVERYTHING or self.slow)

    def _looked_at_piece(self, span: Span, look: _Look, stopped: Mark | None, now: float) -> None:
        if stopped:
            self._walk.stopped(stopped)
        elif self._walk.passed(span.end, look.took, now):
            self._heard = self._hearing
            self._trying = self._walk.again(now) < (now - self._full_at) * _TRIED_SHARE

    def _looked_at_everything(self, look: _Look, began: float) -> None:
        self._heard = self._hearing
        self._full_at, self._full_took = began, look.took
        self._sure_for -= 1
        marked, self._from_mark = self._from_mark, None
        if look.took > _SLOW_SECONDS and (not marked or look.rows > marked.rows):
            return  # it is not known what so many rows take
        self._judge(look.took - (marked.took if marked else 0.0), began)

    def _judge(self, longer: float, began: float) -> None:
        """A look at everything was so much longer (seconds) than one from the mark."""
        was_slow = self.slow
        points = 1 + int(longer / _POINT_SECONDS) if longer > _SLOW_SECONDS else -3
        self._points = min(max(0, self._points + points), _ENOUGH)
        if self._points == 0 and self._full_took > _SLOW_SECONDS:
            self._sure_until, self._sure_for = began + _SURE_SECONDS, _SURE_LOOKS
        if self.slow and not was_slow:
            self._walk.start(began)

    def _reach(self, last: Mark, more: bool) -> None:
        """The mark goes to the last job. It stays where it was, if that is behind it, and none that
        was there before is left between them."""
        reached = self._reached
        if reached and not more and last < reached and last.priority == reached.priority:
            return
        self._reached = last


def _place(job: ClaimedJob) -> Mark:
    return Mark(job.priority, job.scheduled_for, job.id)
