"""Store operations on nodes and leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from leasehold.model.lease import Seen
from leasehold.pg.pool import Pool
from leasehold.pg.rows import named
from leasehold.pg.words import fetch_told
from leasehold.ports import Heartbeat, LockSeen, NodeIdentity, NodeSeen, Now, Rows, Signal, Term


class NodeOperations:
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
                for id_, tok, seq, lease, app, number in nodes
            ),
            signals=tuple(Signal(UUID(job), tok, kind) for job, tok, kind in signals),
            at=at,
            halted=halted,
        )

    async def set_sleeping(self, node: UUID, queues: Sequence[str]) -> None:
        await self._pool.fetch("node/sleep", {"node": node, "queues": list(queues)})

    async def bury(self, term: Term, node: UUID, token: int, seq: int) -> str | None:
        params = {
            "leader": term.leader,
            "term": term.token,
            "node": node,
            "token": token,
            "seq": seq,
        }
        rows = await self._pool.fetch("node/bury", params)
        return rows[0][0] if rows else None

    async def leave(self, node: UUID, token: int) -> bool:
        return bool(await self._pool.fetch("node/leave", {"node": node, "token": token}))

    async def certify(self, node: UUID, timeout: float, *, process: bool = False) -> str | None:
        params = {"node": node, "process": process}
        rows = await self._pool.fetch("node/certify", params, timeout)
        worker_id: str | None = rows[0][0]
        return worker_id

    async def halt(self, node: UUID, halted: bool) -> str | None:
        rows = await self._pool.fetch("node/halt", {"node": node, "halted": halted})
        return rows[0][0] if rows else None

    async def drain(self, app: str, node: UUID | None = None) -> list[tuple[UUID, str]]:
        params = {"app": app, "node": node}
        return [(n, w) for n, w in await self._pool.fetch("node/drain", params)]

    async def deaths(self, limit: int, skip: int = 0) -> list[tuple[UUID, str]]:
        rows = await self._pool.fetch("node/deaths", {"limit": limit, "skip": skip})
        return [(node, worker_id) for node, worker_id in rows]

    async def died(self, seconds: float, limit: int, now: Now) -> Rows:
        params = {"seconds": seconds, "limit": limit, "now": now}
        names = "node worker_id app died_at rescued"
        return named(names, await self._pool.fetch("node/died", params))

    async def seen(self, worker_id: str | None, now: Now) -> int:
        return len(await self._pool.fetch("node/seen", {"worker": worker_id, "now": now}))

    async def settle(self, nodes: Sequence[UUID]) -> int:
        return len(await self._pool.fetch("node/settle", {"nodes": list(nodes)}))

    async def new_epoch(self, node: UUID, token: int, epoch: int) -> int | None:
        params = {"node": node, "token": token, "epoch": epoch}
        rows = await self._pool.fetch("node/new_epoch", params)
        return rows[0][0] if rows else None

    async def ensure_election(self, name: str, lease_seconds: float) -> bool:
        params = {"name": name, "lease_seconds": lease_seconds}
        return bool((await self._pool.fetch("leader/ensure", params))[0][0])

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

    async def resign(self, term: Term, node: UUID, timeout: float) -> bool:
        params = {"name": term.leader, "token": term.token, "node": node}
        return bool(await self._pool.fetch("leader/resign", params, timeout))

    async def place_bid(self, name: str, node: UUID, wait: bool, timeout: float) -> LockSeen | None:
        params = {"name": name, "node": node, "wait": wait}
        rows = await self._pool.fetch("bid/place", params, timeout)
        if not rows:
            return None
        holder, token, seq, lease, timeline, first = rows[0]
        return LockSeen(Seen(holder, token, seq, lease, timeline), first)

    async def drop_bid(self, name: str, node: UUID) -> bool:
        return bool(await self._pool.fetch("bid/drop", {"name": name, "node": node}))
