"""The facts that the checks judge, all read from the database in one go."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from msgspec import Struct, field, structs

from leasework.config import DEAD_ROWS
from leasework.store import rows
from leasework.store.durable import DurableCounts
from leasework.store.limits import LimitView, PauseView, QueueWaits
from leasework.store.reports import Summary


class Pace(Struct, frozen=True):
    """How long a task takes, in seconds."""

    task: str
    lately: float | None
    """The median of the last ten minutes. None: too few jobs."""
    usual: float
    """The median of the last day."""
    longest: float
    """What 99 % of the runs of the last day did not exceed."""


class Facts(Struct, frozen=True):
    """Rows as the Store's operations return them. Ages come from the database's clock and are for
    people; the protocol never relies on them."""

    now: datetime
    """The database's time."""
    summary: Summary
    nodes: list[rows.NodeView]
    leaders: list[rows.LeaderView]
    schedules: list[rows.ScheduleLag]
    events: list[rows.EventView]
    """The newest, in any order."""
    unhandled: list[rows.UnhandledBreach] = field(default_factory=list)
    """Breaches whose callback waits for an unknown task, or was discarded or quarantined."""
    transactions: list[rows.TransactionView] = field(default_factory=list)
    """What blocks vacuum."""
    failures: list[rows.TaskFailures] = field(default_factory=list)
    """Failed attempts and discarded jobs, by task."""
    interrupted: list[rows.InterruptedTask] = field(default_factory=list)
    """Jobs that stops of workers interrupt again and again, by task."""
    failing: list[rows.FailingSchedule] = field(default_factory=list)
    """Schedules whose jobs fail."""
    died: list[rows.DeathView] = field(default_factory=list)
    """Dead nodes that nobody has marked as seen, the newest first."""
    queues: list[rows.QueueView] = field(default_factory=list)
    """Queues with due jobs."""
    pace: list[Pace] = field(default_factory=list)
    """Of tasks that ran lately."""
    blockers: list[rows.BlockerView] = field(default_factory=list)
    connections: list[rows.ConnectionsView] = field(default_factory=list)
    locks: rows.LockCounts | None = None
    silences: list[rows.SilenceView] = field(default_factory=list)
    limits: list[LimitView] = field(default_factory=list)
    limited: list[QueueWaits] = field(default_factory=list)
    """Jobs that wait for limits, by queue."""
    pauses: list[PauseView] = field(default_factory=list)
    """Paused queues and tasks."""
    durable: DurableCounts | None = None
    """Suspended jobs, signals and batches."""
    grace: float = 10.0
    """How many seconds running jobs may take to finish when their worker stops."""
    pin_seconds: float = 300.0
    """How long a transaction may block vacuum."""
    overdue_seconds: float = 60.0
    """How long an available job may wait."""

    @property
    def live_nodes(self) -> list[rows.NodeView]:
        return [node for node in self.nodes if not stale(node)]

    def of_apps(self, apps: Collection[str]) -> Facts:
        """Only the rows of these applications; everything if ``apps`` is empty."""
        if not apps:
            return self
        nodes = [node for node in self.nodes if node.app in apps]
        died = [row for row in self.died if row.app in apps]
        ids = {node.id for node in nodes}
        others = {row.worker_id for row in self.nodes if row.app not in apps}
        others |= {row.worker_id for row in self.died if row.app not in apps}
        return structs.replace(
            self,
            nodes=nodes,
            died=died,
            leaders=[row for row in self.leaders if row.name in apps or row.node in ids],
            schedules=[row for row in self.schedules if row.app in apps],
            failing=[row for row in self.failing if row.app in apps],
            # a node that has left is not known any more; nobody would see its events otherwise
            events=[event for event in self.events if event.worker_id not in others],
        )

    @property
    def oldest_seconds(self) -> float | None:
        """How long the available job that was due first has been due."""
        return max((q.oldest_seconds or 0.0 for q in self.queues if q.available), default=None)

    def ago(self, moment: datetime) -> float:
        """Seconds since then, at least 0."""
        return max(0.0, (self.now - moment).total_seconds())


def bloated(table: rows.TableView) -> bool:
    """Has vacuum not kept up? Rows of job_done are dropped by the day."""
    return table.dead > max(DEAD_ROWS, table.live) and table.name != "job_done"


def stale(row: rows.NodeView | rows.LeaderView) -> bool:
    """Is its last renewal older than its lease?"""
    return row.age_seconds is None or row.age_seconds > row.lease_seconds
