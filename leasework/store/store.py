"""The Store: every operation of the protocol on the database, by name (ADR 2).

The database takes ``now`` as its time; in production it is None, and the database uses its own
clock. Every operation may raise ServerError and Unavailable.
"""

from __future__ import annotations

from leasework.config import Settings
from leasework.pg.connection.pool import Pool
from leasework.store.deadlines import DeadlineStore
from leasework.store.durable import DurableStore
from leasework.store.jobs import JobStore
from leasework.store.limits import LimitStore
from leasework.store.nodes import NodeStore
from leasework.store.operation import operation, value
from leasework.store.operator import OperatorStore
from leasework.store.schedules import ScheduleStore


class Store(
    NodeStore, JobStore, LimitStore, DurableStore, ScheduleStore, DeadlineStore, OperatorStore
):
    """All operations over one pool. Belongs to one event loop."""

    def __init__(
        self, settings: Settings, role: str, connections: int = 1, idle_seconds: float | None = None
    ) -> None:
        super().__init__(Pool(settings, role, connections, idle_seconds))

    @operation("session/notify", answer=value)
    async def notify(self, message: str) -> bool:
        """Send a notification, for the self-test of LISTEN. False if the server's notification
        queue is half full; then none is sent."""

    def abandon(self) -> None:
        """Close the connections at the end of their event loop, or after it."""
        self.pool.abandon()

    async def close(self) -> None:
        """Wait for running operations, then close every connection."""
        await self.pool.close()
