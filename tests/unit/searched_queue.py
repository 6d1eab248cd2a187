"""A queue whose looks take as long as what they walk over, on a clock of its own."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from leasehold.jobs.low_water import LowWater
from leasehold.model.job import FIRST, LAST, UNSETTLED_SECONDS, ClaimedJob, Mark, Span

BEGINNING = datetime(2026, 1, 1, 12, tzinfo=UTC)
LOOK = 0.001
"""Seconds that a look takes which finds nothing in its way."""


def claimed(mark: Mark) -> ClaimedJob:
    return ClaimedJob(mark.id, "t", "q", {}, mark.priority, 1, 5, 0, 1, None, None,
                      mark.run_at, True, None)  # fmt: skip


def is_piece(span: Span) -> bool:
    return span.end != LAST


class Queue:
    """A queue that is looked at as claim.sql does it. ``dead``: in the way of a look, each for
    ``entry`` seconds."""

    def __init__(self, entry: float = 0.0, link: float = 0.0) -> None:
        self.low_water = LowWater()
        self.entry, self.link, self.row, self.now = entry, link, 20e-6, 10_000.0
        self.ready: list[Mark] = []
        self.dead: list[Mark] = []
        self.enqueued = 0
        self.empty = False
        self.took = 0.0
        """The last look."""

    def place(self, age: float = 0.0, priority: int = 3) -> Mark:
        self.enqueued += 1
        moment = BEGINNING + timedelta(seconds=self.now - age)
        return Mark(priority, moment, UUID(int=self.enqueued))

    def enqueue(self, count: int = 1, priority: int = 3, age: float = 0.0) -> None:
        for _ in range(count):
            insort(self.ready, self.place(age, priority))

    def bury(self, count: int, age: float, priority: int = 3) -> None:
        """Many that were claimed some time ago."""
        for _ in range(count):
            insort(self.dead, self.place(age, priority))

    def seen(self, marks: list[Mark], span: Span) -> list[Mark]:
        """Of a sorted list."""
        settled = BEGINNING + timedelta(seconds=self.now - UNSETTLED_SECONDS)
        begin = Mark(span.begin.priority, min(span.begin.run_at, settled), span.begin.id)
        urgent = bisect_left(marks, Mark(span.urgent, FIRST.run_at, FIRST.id))
        usual = marks[bisect_left(marks, begin) : bisect_left(marks, span.end)]
        return marks[:urgent] + usual

    def look(self, limit: int = 100, after: float = 0.01) -> Span:
        self.now += after
        began, span = self.now, self.low_water.next(self.now)
        found = self.seen(self.ready, span)[:limit]
        self.took = (
            LOOK + self.link + self.row * len(found) + len(self.seen(self.dead, span)) * self.entry
        )
        self.now += self.took
        for mark in found:
            self.ready.remove(mark)
            insort(self.dead, mark)
        jobs = [claimed(mark) for mark in found]
        self.empty = self.low_water.looked(span, jobs, limit, began, self.now)
        return span

    def seconds(self, seconds: float, new: int = 1, priority: int = 3) -> Iterator[Span]:
        """Looks of so long, before each of which ``new`` jobs come."""
        end = self.now + seconds
        while self.now < end:
            self.enqueue(new, priority)
            yield self.look()

    def run(self, seconds: float, new: int = 1, priority: int = 3) -> list[float]:
        """What each look took."""
        return [self.took for _ in self.seconds(seconds, new, priority)]
