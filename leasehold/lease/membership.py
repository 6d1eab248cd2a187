"""This process's node, and the other nodes as it sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from leasehold.model.lease import Lease, Watch
from leasehold.ports import NodeIdentity, NodeSeen


@dataclass
class Membership:
    """The lease of this process's node. Each claim and each start asks ``valid`` first."""

    identity: NodeIdentity
    lease: Lease
    epoch: int = 1
    timeline: int = 0
    """The server's at the last heartbeat; 0 before the first."""

    def valid(self, boot_now: float) -> bool:
        return self.lease.valid(boot_now)

    @property
    def token(self) -> int:
        return self.lease.token or 0

    def failed_over(self, timeline: int) -> bool:
        """Does another server answer than at the last heartbeat? Before the first heartbeat: than
        at the registration, whose token shows the timeline."""
        before, self.timeline = self.timeline or (self.token >> 32) + 1, timeline
        return before != timeline


@dataclass
class Others:
    """The nodes as the last heartbeat showed them, and since when each is silent."""

    watches: dict[UUID, tuple[NodeSeen, Watch]] = field(default_factory=dict)

    def observe(self, nodes: tuple[NodeSeen, ...], me: UUID, received_at: float) -> bool:
        """True if a node came or went."""
        fresh: dict[UUID, tuple[NodeSeen, Watch]] = {}
        for node in nodes:
            if node.id == me:
                continue
            old = self.watches.get(node.id)
            watch = old[1] if old else Watch()
            watch.observe(node.seen, received_at)
            fresh[node.id] = (node, watch)
        changed = fresh.keys() != self.watches.keys()
        # replaced as a whole: another thread may be reading the old one
        self.watches = fresh
        return changed

    def silent(self, boot_now: float) -> list[NodeSeen]:
        return [node for node, watch in self.watches.values() if boot_now >= watch.silent_at()]
