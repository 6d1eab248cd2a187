"""The seats where a worker's claims begin: no available job has an earlier one (ADR 31).

A transaction gets its xid before it takes a seat. A claim reads the highest seat taken, and then
gets its own xid. When all transactions with a lower xid have ended, those seats are settled: a
later look sees every job in them. Workers that wait for each other share the begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from leasework.tuning import Tuning

Level = tuple[str, int]
"""A queue, and the number of ``leasework.level``: twice the priority, plus one for fresh jobs."""


class Seen(NamedTuple):
    """What ``leasework.claim`` reports of a level."""

    level: int
    first: int
    """The first available seat."""
    highest: int
    """The highest seat taken before the claim got its xid."""
    xid: int
    oldest: int
    """The oldest xid, at that time, of a running transaction that may have a seat."""
    server: int
    """The server's id. Another server may have lost seats and xids, and assigns them again."""


class Shared(NamedTuple):
    """What ``leasework.claim`` tells of a begin that workers share."""

    level: int
    sequence: int
    """The oid of the sequence that has the begin."""
    server: int


class Range(NamedTuple):
    """Levels of a queue in which a claim looks for jobs, from a known level to the next one."""

    queue: int
    """Its number among the queues of the claim, counted from 1."""
    level: int
    """Where the range begins."""
    until: int
    """The level before which it ends."""
    begin: int
    """No available job of the first level has an earlier seat."""
    shared: int
    """The oid of the sequence with the begin that workers share; 0: not known."""


_BELOW_ALL, _ABOVE_ALL = -100000, 100000


class Begins:
    """The begins of all queues of a process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` returns seconds, like ``Env.boot_now``."""
        self._clock = clock
        self._asked_at = self._asked_shared_at = clock()
        self._forget(server=0)

    def _forget(self, server: int) -> None:
        self.server = server
        self.levels: dict[Level, int] = {}
        self.shared: dict[Level, int] = {}
        """The sequences of shared begins."""
        self.settled = 0
        """No job can appear any more at a seat up to this one."""
        self._settles: tuple[int, int] | None = None
        """(highest, xid): seats up to ``highest`` settle when every xid up to ``xid`` has ended."""

    def note(self, queue: str, numbers: Sequence[int]) -> None:
        """Note what a claim says of ``queue``: the fields of a Seen or of a Shared."""
        if len(numbers) == len(Seen._fields):
            self._note_seen(queue, Seen._make(numbers))
            return
        shared = Shared._make(numbers)
        if shared.server != self.server:
            self._forget(shared.server)
        self.shared[queue, shared.level] = shared.sequence
        self._know((queue, shared.level), 0)

    def _note_seen(self, queue: str, seen: Seen) -> None:
        """Note what a claim of ``queue`` found at a level."""
        if seen.server != self.server:
            self._forget(seen.server)
        if self._settles and seen.oldest > self._settles[1]:
            self.settled, self._settles = self._settles[0], None
        if self._settles is None:
            self._settles = seen.highest, seen.xid
            self._asked_at = self._clock()
        self._know((queue, seen.level), min(seen.first, self.settled))

    def _know(self, level: Level, begin: int) -> None:
        self.levels[level] = max(begin, self.levels.get(level, 0))

    def unsettled(self) -> int:
        """Return the xid whose end is overdue, or 0. Only the database's locks tell whether the
        transaction that holds it back may have a seat."""
        now = self._clock()
        if self._settles is None or now - self._asked_at < Tuning.begin_ask_seconds:
            return 0
        self._asked_at = now
        return self._settles[1]

    def asks(self) -> bool:
        """Return whether to ask, with this claim, which begins workers share."""
        now = self._clock()
        if now - self._asked_shared_at < Tuning.begin_ask_seconds:
            return False
        self._asked_shared_at = now
        return True

    def ranges(self, queues: Iterable[str]) -> list[Range]:
        """Divide these queues into ranges, in order. The first one of each queue has all levels
        below those that are known."""
        known = {queue: [_BELOW_ALL] for queue in queues}
        for queue, level in sorted(self.levels):
            if queue in known:
                known[queue].append(level)
        return [
            Range(
                number,
                level,
                until,
                self.levels.get((queue, level), 0),
                self.shared.get((queue, level), 0),
            )
            for number, (queue, levels) in enumerate(known.items(), 1)
            for level, until in pairwise([*levels, _ABOVE_ALL])
        ]
