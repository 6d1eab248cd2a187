"""This process's node, and what it knows about the other nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from leasework.model.lease import Lease, Watch
from leasework.store.nodes import NodeIdentity, NodeSeen


@dataclass
class Membership:
    """The lease of this process's node. Each claim and each start of a job checks ``valid``."""

    identity: NodeIdentity
    lease: Lease
    epoch: int = 1
    timeline: int = 0
    """The server's timeline at the last heartbeat. 0: there was none."""

    def valid(self, boot_now: float) -> bool:
        return self.lease.valid(boot_now)

    def covers(self, node: UUID, token: int, now: float) -> bool:
        """Return whether a job may start that ``node`` has claimed under ``token``."""
        return (
            node == self.identity.id
            and self.lease.valid(now)
            # a failover may have lost the claim: drop jobs that still wait
            and token >> 32 >= self.timeline - 1
        )

    @property
    def token(self) -> int:
        return self.lease.token or 0

    def failed_over(self, timeline: int) -> bool:
        """Return whether the server is another one than at the last heartbeat. The first heartbeat
        compares with the registration, whose token contains the timeline."""
        before, self.timeline = self.timeline or (self.token >> 32) + 1, timeline
        return before != timeline


@dataclass
class Others:
    """The other nodes at the last heartbeat, and since when each is silent."""

    watches: dict[UUID, tuple[NodeSeen, Watch]] = field(default_factory=dict)

    def observe(self, nodes: tuple[NodeSeen, ...], me: UUID, received_at: float) -> bool:
        """Return whether a node started or ended."""
        fresh: dict[UUID, tuple[NodeSeen, Watch]] = {}
        for node in nodes:
            if node.id == me:
                continue
            old = self.watches.get(node.id)
            watch = old[1] if old else Watch()
            watch.observe(node.seen, received_at)
            fresh[node.id] = (node, watch)
        changed = fresh.keys() != self.watches.keys()
        # replaced as a whole, because another thread may be reading the old one
        self.watches = fresh
        return changed

    def silent(self, boot_now: float) -> list[NodeSeen]:
        return [node for node, watch in self.watches.values() if boot_now >= watch.silent_at()]
