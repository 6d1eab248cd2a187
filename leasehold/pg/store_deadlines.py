"""Store operations on deadlines."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from psycopg.types.json import Jsonb

from leasehold.model.deadline import Breach, DueLevel, Level
from leasehold.pg.pool import Pool
from leasehold.ports import Now, Rows, Swept

_LISTED = (
    "id level name state due_at closed_at late_seconds job_id schedule since until job_state "
    "on_breach callback_job key"
)
_UNHANDLED = "id level name task callback_job why"


class DeadlineOperations:
    _pool: Pool

    async def sweep(self, limit: int, now: Now) -> Swept:
        rows = await self._pool.fetch("deadline/sweep", {"limit": limit, "now": now})
        breaches = tuple(Breach(*row[2:]) for row in rows if row[2] is not None)
        return Swept(breaches, rows[0][0])

    async def start_deadlines(
        self, node: UUID, job: UUID, token: int, now: Now
    ) -> tuple[DueLevel, ...]:
        params = {"node": node, "job": job, "token": token, "now": now}
        rows = await self._pool.fetch("deadline/start", params)
        return tuple(DueLevel(*row) for row in rows)

    async def arm_deadline(
        self, deadline: UUID, name: str, levels: Sequence[Level], now: Now
    ) -> tuple[UUID, bool]:
        wanted = Jsonb([level.as_json() for level in levels])
        params = {"id": deadline, "name": name, "levels": wanted, "now": now}
        found, created = (await self._pool.fetch("deadline/arm", params))[0]
        return found, created

    async def end_deadline(self, deadline: UUID, verdict: str, now: Now) -> str | None:
        params = {"id": deadline, "verdict": verdict, "now": now}
        state: str | None = (await self._pool.fetch("deadline/end", params))[0][0]
        return state

    async def find_deadline(self, name: str) -> UUID | None:
        rows = await self._pool.fetch("deadline/find", {"name": name})
        return rows[0][0] if rows else None

    async def prune_deadlines(self, days: int, limit: int, now: Now) -> int:
        params = {"days": days, "limit": limit, "now": now}
        return int((await self._pool.fetch("deadline/prune", params))[0][0])

    async def deadlines(self, state: str | None, name: str | None, limit: int) -> Rows:
        params = {"state": state, "name": name, "limit": limit}
        rows = await self._pool.fetch("deadline/list", params)
        return [dict(zip(_LISTED.split(), row, strict=True)) for row in rows]

    async def unhandled_breaches(self, days: int, limit: int, now: Now) -> Rows:
        params = {"days": days, "limit": limit, "now": now}
        rows = await self._pool.fetch("deadline/unhandled", params)
        return [dict(zip(_UNHANDLED.split(), row, strict=True)) for row in rows]
