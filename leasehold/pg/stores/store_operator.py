"""The store's operations for operators that need more than a declaration."""

from __future__ import annotations

from leasehold.errors import Conflict
from leasehold.pg.connection.pool import Pool, check_numbers
from leasehold.ports import LockStore, Now, OperatorStore

_LOOKS = 5


class PgOperator(OperatorStore, LockStore):
    _pool: Pool

    async def check_schema(self) -> None:
        number, min_known = (await self._pool.fetch("status/schema", {}))[0]
        check_numbers(number, min_known)

    async def note_lock(self, kind: str, key: int, name: str, now: Now) -> str:
        params = {"kind": kind, "key": key, "name": name, "now": now}
        for _ in range(_LOOKS):
            rows = await self._pool.fetch("lock/note", params)
            if rows:
                noted: str = rows[0][0]
                return noted
        raise Conflict("other processes keep changing the name of this lock", got=name)
