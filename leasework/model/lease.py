"""The lease protocol's state machine, of nodes, leaders and locks (docs/explanation/protocol.md).

    FOLLOWER --(seen unchanged for W, compare-and-swap)--> HOLDER --(deadline, refusal)-->
    STEPPING_DOWN --(everything stopped)--> FOLLOWER

It is pure, and safe because a holder counts its deadline from *before* it asked (``sent_at``), a
candidate its wait from *after* it was told (``received_at``), and the wait is longer than the
trust. Each time is in seconds of this process's CLOCK_BOOTTIME: no other clock is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from leasework.config import Timings, renewal_seconds, wait_seconds


class Phase(StrEnum):
    FOLLOWER = "follower"
    HOLDER = "holder"
    STEPPING_DOWN = "stepping down"


class Seen(NamedTuple):
    """A lease's row as one answer showed it. A compare-and-swap names it."""

    node: UUID | None
    token: int
    seq: int
    lease_seconds: float
    timeline: int


@dataclass(slots=True)
class Watch:
    """How long this process has seen a row unchanged."""

    seen: Seen | None = None
    since: float = 0.0
    """``received_at`` of the first answer that showed it."""
    alive_at: float = 0.0
    """The earliest moment at which its last holder can have been last alive, by what this process
    has seen of the lease. It may have lived for longer."""
    _last: Seen | None = None
    _heard_at: float = 0.0

    def observe(self, seen: Seen, received_at: float) -> None:
        last, self._last = self._last, seen
        heard_at, self._heard_at = self._heard_at, received_at
        renewal = renewal_seconds(seen.lease_seconds)
        if last is None:
            self.alive_at = received_at
        elif (last.node, last.token) != (seen.node, seen.token):
            # told at once, unless no answer came for a while: then it may have been long ago
            self.alive_at = received_at if received_at - heard_at <= 2 * renewal else heard_at
        elif last.seq != seen.seq:
            # the renewals before the last one took their time
            missed = (seen.seq - last.seq - 1) * renewal
            self.alive_at = min(heard_at + max(0.0, missed), received_at)
        if seen != self.seen:
            self.seen = seen
            self.since = received_at

    def forget(self) -> None:
        self.seen = None

    def silent_at(self) -> float:
        """When the row will have been unchanged for W, by the lease that *its holder* stored."""
        return self.since + wait_seconds(self.seen.lease_seconds) if self.seen else float("inf")


@dataclass(slots=True)
class Timeline:
    """The server's current timeline, as this process sees it. All its leases share it."""

    number: int = 0
    since: float = 0.0
    """``received_at`` of the first answer from it."""
    longest: float = 0.0
    """The longest lease, in seconds, that any node is known to use."""
    settled: int = 0
    """The timeline that some process saw for W of the longest lease, as the database says. Nobody
    can still believe in a term that the promotion to it lost."""

    def settles(self, now: float) -> int:
        """Return the timeline to record as settled, or 0."""
        waited = self.longest > 0 and now >= self.since + wait_seconds(self.longest)
        return self.number if waited and self.number != self.settled else 0

    def saw(self, number: int, received_at: float) -> None:
        if number != self.number:
            self.number, self.since = number, received_at


@dataclass(slots=True)
class Lease:
    """One process's view of one lease."""

    me: UUID
    timings: Timings
    jitter: float = 0.0
    """Seconds that this process waits after the moment when it may act."""
    phase: Phase = Phase.FOLLOWER
    token: int | None = None
    deadline: float = 0.0
    why_down: str = ""
    since: float = 0.0
    """When the term was asked for."""
    ended_at: float = 0.0
    """When the process stopped believing in the term, however late it noticed."""
    watch: Watch = field(default_factory=Watch)
    timeline: Timeline = field(default_factory=Timeline)

    def valid(self, now: float) -> bool:
        """Return whether this process may act as the holder now. Ask at each action."""
        return self.phase is Phase.HOLDER and now < self.deadline

    def acquired(self, token: int, sent_at: float, received_at: float) -> bool:
        """Note that the row is ours under ``token``. Return False if the answer came too late to be
        trusted: we then hold no term, although the row names us, and acquire it again."""
        self.watch.forget()
        if self.phase is not Phase.FOLLOWER or received_at >= sent_at + self.timings.trust:
            return False
        self.phase, self.token, self.since = Phase.HOLDER, token, sent_at
        self.deadline = sent_at + self.timings.trust
        return True

    def renewed(self, token: int, sent_at: float, received_at: float) -> None:
        """Note a renewal. Late answers, and those about another term, are ignored."""
        if not self.valid(received_at) or token != self.token:
            return
        self.deadline = max(self.deadline, sent_at + self.timings.trust)

    def refused(self, token: int, now: float) -> None:
        """Note a renewal that changed no row: another process has it. The term goes down at once,
        and the grace begins now."""
        if self.phase is Phase.HOLDER and token == self.token:
            self._down("refused")
            self.deadline = min(self.deadline, now)

    def expire(self, now: float) -> bool:
        """Take the term down if its deadline has passed. Return True the first time. The grace
        begins now, because a process that was suspended could stop nothing before."""
        if self.phase is Phase.HOLDER and now >= self.deadline:
            self._down("expired")
            self.deadline = now
            return True
        return False

    def step_down(self, why: str) -> None:
        """Give the term up. Resign after the work under it has stopped."""
        if self.phase is Phase.HOLDER:
            self._down(why)

    def stopped(self) -> None:
        """Note that nothing runs under the lost term any more: compete again."""
        if self.phase is Phase.STEPPING_DOWN:
            self.phase, self.token = Phase.FOLLOWER, None

    def overdue(self, now: float) -> bool:
        """Return whether it is still stepping down although the grace is over."""
        return self.phase is Phase.STEPPING_DOWN and now >= self.deadline + self.timings.grace

    def _down(self, why: str) -> None:
        self.phase, self.why_down, self.ended_at = Phase.STEPPING_DOWN, why, self.deadline

    def believed_seconds(self, now: float) -> float:
        """How long the ending term was believed, by this process's own clock. It is for the record,
        which may be written much later."""
        return round(max(min(self.ended_at, now) - self.since, 0.0), 3)

    def observe(self, seen: Seen, received_at: float) -> None:
        """Note the row of an answer. Any change, even of the timeline, restarts the wait."""
        if self.phase is Phase.HOLDER and (seen.token > (self.token or 0)):
            self._down("replaced")
        self.timeline.saw(seen.timeline, received_at)
        self.watch.observe(seen, received_at)

    def may_act_at(self) -> float:
        """Return the moment from which the watched row may be acquired; inf for never.

        At once if no process can believe that it holds the row: it was resigned, or it names this
        process, which holds no term. Otherwise after the row was unchanged for W.

        A token from before a promotion shows that commits may be lost, among them an acquisition
        that no row shows. Its holder last renewed before the promotion, so it has stopped believing
        once the new timeline has been seen for W, whatever happened to the row since. That W is of
        the longest lease, because the lost row's lease is unknown. Once a process has waited for
        it, the timeline is settled, and no other process waits.
        """
        seen = self.watch.seen
        if self.phase is not Phase.FOLLOWER or seen is None:
            return float("inf")
        free_at = self.watch.since
        if seen.node not in (None, self.me):
            free_at = self.watch.silent_at()
        if seen.token >> 32 != seen.timeline - 1 and seen.timeline != self.timeline.settled:
            longest = max(seen.lease_seconds, self.timeline.longest, self.timings.lease)
            free_at = max(free_at, self.timeline.since + wait_seconds(longest))
        return free_at if seen.node == self.me else free_at + self.jitter

    def wants(self, now: float) -> Seen | None:
        """Return the row to compare-and-swap now, or None."""
        return self.watch.seen if now >= self.may_act_at() else None
