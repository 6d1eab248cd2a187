"""Store operations on nodes and leases, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from leasework.errors import QueryFailed
from leasework.model.lease import Seen
from leasework.store.nodes import Heartbeat, LockSeen, NodeIdentity, NodeSeen, NodeStore, Signal
from leasework.store.operation import Now, Term
from leasework_lab.sim.rows import LeaderRow, NodeRow, SimDatabase, TermRow

NOBODY_KNOWN = UUID(int=0)
"""Holds a lease whose real holder is unknown."""


class SimNodes(NodeStore):
    db: SimDatabase

    async def register(self, node: NodeIdentity, lease_seconds: float, now: Now) -> int:
        db = self.db
        if node.id in db.nodes:
            raise QueryFailed("a node of this id is there", got=str(node.id))
        moment = db.at(now)
        db.releases.setdefault((node.app, node.release), len(db.releases) + 1)
        row = NodeRow(node, db.new_token(), lease_seconds, moment, moment)
        row.halted = node.halted
        db.nodes[node.id] = row
        return row.token

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
        db = self.db
        settled = db.settled  # as before
        if settles == db.timeline:
            db.settled = settles
        moment = db.at(now)
        # the answer has the earlier rows: all parts of a statement see one snapshot
        leaders = {
            name: self._leader_seen(name)
            for name in watched
            if name in db.leaders and name in db.fences
        }
        nodes = tuple(self._node_seen(row) for row in db.nodes.values())
        me = db.nodes.get(node)
        renewed = me is not None and me.token == token
        led = set()
        if renewed and me:
            me.seq, me.renewed_at, me.info = me.seq + 1, moment, info
            for term in held:
                row = db.leaders.get(term.leader)
                if row and row.node == node and row.token == term.token:
                    row.seq, row.renewed_at = row.seq + 1, moment
                    led.add(term.leader)
        for job, tok, kind in heard:
            if db.signals.get((node, job, kind)) == tok:
                del db.signals[node, job, kind]
        signals = tuple(
            Signal(job, tok, kind) for (of, job, kind), tok in db.signals.items() if of == node
        )
        halted = renewed and me is not None and me.halted
        return Heartbeat(renewed, frozenset(led), leaders, nodes, signals, moment, halted, settled)

    def _leader_seen(self, name: str) -> Seen:
        row = self.db.leaders[name]
        return Seen(row.node, row.token, row.seq, row.lease_seconds, self.db.timeline)

    def _node_seen(self, row: NodeRow) -> NodeSeen:
        """What a heartbeat shows of a node, created once per state of the node."""
        me = row.identity
        number = self.db.releases[me.app, me.release] if me.defines else 0
        lease = (row.token, row.seq, row.lease_seconds, self.db.timeline)
        state = (*lease, number)
        if row.shown is None or row.shown[0] != state:
            row.shown = state, NodeSeen(me.id, Seen(me.id, *lease), me.app, number)
        return row.shown[1]

    async def set_sleeping(self, node: UUID, queues: Sequence[str]) -> None:
        if row := self.db.nodes.get(node):
            row.sleeping = frozenset(queues)

    async def bury(self, term: Term, node: UUID, token: int, seq: int) -> str | None:
        row = self.db.nodes.get(node)
        if row is None or (row.token, row.seq) != (token, seq):
            return None
        if not self.db.fenced(term.leader, term.token):
            return None
        left = bool(row.info.get("left"))
        worker_id = self.db.remove_node(node, "left" if left else "died")
        for name in self.db.free_leases(node):
            self.db.notify(f"e:{name}")
        return "" if left else worker_id

    async def leave(self, node: UUID, token: int, holds: bool = False) -> bool:
        row = self.db.nodes.get(node)
        if row is None or row.token != token:
            return False
        if holds:
            row.info["left"] = True
            return False
        self.db.remove_node(node, "left")
        for name in self.db.free_leases(node):
            self.db.notify(f"e:{name}")
        return True

    async def certify(self, node: UUID, timeout: float, *, process: bool = False) -> str | None:
        db = self.db
        dead = {
            row.identity.id: bool(row.info.get("left"))
            for row in sorted(db.nodes.values(), key=lambda row: row.identity.id)
            if row.identity.id == node or (process and row.info.get("assigned") == str(node))
        }
        hows = {True: "left", False: "died"} if process else {True: "fenced", False: "fenced"}
        names = [db.remove_node(identity, hows[left]) for identity, left in dead.items()]
        for name in db.free_leases(node, *dead):
            db.notify(f"e:{name}")
        if dead:
            db.notify("d:")
        return names[-1] if names else None

    async def halt(self, node: UUID, halted: bool) -> str | None:
        row = self.db.nodes.get(node)
        if row is None:
            return None
        row.halted = halted
        self.db.notify(f"c:{node}")
        return row.identity.worker_id

    async def drain(self, app: str, node: UUID | None = None) -> list[tuple[UUID, str]]:
        db = self.db
        asked = [
            (one, row.identity.worker_id)
            for one, row in db.nodes.items()
            if (row.identity.app == app if node is None else one == node)
            and row.info.get("drains") is True
        ]
        for one, _ in asked:
            before = db.signals.get((one, one, "drain"), 1)
            db.signals[one, one, "drain"] = 0 if node is None else before
            db.notify(f"c:{one}")
        return asked

    async def deaths(self, limit: int, skip: int = 0) -> list[tuple[UUID, str]]:
        waiting = [(n, d) for n, d in self.db.deaths.items() if not d.settled]
        waiting.sort(key=lambda pair: (pair[1].died_at, pair[0]))
        return [(node, death.worker_id) for node, death in waiting[skip : skip + limit]]

    async def seen(self, worker_id: str | None, now: Now) -> int:
        unseen = [d for d in self.db.deaths.values() if d.how == "died" and not d.seen_at]
        chosen = [d for d in unseen if worker_id in (None, d.worker_id)]
        for death in chosen:
            death.seen_at = self.db.at(now)
        return len(chosen)

    async def settle(self, nodes: Sequence[UUID]) -> int:
        held = {job.node for job in self.db.held_by(nodes)}
        free = [node for node in nodes if node not in held]
        found = [d for n, d in self.db.deaths.items() if n in free and not d.settled]
        for death in found:
            death.settled = True
        for node in free:
            self.db.claimed_to.pop(node, None)
        return len(found)

    async def new_epoch(self, node: UUID, token: int, epoch: int) -> int | None:
        row = self.db.nodes.get(node)
        if row is None or row.token != token:
            return None
        row.epoch = max(row.epoch, epoch)
        return row.epoch

    # -- elections -------------------------------------------------------------------------------
    async def ensure_election(self, name: str, lease_seconds: float) -> bool:
        db = self.db
        last = max((token for of, token in db.terms if of == name), default=0)
        there = db.leaders.get(name)
        highest = max(last, db.fences.get(name, 0), there.token if there else 0)
        made = there is None or name not in db.fences
        db.fences.setdefault(name, highest)
        if there is None:
            row = db.leaders[name] = LeaderRow(highest, lease_seconds)
            if highest:
                # as the last holder's, who may still believe that it holds it
                row.node = db.terms[name, last].node if last else NOBODY_KNOWN
                db.sequence += 1
                row.seq = db.sequence << 32
                leases = [node.lease_seconds for node in db.nodes.values()]
                row.lease_seconds = max([lease_seconds, *leases])
        return highest > 0 and made

    async def acquire(
        self,
        name: str,
        node: NodeIdentity,
        seen: Seen,
        lease_seconds: float,
        timeout: float,
        now: Now,
    ) -> int | None:
        db = self.db
        row = db.leaders.get(name)
        if row is None or node.id not in db.nodes or self._changed(name, seen):
            return None
        token = self._next_term(row)
        if db.fences.get(name, token) >= token:
            raise QueryFailed("the fence row of this election is missing or ahead", got=name)
        if (name, token) in db.terms:
            raise QueryFailed("a term of this token was there before", got=(name, token))
        moment = db.at(now)
        row.node, row.token, row.seq = node.id, token, row.seq + 1
        row.lease_seconds, row.acquired_at, row.renewed_at = lease_seconds, moment, moment
        db.fences[name] = token
        if name.startswith("lock:"):
            db.terms = {key: term for key, term in db.terms.items() if key[0] != name}
            db.bids = [bid for bid in db.bids if bid != (name, node.id)]
        db.terms[name, token] = TermRow(name, token, node.id, node.worker_id, moment)
        return token

    def _next_term(self, row: LeaderRow) -> int:
        return max(row.token + 1, self.db.timeline - 1 << 32)

    def _changed(self, name: str, seen: Seen) -> bool:
        row = self.db.leaders[name]
        now = (row.node, row.token, row.seq, self.db.timeline)
        return now != (seen.node, seen.token, seen.seq, seen.timeline)

    async def resign(self, term: Term, node: UUID, timeout: float, now: Now) -> bool:
        row = self.db.leaders.get(term.leader)
        if row is None or (row.node, row.token) != (node, term.token):
            return False
        row.node, row.seq = None, row.seq + 1
        if not term.leader.startswith("lock:"):
            self.db.notify(f"e:{term.leader}")
        elif (first := self._first(term.leader, now)) is not None:
            self.db.notify(f"l:{first} {row.token} {row.seq} {term.leader}")
        return True

    # -- the queue of a lock ---------------------------------------------------------------------
    def _renewed(self, node: UUID, now: datetime) -> bool:
        row = self.db.nodes[node]
        return row.renewed_at > now - 2 * timedelta(seconds=row.lease_seconds)

    def _first(self, name: str, now: Now) -> UUID | None:
        at = self.db.at(now)
        return next((b for lock, b in self.db.bids if lock == name and self._renewed(b, at)), None)

    async def place_bid(
        self, name: str, node: UUID, wait: bool, timeout: float, now: Now
    ) -> LockSeen | None:
        first = self._first(name, now)
        if wait and node in self.db.nodes and (name, node) not in self.db.bids:
            self.db.bids.append((name, node))
        if name not in self.db.leaders or name not in self.db.fences:
            return None
        return LockSeen(self._leader_seen(name), first, self.db.settled)

    async def drop_bid(self, name: str, node: UUID) -> bool:
        there = (name, node) in self.db.bids
        self.db.bids = [bid for bid in self.db.bids if bid != (name, node)]
        return there
