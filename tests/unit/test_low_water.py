"""Where a claim begins to look: at everything, or at a mark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from leasehold.model.job import ClaimedJob, Mark
from leasehold.services.low_water import LowWater

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def jobs(count: int) -> list[ClaimedJob]:
    return [
        ClaimedJob(UUID(int=n), "t", "q", {}, 3, 1, 5, 0, n, None, None,
                   NOON + timedelta(seconds=n), True, None)
        for n in range(1, count + 1)
    ]  # fmt: skip


LAST = Mark(3, NOON + timedelta(seconds=100), UUID(int=100))


class Queue:
    """Looks at a queue whose searches take ``full`` and ``marked`` seconds."""

    def __init__(self, full: float = 0.0, marked: float = 0.0) -> None:
        self.low_water = LowWater()
        self.full, self.marked, self.now = full, marked, 1000.0
        self.empty = False

    def look(self, found: int = 0, limit: int = 100, after: float = 0.01) -> Mark | None:
        self.now += after
        began, mark = self.now, self.low_water.start(self.now)
        self.now += self.marked if mark else self.full
        self.empty = self.low_water.looked(mark, jobs(found), limit, began, self.now)
        return mark


def test_with_a_backlog_a_claim_begins_where_the_last_one_ended() -> None:
    queue = Queue()
    assert queue.look(found=100) is None, "nothing is known yet"
    assert queue.look(found=100) == LAST and not queue.empty


def test_with_a_backlog_everything_is_looked_at_once_a_second() -> None:
    queue = Queue()
    marks = [queue.look(found=100, after=0.1) for _ in range(30)]
    assert [n for n, mark in enumerate(marks) if mark is None] == [0, 10, 20]


def test_a_queue_is_empty_only_when_everything_was_looked_at() -> None:
    queue = Queue()
    queue.look(found=100)
    assert queue.look(found=7) == LAST and not queue.empty
    assert queue.look() is None and queue.empty


def test_without_a_backlog_every_claim_looks_at_everything() -> None:
    queue = Queue(full=0.001)
    assert [queue.look(found=1) for _ in range(50)] == [None] * 50


def test_a_search_that_dead_rows_make_slow_is_made_rarely() -> None:
    queue = Queue(full=0.1, marked=0.001)
    marks = [queue.look(found=1) for _ in range(4000)]
    looks = sum(mark is None for mark in marks)
    assert 3 <= looks <= 8, "three to learn that it is slow, then one in twenty seconds"
    assert queue.look() is not None and queue.empty, "as far as one may know"
    assert 0 < queue.low_water.full_in(queue.now) <= 20


def test_a_slow_link_is_not_taken_for_a_slow_search() -> None:
    queue = Queue(full=0.3, marked=0.3)
    marks = [queue.look(found=1) for _ in range(50)]
    assert marks.count(None) >= 44, "three looks from the mark, for comparison"
    assert not queue.low_water.slow


def test_when_the_search_is_quick_again_it_is_made_as_before() -> None:
    queue = Queue(full=0.1, marked=0.001)
    for _ in range(1000):
        queue.look(found=1)
    queue.full = 0.001
    while queue.look(found=1) is not None:
        pass
    assert not queue.low_water.slow and queue.look(found=1) is None


def test_when_a_job_has_become_free_everything_is_looked_at() -> None:
    queue = Queue()
    queue.look(found=100)
    queue.low_water.forget()
    assert queue.look(found=100) is None
