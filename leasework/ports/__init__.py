"""The Store: every operation of the protocol on the database, by name.

Services use the database only through it. Each operation is one statement and one transaction (the
bulk insert is one COPY), so leasework never leaves a transaction open. The database takes ``now``
as its time. In production it is None, and the database uses its own clock.

Every operation may raise ServerError and Unavailable (if ``sent`` is true, its outcome is unknown).
"""

from __future__ import annotations

from leasework.ports.deadlines import DeadlineStore, Swept
from leasework.ports.jobs import Acked, AckItem, Completion, JobStore, Rescued, Staged
from leasework.ports.limits import (
    KeyWait,
    LimitKeyView,
    LimitStore,
    LimitView,
    PauseView,
    QueueWaits,
    Walk,
)
from leasework.ports.nodes import Heartbeat, LockSeen, NodeIdentity, NodeSeen, NodeStore, Signal
from leasework.ports.operation import Now, Operation, Term
from leasework.ports.operator import OperatorStore
from leasework.ports.reports import QUEUE_ROWS, JobPage, Reports, Summary
from leasework.ports.rows import (
    AttemptView,
    CountView,
    DeadlineView,
    DeathView,
    EventView,
    FailingSchedule,
    InterruptedTask,
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
from leasework.ports.schedules import (
    DueSchedule,
    LeftOut,
    ScheduleDefinition,
    ScheduleStore,
    Synced,
    TickDecision,
    TickPlan,
)
from leasework.ports.wakeups import Handlers, Wakeups


class Store(NodeStore, JobStore, LimitStore, ScheduleStore, DeadlineStore, OperatorStore):
    """All operations."""

    async def close(self) -> None:
        """Wait for running operations, then close every connection."""

    def shut(self) -> None:
        """Break every connection now. Waiting callers get Unavailable."""
