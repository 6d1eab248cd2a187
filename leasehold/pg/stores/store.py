"""The Store on PostgreSQL."""

from __future__ import annotations

from leasehold.config import Settings
from leasehold.pg.connection.pool import Pool
from leasehold.pg.connection.session import ServerFacts
from leasehold.pg.stores.execution import PgOperations
from leasehold.pg.stores.store_jobs import PgJobs
from leasehold.pg.stores.store_operator import PgOperator
from leasehold.ports import Store


class PgStore(PgOperations, PgJobs, PgOperator, Store):
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
    def facts(self) -> ServerFacts | None:
        """What the newest connection learned about the server; None before the first one."""
        return self._pool.facts

    @property
    def statements(self) -> int:
        return self._pool.statements

    async def notify(self, message: str) -> bool:
        """Send a notification, for the self-test of LISTEN. False if the server's notification
        queue is half full; then none is sent."""
        return bool((await self._pool.fetch("session/notify", {"message": message}))[0][0])

    def shut(self) -> None:
        self._pool.shut()

    def abandon(self) -> None:
        """Close the connections of an event loop that is itself closed."""
        self._pool.abandon()

    async def close(self) -> None:
        await self._pool.close()
