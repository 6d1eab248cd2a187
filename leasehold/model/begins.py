"""Where a worker's claims begin: no available job stands before that seat.

A claim walks over the index entries of jobs that were claimed before, for as long as somebody's
transaction keeps them from being removed. So it begins at the first job that the last claim saw
available, provided that no job can still turn up before it. The seats tell: a transaction has its
xid before it takes a seat (trigger ``job_seat``). A claim reads the highest seat that was taken and
then gets its own xid: whoever fills a seat up to that one has a lower xid. When all of those have
ended, these seats are settled, and a later look sees whatever is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

Level = tuple[str, int, bool]
"""A queue, a priority, and whether its jobs are fresh (false: they came back)."""


_ASK_SECONDS = 0.5


class Seen(NamedTuple):
    """What a claim saw at a level, as ``leasehold.claim`` tells it."""

    priority: int
    fresh: int
    first: int
    """The first available seat."""
    highest: int
    """The highest seat that was taken before the claim had its xid."""
    xid: int
    oldest: int
    """The oldest xid that was running when it looked, of a transaction that may have a seat."""
    server: int
    """Another one may have forgotten seats and xids, and gives them out again."""


class Begins:
    """Of all queues of a process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: seconds, as ``Env.boot_now``."""
        self._clock = clock
        self._asked_at = clock()
        self._forget(server=0)

    def _forget(self, server: int) -> None:
        self.server = server
        self.levels: dict[Level, int] = {}
        self._settled = 0
        self._settles: tuple[int, int] | None = None
        """(highest, xid): settled up to ``highest`` when no xid up to ``xid`` runs any more."""

    def saw(self, queue: str, seen: Seen) -> None:
        """A claim of ``queue`` found something at a level."""
        if seen.server != self.server:
            self._forget(seen.server)
        if self._settles and seen.oldest > self._settles[1]:
            self._settled, self._settles = self._settles[0], None
        if self._settles is None:
            self._settles = seen.highest, seen.xid
            self._asked_at = self._clock()
        level = queue, seen.priority, bool(seen.fresh)
        begin = min(seen.first, self._settled)
        self.levels[level] = max(begin, self.levels.get(level, 0))

    def unsettled(self) -> int:
        """The xid that we have waited for too long: some transaction holds it back, and only the
        database's locks tell whether it may have a seat. 0: there is none."""
        now = self._clock()
        if self._settles is None or now - self._asked_at < _ASK_SECONDS:
            return 0
        self._asked_at = now
        return self._settles[1]

    def of(self, queues: Collection[str]) -> list[tuple[Level, int]]:
        """The levels of these queues that are known, in order, and where they begin."""
        return sorted(item for item in self.levels.items() if item[0][0] in queues)
