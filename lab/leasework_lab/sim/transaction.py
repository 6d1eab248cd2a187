"""A user's transaction in the simulation: a job's effect and its completion in one commit."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from leasework.errors import LostClaim, QueryFailed, Unavailable
from leasework.model.job import JobRequest
from leasework_lab.sim.enqueue import new_row
from leasework_lab.sim.link import Link
from leasework_lab.sim.rows import JobRow, SimDatabase

IDLE_SECONDS = 3.0
"""The server ends a transaction that is idle for longer, which frees a hung process's locks."""
CALL_SECONDS = 5.0
LATEST_SECONDS = 20.0
"""How long the transaction of a late enqueue may stay open until the server ends it."""


class Transaction:
    """A transaction on its own connection. ``effects``: the table it writes to: (job, token)."""

    def __init__(self, db: SimDatabase, link: Link, effects: list[tuple[UUID, int]]) -> None:
        self._db = db
        self._link = link
        self._effects = effects
        self._row: JobRow | None = None
        self._open = True

    async def complete(self, job: UUID, node: UUID, token: int) -> None:
        """Lock and complete the job; visible after the commit. Raises LostClaim."""
        await self._link.send(lambda: self._complete(job, node, token), CALL_SECONDS)

    def _complete(self, job: UUID, node: UUID, token: int) -> None:
        row = self._db.claimed(job, token, node)
        if row is None or job in self._db.locked:
            self._open = False
            raise LostClaim("the claim was lost", got=str(job))
        self._row = row
        self._db.locked.add(job)
        self._link.server.transactions.add(self)
        server = self._link.server
        server.loop.call_later(IDLE_SECONDS, self.abort, context=server.context)

    async def commit(self) -> None:
        """Raises Unavailable if the connection, the transaction or the answer is lost."""
        await self._link.send(self._commit, CALL_SECONDS)

    def _commit(self) -> None:
        row = self._row
        if not self._open or row is None or row.claim_token is None:
            raise Unavailable("the transaction was ended by the server", sent=True)
        self._effects.append((row.id, row.claim_token))
        began = row.started_at or row.claimed_at
        self._db.finish(row, "completed", self._db.clock(), started_at=began, keep=row.history)
        self.abort()

    def abort(self) -> None:
        """Free its locks and discard what was not committed."""
        self._open = False
        self._link.server.transactions.discard(self)
        if self._row is not None:
            self._db.locked.discard(self._row.id)
            self._row = None


class LateEnqueue:
    """A user's transaction that enqueues a job and commits some time later."""

    def __init__(self, db: SimDatabase, link: Link, job_id: UUID, request: JobRequest[Any]) -> None:
        self._db = db
        self._link = link
        self._job_id = job_id
        self._request = request
        self._xid: int | None = None
        self._seat = 0

    async def begin(self) -> None:
        await self._link.send(self._begin, CALL_SECONDS)

    def _begin(self) -> None:
        self._xid = self._db.new_xid()
        self._db.open_xids.add(self._xid)
        self._seat = self._db.new_seat()
        server = self._link.server
        server.transactions.add(self)
        server.loop.call_later(LATEST_SECONDS, self.abort, context=server.context)

    async def commit(self) -> None:
        """Raises Unavailable if the connection, the transaction or the answer is lost."""
        await self._link.send(self._commit, CALL_SECONDS)

    def _commit(self) -> None:
        if self._xid is None:
            raise Unavailable("the transaction was ended by the server", sent=True)
        moment = self._db.clock()
        row = new_row(self._job_id, self._request, moment, moment)
        self._db.jobs[self._job_id] = row
        row.seat = self._seat
        self._db.wake([row.queue])
        self.abort()

    def abort(self) -> None:
        if self._xid is not None:
            self._db.open_xids.discard(self._xid)
            self._link.server.transactions.discard(self)
            self._xid = None


class OnTransaction:
    """``ctx.complete(on=transaction)``."""

    async def assert_mine(self, connection: Any, job: UUID, node: UUID, token: int) -> None:
        await connection.complete(job, node, token)

    async def complete(
        self, connection: Any, job: UUID, node: UUID, token: int, result: Any
    ) -> None:
        await connection.complete(job, node, token)

    async def record_step(self, *_: Any) -> None:
        raise QueryFailed("the simulation has no steps")
