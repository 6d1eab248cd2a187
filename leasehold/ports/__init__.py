"""The Store: every operation of the protocol on the database, by name.

Services use the database only through it. Each operation is one statement and one transaction (the
bulk insert is one COPY), so leasehold never leaves a transaction open. The database takes ``now``
as its time. In production it is None, and the database uses its own clock.

Every operation may raise ServerError and Unavailable (if ``sent`` is true, its outcome is unknown).
"""

from __future__ import annotations

from leasehold.ports.deadlines import DeadlineStore, Swept
from leasehold.ports.jobs import Acked, AckItem, Completion, JobStore, Rescued, Staged
from leasehold.ports.nodes import Heartbeat, LockSeen, NodeIdentity, NodeSeen, NodeStore, Signal
from leasehold.ports.operation import Now, Operation, Term
from leasehold.ports.operator import OperatorStore
from leasehold.ports.reports import QUEUE_ROWS, JobPage, Reports, Summary
from leasehold.ports.rows import (
    AttemptView,
    CountView,
    DeadlineView,
    DeathView,
    EventView,
    FailingSchedule,
    JobDetail,
    LeaderView,
    LeaseCounts,
    LockCounts,
    LockView,
    MinuteView,
    NodeView,
    QueueView,
    ScheduleLag,
    StackView,
    StoredSchedule,
    TableView,
    TaskFailures,
    TermView,
    TickView,
    TransactionView,
    UnhandledBreach,
    WaitView,
)
from leasehold.ports.schedules import (
    DueSchedule,
    LeftOut,
    ScheduleDefinition,
    ScheduleStore,
    Synced,
    TickDecision,
    TickPlan,
)
from leasehold.ports.wakeups import Wake, Wakeups


class Store(NodeStore, JobStore, ScheduleStore, DeadlineStore, OperatorStore):
    """All operations."""

    async def close(self) -> None:
        """Wait for running operations, then close every connection."""

    def shut(self) -> None:
        """Break every connection now. Waiting callers get Unavailable."""
