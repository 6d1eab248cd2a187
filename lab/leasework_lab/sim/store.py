"""The Store in memory, on which the simulation runs.

``tests/contract`` runs one suite on this and on the real Store, which shows how far the simulation
can be trusted. Several stores on one :class:`SimDatabase` stand for several processes' sessions.
"""

from __future__ import annotations

from typing import Any

from leasework.errors import QueryFailed
from leasework.store.operation import Operation
from leasework.store.store import Store
from leasework_lab.sim.rows import SimDatabase
from leasework_lab.sim.store_deadlines import SimDeadlines
from leasework_lab.sim.store_jobs import SimJobs
from leasework_lab.sim.store_nodes import SimNodes
from leasework_lab.sim.store_operator import SimOperators
from leasework_lab.sim.store_schedules import SimSchedules


class SimStore(SimNodes, SimJobs, SimSchedules, SimDeadlines, SimOperators, Store):
    """All operations on one simulated database."""

    def __init__(self, db: SimDatabase) -> None:
        self.db = db

    async def execute(
        self, operation: Operation, params: dict[str, Any], timeout: float | None
    ) -> list[tuple[Any, ...]]:
        raise QueryFailed("the simulation does not have this operation", got=operation.sql)

    async def end_batches(self, now: Any) -> tuple[int, bool]:
        return 0, False

    def shut(self) -> None:
        """Nothing waits here."""

    async def close(self) -> None:
        """Nothing to close."""
