"""The store's operations on nodes and leases that need more than a declaration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from leasehold.model.lease import Seen
from leasehold.pg.connection.encodings import fetch_told
from leasehold.pg.connection.pool import Pool
from leasehold.ports import (
    Heartbeat,
    LockSeen,
    NodeIdentity,
    NodeSeen,
    NodeStore,
    Now,
    Signal,
    Term,
)


class PgNodes(NodeStore):
    _pool: Pool

    async def register(self, node: NodeIdentity, lease_seconds: float, now: Now) -> int:
        params = {
            "node": node.id,
            "app": node.app,
            "release": node.release,
            "host": node.host,
            "pid": node.pid,
            "version": node.version,
            "executes": node.executes,
            "tasks": list(node.tasks),
            "queues": Jsonb(node.queues),
            "lease_seconds": lease_seconds,
            "halted": node.halted,
            "now": now,
        }
        rows = await self._pool.fetch("node/register", params)
        return int(rows[0][0])

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
        params = {
            "node": node,
            "token": token,
            "names": [term.leader for term in held],
            "terms": [term.token for term in held],
            "watched": list(watched),
            "info": Jsonb(info),
            "heard": list(heard),
            "now": now,
        }
        rows = await fetch_told(self._pool, "node/heartbeat", params, timeout)
        renewed, led, leaders, nodes, signals, timeline, at, halted = rows[0]
        return Heartbeat(
            node_renewed=renewed,
            led=frozenset(led),
            leaders={
                name: Seen(UUID(holder) if holder else None, term, seq, lease, timeline)
                for name, holder, term, seq, lease in leaders
            },
            nodes=tuple(
                NodeSeen(UUID(id_), Seen(UUID(id_), tok, seq, lease, timeline), app, number or 0)
                for id_, tok, seq, lease, app, number in zip(*nodes, strict=True)
            ),
            signals=tuple(Signal(UUID(job), tok, kind) for job, tok, kind in signals),
            at=at,
            halted=halted,
        )

    async def acquire(
        self,
        name: str,
        node: NodeIdentity,
        seen: Seen,
        lease_seconds: float,
        timeout: float,
        now: Now,
    ) -> int | None:
        params = {
            "name": name,
            "node": node.id,
            "host": node.host,
            "pid": node.pid,
            "seen_node": seen.node,
            "seen_token": seen.token,
            "seen_seq": seen.seq,
            "seen_timeline": seen.timeline,
            "lease_seconds": lease_seconds,
            "now": now,
        }
        rows = await self._pool.fetch("leader/acquire", params, timeout)
        return int(rows[0][0]) if rows else None

    async def place_bid(self, name: str, node: UUID, wait: bool, timeout: float) -> LockSeen | None:
        params = {"name": name, "node": node, "wait": wait}
        rows = await self._pool.fetch("bid/place", params, timeout)
        if not rows:
            return None
        holder, token, seq, lease, timeline, first = rows[0]
        return LockSeen(Seen(holder, token, seq, lease, timeline), first)
