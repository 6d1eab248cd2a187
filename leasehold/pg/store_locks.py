"""Store operations on the names of advisory locks, and on who holds what."""

from __future__ import annotations

from leasehold.errors import Conflict
from leasehold.pg.pool import Pool
from leasehold.ports import Now, Rows

_COLUMNS = (
    "locktype classid objid objsubid lock_key name pid mode granted waitstart "
    "state query job_id client since application_name token"
)
_LOOKS = 5


class LockOperations:
    _pool: Pool

    async def note_lock(self, kind: str, key: int, name: str, now: Now) -> str:
        params = {"kind": kind, "key": key, "name": name, "now": now}
        for _ in range(_LOOKS):
            rows = await self._pool.fetch("lock/note", params)
            if rows:
                noted: str = rows[0][0]
                return noted
        raise Conflict("the name of a lock was changed by others again and again", got=name)

    async def locks(self, limit: int) -> Rows:
        rows = await self._pool.fetch("lock/list", {"limit": limit})
        return [dict(zip(_COLUMNS.split(), row, strict=True)) for row in rows]
