"""Nodes and elections: what the guard, the elector and the rescuer ask of the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from leasehold.model.lease import Seen
from leasehold.ports.common import Now, Term
from leasehold.ports.operation import Operations, count, operation, value
from leasehold.ports.rows import DeathView


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What a process says of itself when it registers."""

    id: UUID
    app: str
    release: str
    host: str
    pid: int
    version: str
    executes: bool
    tasks: tuple[str, ...]
    queues: dict[str, int]
    """Queue name → how many jobs at once."""
    halted: bool = False
    """It goes on under another identity, and had been told to claim nothing."""

    @property
    def worker_id(self) -> str:
        """``host:pid:short-id``, as in every view and log line."""
        return f"{self.host}:{self.pid}:{str(self.id)[-6:]}"


@dataclass(frozen=True, slots=True)
class Signal:
    """Something that somebody asks of a running job."""

    job: UUID
    token: int
    kind: str


class NodeSeen(NamedTuple):
    """Another node's row as one heartbeat showed it."""

    id: UUID
    seen: Seen
    app: str
    release_number: int


class Heartbeat(NamedTuple):
    """The answer of one heartbeat."""

    node_renewed: bool
    led: frozenset[str]
    """The leaderships that were renewed."""
    leaders: dict[str, Seen]
    nodes: tuple[NodeSeen, ...]
    signals: tuple[Signal, ...]
    at: datetime
    """The database's time. It decides nothing: a jump of it is told."""
    halted: bool = False
    """A person wants this node to claim nothing."""


@dataclass(frozen=True, slots=True)
class LockSeen:
    """A lock as one look showed it."""

    seen: Seen
    first: UUID | None
    """Whose turn it is; as it was before the look."""


class NodeStore(Operations):
    async def register(self, node: NodeIdentity, lease_seconds: float, now: Now) -> int:
        """Insert the node; its token."""

    async def heartbeat(
        self,
        node: UUID,
        token: int,
        held: Sequence[Term],
        watched: Sequence[str],
        info: dict[str, Any],
        heard: Sequence[UUID],
        timeout: float,
        now: Now,
    ) -> Heartbeat:
        """Renew the node and ``held``, and see the rest. ``heard``: signals taken in before."""

    @operation("node/sleep")
    async def set_sleeping(self, node: UUID, queues: Sequence[str]) -> None: ...

    @operation("node/bury")
    async def bury(self, term: Term, node: UUID, token: int, seq: int) -> str | None:
        """Declare dead what was observed silent; its worker_id, or None if it moved."""

    @operation("node/leave")
    async def leave(self, node: UUID, token: int) -> bool: ...

    @operation("node/certify")
    async def certify(self, node: UUID, timeout: float, *, process: bool = False) -> str | None:
        """This identity is dead, says who knows it: the process itself when nothing runs under
        it any more, or (``process``: with every identity that it took since) the parent that
        gave it and saw it die. Its worker_id, or None if it had no row."""

    @operation("node/halt")
    async def halt(self, node: UUID, halted: bool) -> str | None:
        """It shall claim nothing, or claim again: its heartbeats bring that back. Its worker_id,
        or None when it is gone."""

    @operation("node/drain")
    async def drain(self, app: str, node: UUID | None = None) -> list[tuple[UUID, str]]:
        """Ask the application's workers, or this ``node`` alone, to drain and end: (id,
        worker_id) of those that will. Their heartbeats bring it back as a signal of the kind
        ``drain``, whose ``token`` is 1 for one node alone, and 0 once all were asked."""

    @operation("node/deaths")
    async def deaths(self, limit: int, skip: int = 0) -> list[tuple[UUID, str]]:
        """Dead nodes whose jobs were not all freed, but for the first ``skip``: (id, worker_id)."""

    @operation("node/died")
    async def died(self, seconds: float, limit: int, now: Now) -> list[DeathView]:
        """Nodes that died within that time and that no person has seen yet, the newest first."""

    @operation("node/seen", answer=count)
    async def seen(self, worker_id: str | None, now: Now) -> int:
        """A person has seen that this node died (None: all that did); how many were unseen."""

    @operation("node/settle", answer=count)
    async def settle(self, nodes: Sequence[UUID]) -> int:
        """All that these dead nodes held is free: of how many is that so?"""

    @operation("node/new_epoch")
    async def new_epoch(self, node: UUID, token: int, epoch: int) -> int | None:
        """After this no claim of an epoch before ``epoch`` commits; the epoch that the node has
        now. Done again, or late, it changes nothing. None: the node is gone."""

    @operation("leader/ensure", answer=value)
    async def ensure_election(self, name: str, lease_seconds: float) -> bool:
        """Make its rows; True when they had been there before and were deleted. A leader's row
        is made again as its last holder's, who may still believe in it."""

    async def acquire(
        self,
        name: str,
        node: NodeIdentity,
        seen: Seen,
        lease_seconds: float,
        timeout: float,
        now: Now,
    ) -> int | None:
        """Compare-and-swap; the new term, or None when the row was not as ``seen``."""

    @operation("leader/resign")
    async def resign(self, term: Term, node: UUID, timeout: float) -> bool: ...

    async def place_bid(self, name: str, node: UUID, wait: bool, timeout: float) -> LockSeen | None:
        """Look at a lock, and with ``wait`` take a place in its queue, once; an acquisition gives
        it up. None: the lock has no rows yet."""

    @operation("bid/drop")
    async def drop_bid(self, name: str, node: UUID) -> bool: ...
