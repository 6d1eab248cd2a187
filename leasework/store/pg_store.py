"""The Store on PostgreSQL."""

from __future__ import annotations

from leasework.config import Settings
from leasework.errors import Conflict
from leasework.pg.connection.pool import Pool
from leasework.store.execution import PgOperations
from leasework.store.operation import Now
from leasework.store.pg_jobs import PgJobs
from leasework.store.store import Store

_LOOKS = 5


class PgStore(PgOperations, PgJobs, Store):
    """All operations over one pool. Belongs to one event loop."""

    def __init__(
        self, settings: Settings, role: str, connections: int = 1, idle_seconds: float | None = None
    ) -> None:
        self._pool = Pool(settings, role, connections, idle_seconds)

    @property
    def pool(self) -> Pool:
        """The pool, for readers that share the store's connections."""
        return self._pool

    @property
    def statements(self) -> int:
        return self._pool.statements

    async def note_lock(self, kind: str, key: int, name: str, now: Now) -> str:
        params = {"kind": kind, "key": key, "name": name, "now": now}
        for _ in range(_LOOKS):
            rows = await self._pool.fetch("lock/note", params, waits=True)
            if rows:
                noted: str = rows[0][0]
                return noted
        raise Conflict("other processes keep changing the name of this lock", got=name)

    async def notify(self, message: str) -> bool:
        """Send a notification, for the self-test of LISTEN. False if the server's notification
        queue is half full; then none is sent."""
        return bool((await self._pool.fetch("session/notify", {"message": message}))[0][0])

    def shut(self) -> None:
        self._pool.shut()

    def abandon(self) -> None:
        """Close the connections at the end of their event loop, or after it."""
        self._pool.abandon()

    async def close(self) -> None:
        await self._pool.close()
