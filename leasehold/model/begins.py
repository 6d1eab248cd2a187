"""The seats where a worker's claims begin: no available job has an earlier one.

While an old transaction blocks vacuum, a claim has to pass the dead index entries of all jobs that
were claimed before. So it begins at the first job that the last claim saw available, provided that
no job can still appear before it. The seats tell: a transaction gets its xid before it takes a seat
(trigger ``job_seat``). A claim reads the highest seat taken, and then gets its own xid, so every
transaction with a seat up to that one has a lower xid. When all of those have ended, the seats are
settled: a later look sees every job in them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from leasehold.tuning import Tuning

Level = tuple[str, int, bool]
"""A queue, a priority, and whether the jobs are fresh (False: they came back)."""


class Seen(NamedTuple):
    """What ``leasehold.claim`` reports of a level."""

    priority: int
    fresh: int
    first: int
    """The first available seat."""
    highest: int
    """The highest seat taken before the claim got its xid."""
    xid: int
    oldest: int
    """The oldest xid, at that time, of a running transaction that may have a seat."""
    server: int
    """The server's id. Another server may have lost seats and xids, and assigns them again."""


class Begins:
    """The begins of all queues of a process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` returns seconds, like ``Env.boot_now``."""
        self._clock = clock
        self._asked_at = clock()
        self._forget(server=0)

    def _forget(self, server: int) -> None:
        self.server = server
        self.levels: dict[Level, int] = {}
        self.settled = 0
        """No job can appear any more at a seat up to this one."""
        self._settles: tuple[int, int] | None = None
        """(highest, xid): seats up to ``highest`` settle when every xid up to ``xid`` has ended."""

    def saw(self, queue: str, seen: Seen) -> None:
        """Note what a claim of ``queue`` found at a level."""
        if seen.server != self.server:
            self._forget(seen.server)
        if self._settles and seen.oldest > self._settles[1]:
            self.settled, self._settles = self._settles[0], None
        if self._settles is None:
            self._settles = seen.highest, seen.xid
            self._asked_at = self._clock()
        level = queue, seen.priority, bool(seen.fresh)
        begin = min(seen.first, self.settled)
        self.levels[level] = max(begin, self.levels.get(level, 0))

    def unsettled(self) -> int:
        """Return the xid whose end is overdue, or 0. Only the database's locks tell whether the
        transaction that holds it back may have a seat."""
        now = self._clock()
        if self._settles is None or now - self._asked_at < Tuning.begin_ask_seconds:
            return 0
        self._asked_at = now
        return self._settles[1]

    def of(self, queues: Collection[str]) -> list[tuple[Level, int]]:
        """Return the known levels of these queues, in order, with their begins."""
        return sorted(item for item in self.levels.items() if item[0][0] in queues)
