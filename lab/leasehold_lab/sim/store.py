"""The Store in memory: what the simulation runs on, and what its trust is measured by.

``tests/contract`` runs one suite on this and on PgStore. Several stores on one
:class:`SimDatabase` are several processes' sessions.
"""

from __future__ import annotations

from leasehold_lab.sim.rows import SimDatabase
from leasehold_lab.sim.store_claims import AdvisoryClaimOperations
from leasehold_lab.sim.store_dashboard import DashboardOperations
from leasehold_lab.sim.store_deadlines import DeadlineOperations
from leasehold_lab.sim.store_jobs import JobOperations
from leasehold_lab.sim.store_locks import LockOperations
from leasehold_lab.sim.store_nodes import NodeOperations
from leasehold_lab.sim.store_operator import OperatorOperations
from leasehold_lab.sim.store_schedules import ScheduleOperations


class SimStore(
    NodeOperations,
    JobOperations,
    DashboardOperations,
    ScheduleOperations,
    DeadlineOperations,
    OperatorOperations,
    LockOperations,
    AdvisoryClaimOperations,
):
    """All operations on one simulated database."""

    def __init__(self, db: SimDatabase) -> None:
        self.db = db

    def shut(self) -> None:
        """Nothing ever waits here."""

    async def close(self) -> None:
        """Nothing is open."""
