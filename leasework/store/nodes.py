"""Nodes and elections: the operations of the guard, the elector and the rescuer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from leasework.model.lease import Seen
from leasework.pg.connection.fast.link import Row
from leasework.store.operation import Now, Operations, Term, operation, value


class NodeIdentity(Struct, frozen=True):
    """What a process registers about itself."""

    id: UUID
    app: str
    release: str
    host: str
    pid: int
    version: str
    executes: bool
    tasks: tuple[str, ...]
    queues: dict[str, int]
    """Queue name → its slots."""
    halted: bool = False
    """It was halted under its previous identity, and stays so."""
    defines: bool = False
    """Its code has schedules."""

    @property
    def worker_id(self) -> str:
        """``host:pid:short-id``, as in every view and log line."""
        return f"{self.host}:{self.pid}:{str(self.id)[-6:]}"


class Signal(NamedTuple):
    """A signal about a running job."""

    job: UUID
    token: int
    kind: str


class NodeSeen(NamedTuple):
    """A node's row as one heartbeat showed it."""

    id: UUID
    seen: Seen
    app: str
    release_number: int
    """0: it defines no schedules."""


class Heartbeat(NamedTuple):
    """The answer of one heartbeat."""

    node_renewed: bool
    led: frozenset[str]
    """The leaderships that it renewed."""
    leaders: dict[str, Seen]
    nodes: tuple[NodeSeen, ...]
    signals: tuple[Signal, ...]
    at: datetime
    """The database's time, of which a jump is reported. It decides nothing."""
    halted: bool = False
    """A person has halted this node: it must claim nothing."""
    settled: int = 0
    muted: bool = False
    """The server's queue of notifications is half full, so that none is sent."""
    paused: frozenset[tuple[str, str]] = frozenset()
    """The queues and tasks that people have paused: (``queue`` or ``task``, name)."""


class LockSeen(Struct, frozen=True):
    """A lock as one read showed it."""

    seen: Seen
    first: UUID | None
    """The node whose turn it is, as of before the read."""
    settled: int
    """See ``Timeline.settled``."""


def _heartbeat(rows: list[Row]) -> Heartbeat:
    renewed, led, leaders, nodes, signals, timeline, at, halted, settled, muted, paused = rows[0]
    return Heartbeat(
        node_renewed=renewed,
        led=frozenset(led),
        leaders={
            name: Seen(UUID(holder) if holder else None, term, seq, lease, timeline)
            for name, holder, term, seq, lease in leaders
        },
        nodes=tuple(
            NodeSeen(UUID(id_), Seen(UUID(id_), token, seq, lease, timeline), app, number or 0)
            for id_, token, seq, lease, app, number in zip(*nodes, strict=True)
        ),
        signals=tuple(Signal(UUID(job), token, kind) for job, token, kind in signals),
        at=at,
        halted=halted,
        settled=settled,
        muted=muted,
        paused=frozenset((kind, name) for kind, name in paused),
    )


class NodeStore(Operations):
    @operation("node/register")
    async def register(self, node: NodeIdentity, lease_seconds: float, now: Now) -> int:
        """Insert the node. Return its token."""

    @operation("node/heartbeat", answer=_heartbeat)
    async def heartbeat(
        self,
        node: UUID,
        token: int,
        held: Sequence[Term],
        watched: Sequence[str],
        info: dict[str, Any],
        heard: Sequence[Signal],
        timeout: float,
        now: Now,
        settles: int = 0,
    ) -> Heartbeat:
        """Renew the node and ``held``, and read the rest. ``heard``: signals already handled.
        ``settles``: record that this timeline is settled."""

    @operation("node/sleep")
    async def set_sleeping(self, node: UUID, queues: Sequence[str]) -> None: ...

    @operation("node/bury")
    async def bury(self, term: Term, node: UUID, token: int, seq: int) -> str | None:
        """Declare a silent node dead. Return its worker_id, or None if it has renewed."""

    @operation("node/leave")
    async def leave(self, node: UUID, token: int, holds: bool = False) -> bool:
        """End a clean stop. ``holds``: a body may still run under one of the node's leases."""

    @operation("node/certify")
    async def certify(self, node: UUID, timeout: float, *, process: bool = False) -> str | None:
        """Certify that this identity is dead: by the process itself once nothing runs under it, or
        by the parent that gave the identity and saw the process die (``process``: with every
        identity that it took since). Return its worker_id, or None if it had no row."""

    @operation("node/halt")
    async def halt(self, node: UUID, halted: bool) -> str | None:
        """Halt or resume claiming; the node learns it with a heartbeat. Return its worker_id, or
        None if it is gone."""

    @operation("node/drain")
    async def drain(self, app: str, node: UUID | None = None) -> list[tuple[UUID, str]]:
        """Ask the application's workers, or only this ``node``, to drain and end. Return (id,
        worker_id) of those that will. Heartbeats deliver it as a signal of the kind ``drain``,
        whose ``token`` is 1 for one node, and 0 once all were asked."""

    @operation("node/deaths")
    async def deaths(self, limit: int, skip: int = 0) -> list[tuple[UUID, str]]:
        """Return dead nodes with jobs to free, after the first ``skip``: (id, worker_id)."""

    @operation("node/seen", answer=len)
    async def seen(self, worker_id: str | None, now: Now) -> int:
        """Mark this death (None: all deaths) as seen by a person. Return how many were unseen."""

    @operation("node/settle", answer=len)
    async def settle(self, nodes: Sequence[UUID]) -> int:
        """Settle those of these dead nodes that hold no jobs. Return how many."""

    @operation("node/new_epoch")
    async def new_epoch(self, node: UUID, token: int, epoch: int) -> int | None:
        """Raise the node's epoch to ``epoch``, so that claims of earlier ones cannot commit.
        Repeated or late, it changes nothing. Return the current epoch, or None if the node is
        gone."""

    @operation("leader/ensure", answer=value)
    async def ensure_election(self, name: str, lease_seconds: float) -> bool:
        """Create the election's rows. Return True if they existed before and had been deleted. The
        leader's row then names its last holder, which may still believe in its term."""

    @operation("leader/acquire")
    async def acquire(
        self,
        name: str,
        node: NodeIdentity,
        seen: Seen,
        lease_seconds: float,
        timeout: float,
        now: Now,
    ) -> int | None:
        """Compare and swap. Return the new term, or None if the row was not as ``seen``."""

    @operation("leader/resign")
    async def resign(self, term: Term, node: UUID, timeout: float, now: Now) -> bool: ...

    @operation("bid/place")
    async def place_bid(
        self, name: str, node: UUID, wait: bool, timeout: float, now: Now
    ) -> LockSeen | None:
        """Read a lock and, with ``wait``, take one place in its queue, which an acquisition gives
        up. Return None if the lock has no rows yet."""

    @operation("bid/drop")
    async def drop_bid(self, name: str, node: UUID) -> bool: ...
