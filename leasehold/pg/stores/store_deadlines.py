"""The store's operations on deadlines that need more than a declaration."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from psycopg.types.json import Jsonb

from leasehold.model.deadline import Breach, Level
from leasehold.pg.connection.pool import Pool
from leasehold.ports import DeadlineStore, Now, Swept


class PgDeadlines(DeadlineStore):
    _pool: Pool

    async def sweep(self, limit: int, now: Now) -> Swept:
        rows = await self._pool.fetch("deadline/sweep", {"limit": limit, "now": now})
        breaches = tuple(Breach(*row[2:]) for row in rows if row[2] is not None)
        return Swept(breaches, rows[0][0])

    async def arm_deadline(
        self, deadline: UUID, name: str, levels: Sequence[Level], now: Now
    ) -> tuple[UUID, bool]:
        wanted = Jsonb([level.as_json() for level in levels])
        params = {"id": deadline, "name": name, "levels": wanted, "now": now}
        found, created = (await self._pool.fetch("deadline/arm", params))[0]
        return found, created
