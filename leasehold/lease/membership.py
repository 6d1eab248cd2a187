"""What the guard keeps: its own lease, the elections it stands in, and the nodes it watches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from leasehold.errors import LeaseholdError, Unavailable
from leasehold.model.lease import Lease, Phase, Watch
from leasehold.ports import NodeIdentity, NodeSeen, Signal, Term


@dataclass
class Election:
    """One leadership for which this process stands."""

    name: str
    lease: Lease
    not_before: float = 0.0
    """The next try to acquire it; the last one got no answer."""

    @property
    def term(self) -> Term | None:
        token = self.lease.token
        return Term(self.name, token) if self.lease.phase is Phase.HOLDER and token else None


@contextmanager
def acquiring(lease: Lease) -> Iterator[None]:
    """Around an acquisition. Whatever comes of it, the row is observed anew; but where there is no
    answer, as while the transaction of a duty holds the fence, what was seen stays: the next try
    compares the row with it again, and need not wait for a whole lease."""
    try:
        yield
    except Unavailable:
        raise
    except BaseException:
        lease.watch.forget()
        raise
    lease.watch.forget()


class Host:
    """The node, as the guard sees it. Called in the guard's thread; must not wait. What it does not
    override is that of a node without jobs, schedules and a loop to watch."""

    @abstractmethod
    def new_identity(self) -> NodeIdentity:
        """Under which the node takes part from now on."""

    def joined(self, identity: NodeIdentity) -> None:
        """The node has a lease: work may be claimed under this identity."""

    def refused(self, error: LeaseholdError) -> None:
        """The server cannot serve us: no lease, and none to be had by waiting."""

    def fenced(self, why: str) -> None:
        """The lease is lost: stop claiming, cancel what runs."""

    def quiet(self) -> bool:
        """Nothing of the lost identity runs any more."""
        return True

    def unrecorded(self) -> int:
        """Outcomes that are not written yet."""
        return 0

    def grace_over(self) -> None:
        """The grace is over and something still runs: a worker process ends here; a web process
        goes on under a new identity, and what runs can write nothing."""

    def leadership(self, name: str, gained: bool) -> None:
        """A lease was gained or lost."""

    def signals(self, signals: tuple[Signal, ...]) -> None:
        """Somebody asks for something: a job to be cancelled, a stack, the end of the process."""

    def halted(self, halted: bool) -> None:
        """Shall this node claim nothing? Told when it changed."""

    def nodes_changed(self) -> None:
        """Another node became silent, came, went, or the newest release changed."""

    def failed_over(self) -> None:
        """Another server goes on, and may not have heard of the last commits."""

    def loop_lag(self) -> float:
        """Seconds since the user's loop last answered, if it owes an answer; else 0."""
        return 0.0

    def info(self) -> dict[str, Any]:
        """What the process believes of itself, for the node's row."""
        return {}

    def renewed(self) -> None:
        """A renewal succeeded: the watchdog may be set again."""

    async def look_after_jobs(self, until: float) -> None:
        """Take overdue jobs away, with the guard's own connection; not much longer than to
        ``until`` (boot clock): the next call goes on."""


@dataclass
class Membership:
    """This process's node lease. ``valid`` is asked before each claim and each start."""

    identity: NodeIdentity
    lease: Lease
    epoch: int = 1
    timeline: int = 0
    """Of the last heartbeat; 0 before the first."""

    def valid(self, boot_now: float) -> bool:
        return self.lease.valid(boot_now)

    @property
    def token(self) -> int:
        return self.lease.token or 0

    def failed_over(self, timeline: int) -> bool:
        """Is it another one than at the last heartbeat, or at the registration (by the token)?"""
        before, self.timeline = self.timeline or (self.token >> 32) + 1, timeline
        return before != timeline


@dataclass
class Others:
    """The nodes as the last heartbeat showed them, and since when each is silent."""

    watches: dict[UUID, tuple[NodeSeen, Watch]] = field(default_factory=dict)

    def observe(self, nodes: tuple[NodeSeen, ...], me: UUID, received_at: float) -> bool:
        """True when a node came, went or another release leads."""
        fresh: dict[UUID, tuple[NodeSeen, Watch]] = {}
        for node in nodes:
            if node.id == me:
                continue
            old = self.watches.get(node.id)
            watch = old[1] if old else Watch()
            watch.observe(node.seen, received_at)
            fresh[node.id] = (node, watch)
        changed = fresh.keys() != self.watches.keys()
        # swapped as a whole: another thread may be reading the old one
        self.watches = fresh
        return changed

    def silent(self, boot_now: float) -> list[NodeSeen]:
        return [node for node, watch in self.watches.values() if boot_now >= watch.silent_at()]
