"""The Store: every operation of the protocol on the database, by name.

Services use the database only through it. Each operation is one statement and one transaction (the
bulk insert is one COPY), so leasework never leaves a transaction open. The database takes ``now``
as its time. In production it is None, and the database uses its own clock.

Every operation may raise ServerError and Unavailable (if ``sent`` is true, its outcome is unknown).
"""

from __future__ import annotations

from leasework.store.deadlines import DeadlineStore
from leasework.store.jobs import JobStore
from leasework.store.limits import LimitStore
from leasework.store.nodes import NodeStore
from leasework.store.operator import OperatorStore
from leasework.store.schedules import ScheduleStore


class Store(NodeStore, JobStore, LimitStore, ScheduleStore, DeadlineStore, OperatorStore):
    """All operations."""

    async def close(self) -> None:
        """Wait for running operations, then close every connection."""

    def shut(self) -> None:
        """Break every connection now. Waiting callers get Unavailable."""
