"""Where the next claim of a queue begins to look, and where it ends.

What was claimed and finished leaves dead entries at the head of the index until a vacuum, and
while somebody holds a transaction open, no vacuum can take them away: each claim walks over all of
them. So a claim may begin at the last job that was claimed. It is a lower bound of a search and no
promise: a job below it (of an enqueue that took long to commit, or given back) is found by the next
look at everything, which comes about once a second, at once when we are told of such a job, and
always before the queue sleeps, unless it has become slow.

Where it has become slow, no claim looks at everything, for all others would wait behind it, but to
try whether it is still slow, where that cannot take long: what lies below the mark is looked at
piece by piece, one claim each (``Walk``, ADR 18).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from leasehold.model.job import EVERYTHING, FIRST, LAST, ClaimedJob, Mark, Span
from leasehold.services.walk import Walk

_BULK = 50
"""A claim of so many that got them all: there is a backlog."""
_FULL_SECONDS = 1.0
"""Between two looks at everything, while there is a backlog and they are quick."""
_SLOW_SECONDS = 0.005
"""More than this above a look from the mark, and a look at everything is slow."""
_ROW_SECONDS = 50e-6
"""What a claimed row takes at most: not counted as searching."""
_SAMPLES = 3
_FRESH_SECONDS = 60.0
"""Samples of looks from the mark are good for comparison so long."""
_TRIED_SECONDS = 0.02
"""A look at everything that takes no longer may be tried each time round."""
_TRIED_RARELY_SECONDS = 0.25
_RARELY = 15
"""Times round: in five minutes, where looks differ so much by chance that this is not known."""


class LowWater:
    """Of one queue in one process. Times are of CLOCK_BOOTTIME, in seconds."""

    def __init__(self) -> None:
        self._reached: Mark | None = None
        self._told = self._heard = self._hearing = 0
        """How often we were told of an older job: ever, before the last look at everything began,
        and before the present one did."""
        self._backlog = False
        self._full_at = self._marked_at = float("-inf")
        self._samples: dict[tuple[str, bool], deque[float]] = defaultdict(
            lambda: deque(maxlen=_SAMPLES)
        )
        """Seconds of looks at "all" and from the "mark", with many jobs found or few."""
        self._walk: Walk | None = None
        self._after_piece = self._trying = False
        self._rounds = 0

    def forget(self) -> None:
        """Look at everything: a job that was there before has become free."""
        self._told += 1

    @property
    def slow(self) -> bool:
        return self._walk is not None

    def looks_back_in(self, now: float) -> float:
        """Seconds until the next look at what is below the mark, or at a piece of it."""
        if self._walk and self._reached:
            return self._walk.due_in(now, self._reached, hurry=self._heard != self._told)
        return max(0.0, self._full_at + _FULL_SECONDS - now)

    def next(self, now: float) -> Span:
        """Where to look now."""
        if self._walk and self._reached:
            return self._next_slow(self._walk, self._reached, now)
        self._hearing = self._told
        if self._reached is None or self._heard != self._told or self.looks_back_in(now) <= 0:
            return EVERYTHING
        from_mark = self._backlog or self._unsure(now)
        return Span(self._reached, LAST) if from_mark else EVERYTHING

    def _next_slow(self, walk: Walk, reached: Mark, now: float) -> Span:
        """One from the mark after each piece, so that what is new or more urgent has its turn."""
        if self._after_piece or self.looks_back_in(now) > 0:
            self._after_piece = False
            return Span(reached, LAST)
        if walk.at == FIRST:
            self._hearing = self._told
        if self._trying:
            self._trying = False
            return EVERYTHING
        self._after_piece = True
        return walk.next(reached)

    def _unsure(self, now: float) -> bool:
        """Looks at everything take long, and nothing is known to compare them with."""
        full, marked = self._samples["all", False], self._samples["mark", False]
        if len(full) < _SAMPLES or min(full) <= _SLOW_SECONDS:
            return False
        return len(marked) < _SAMPLES or now - self._marked_at > _FRESH_SECONDS

    def looked(
        self, span: Span, jobs: Sequence[ClaimedJob], limit: int, began: float, now: float
    ) -> bool:
        """What a look at ``span`` found, best first. True: the queue is empty, as far as one may
        know; False: there may be more."""
        more = len(jobs) == limit
        searched = now - began - _ROW_SECONDS * len(jobs)
        if self._walk and span.end != LAST:
            if more:
                self._walk.stopped(_place(jobs[-1]))
            elif self._walk.passed(span.end, searched, now):
                self._once_round(self._walk.again(now))
            return False
        self._sample(span, searched, len(jobs) >= _BULK, began)
        self._backlog = more and limit >= _BULK
        if jobs:
            self._reach(_place(jobs[-1]), more)
        if self._walk and self._reached:
            self._walk.cut(self._reached, began)
        return not more and (span == EVERYTHING or self._walk is not None)

    def _once_round(self, searched: float) -> None:
        self._heard = self._hearing
        self._rounds += 1
        rarely = self._rounds % _RARELY == 0
        self._trying = searched < (_TRIED_RARELY_SECONDS if rarely else _TRIED_SECONDS)

    def _sample(self, span: Span, searched: float, bulk: bool, began: float) -> None:
        if span == EVERYTHING:
            self._heard, self._full_at = self._hearing, began
            self._samples["all", bulk].append(searched)
        else:
            if began - self._marked_at > _FRESH_SECONDS:
                self._samples["mark", False].clear()
                self._samples["mark", True].clear()
            self._samples["mark", bulk].append(searched)
            self._marked_at = began
            if self._walk and not bulk:
                self._walk.marked(searched)
        self._judge(span, searched, bulk, began)

    def _judge(self, span: Span, searched: float, bulk: bool, began: float) -> None:
        """Slow, if the least of three looks at everything is. Not any more, if one is not."""
        full, marked = self._samples["all", bulk], self._samples["mark", bulk]
        if len(marked) < _SAMPLES or began - self._marked_at > _FRESH_SECONDS:
            return
        if self._walk:
            if span == EVERYTHING and searched - min(marked) <= _SLOW_SECONDS:
                self._walk = None
        elif len(full) == _SAMPLES and min(full) - min(marked) > _SLOW_SECONDS:
            self._walk = Walk(began)

    def _reach(self, last: Mark, more: bool) -> None:
        """The mark goes to the last job. It stays where it was, if that is behind it, and none that
        was there before is left between them."""
        reached = self._reached
        if reached and not more and last < reached and last.priority == reached.priority:
            return
        self._reached = last


def _place(job: ClaimedJob) -> Mark:
    return Mark(job.priority, job.scheduled_for, job.id)
