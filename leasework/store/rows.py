"""Rows that people and their tools read. Times in seconds are by the database's clock."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from leasework.model.fingerprint import pattern


class NodeView(NamedTuple):
    """A node."""

    worker_id: str
    id: UUID
    app: str
    release: str
    version: str
    executes: bool
    """It claims jobs: it has slots, and is not halted."""
    queues: dict[str, int]
    """Queue → its slots."""
    tasks: list[str]
    started_at: datetime
    heartbeat: datetime
    """Its last renewal."""
    age_seconds: float
    """Since the last renewal."""
    lease_seconds: float
    info: dict[str, Any] | None
    """What the process reports about itself. Its fields depend on the process's version."""
    halted: bool


class LeaderView(NamedTuple):
    """An election and its holder."""

    name: str
    holder: str | None
    """The worker_id. None: nobody holds it, or the node is no longer known."""
    term: int
    heartbeat: datetime | None
    """The last renewal. None: nobody has held it yet."""
    age_seconds: float | None
    """Since the last renewal."""
    lease_seconds: float
    acquired_at: datetime | None
    node: UUID | None
    """None: nobody holds it."""


class TermView(NamedTuple):
    """A term of a leader."""

    name: str
    term: int
    holder: str
    """The worker_id."""
    acquired_at: datetime


class DeathView(NamedTuple):
    """A dead node that no person has seen yet."""

    node: UUID
    worker_id: str
    app: str
    died_at: datetime
    rescued: int
    """The number of jobs that were freed."""
    tasks: list[str] = []  # noqa: RUF012
    """Of some of these jobs."""


class StoredSchedule(NamedTuple):
    """A schedule as it is stored, with its last tick."""

    app: str
    name: str
    described: str
    """The moments in words."""
    task_name: str
    missed: str
    """The policy for missed moments."""
    paused: bool
    next_at: datetime | None
    """The first undecided moment. None: never again."""
    last_fire_at: datetime | None
    last_state: str | None
    """``fired``, ``missed`` or ``manual``."""
    release: str
    high_water: datetime | None
    """The newest decided moment."""
    in_code: bool
    """False: it was put at run time."""
    spec: dict[str, Any]
    """The moments as JSON."""
    job: dict[str, Any]
    """The options of its jobs, and ``payload``, their arguments."""
    grace_seconds: float
    """A moment that is later than this is missed."""


class TickView(NamedTuple):
    """An entry of the ledger: what happened to a due moment."""

    app: str
    schedule: str
    fire_at: datetime
    until: datetime | None
    """In an entry for many missed moments, the last of them."""
    state: str
    """``fired``, ``missed`` or ``manual``."""
    job_id: UUID | None
    term: int | None
    decided_at: datetime
    lateness_seconds: float
    outcome: str
    """The job's state, ``missed``, or ``unknown`` if nothing is kept of the job."""
    ran_seconds: float | None
    """Until now, if the job runs."""


class EventView(NamedTuple):
    """Something that happened."""

    id: int
    at: datetime
    kind: str
    level: str
    """``info``, ``warning`` or ``error``."""
    worker_id: str | None
    fields: dict[str, Any]


class ScheduleLag(NamedTuple):
    """How late a schedule is."""

    app: str
    name: str
    paused: bool
    late_seconds: float
    """Since its first undecided moment. 0 if that is not due, or the schedule is paused."""
    ahead_seconds: float
    """Its newest decided moment is so far ahead of the clock, or 0."""


class FailingSchedule(NamedTuple):
    """A schedule whose newest job failed for good."""

    app: str
    name: str
    task_name: str
    job_id: UUID
    state: str
    finished_at: datetime
    error: str | None


class AttemptView(NamedTuple):
    """An attempt of a job that did not just complete."""

    attempt: int
    token: int
    worker_id: str | None
    started_at: datetime | None
    """None if its handler did not start."""
    ended_at: datetime
    outcome: str
    error: str | None
    traceback: str | None = None
    log: str | None = None
    """The last lines that it logged."""


class FailureGroup(NamedTuple):
    """Failed attempts of some time with one fingerprint."""

    fingerprint: str
    tasks: list[str]
    """Of the newest ones, with ``open`` and ``looked``."""
    attempts: int
    more: bool
    """There may be more than these, which are not counted."""
    jobs: int
    more_jobs: bool
    open: int
    """After how many of the newest ones the job waits to be retried, or failed for good."""
    looked: int
    """How many these newest ones are."""
    trend: list[int]
    """Attempts in each part of the time, the oldest part first."""
    first_at: datetime
    """When it was first seen, as far back as failed attempts are kept."""
    newest_at: datetime
    newest_job: UUID
    newest_error: str

    @property
    def pattern(self) -> str:
        """What their errors have in common."""
        return pattern(self.newest_error)


class StackView(NamedTuple):
    """A request for the stack of a job's handler, and its answer."""

    request: UUID
    claim_token: int
    asked_at: datetime
    answered_at: datetime | None
    says: str | None
    """None: not answered yet."""


class MinuteView(NamedTuple):
    """What finished of one task in one queue within one minute."""

    at: datetime
    queue: str
    task_name: str
    completed: int
    cancelled: int
    discarded: int
    quarantined: int
    failed: int
    """Failed attempts, including retried ones."""
    wait: dict[str, int]
    """From due to start: how many jobs of each class of
    :func:`leasework.model.history.class_seconds`."""
    run: dict[str, int]
    """From start to end, likewise."""


class UsualView(NamedTuple):
    """How long a task takes."""

    task: str
    run: dict[str, int]
    """How many jobs of each class of :func:`leasework.model.history.class_seconds`."""


class QueueView(NamedTuple):
    """A queue with jobs."""

    queue: str
    ready: int
    """Due jobs, running ones included. At least so many if ``capped``, as is ``running``."""
    running: int
    capped: bool
    oldest_seconds: float | None
    """How long the available job that was due first has been due. None: no job is available."""
    oldest_id: UUID | None

    @property
    def available(self) -> int:
        return self.ready - self.running


class JobDetail(NamedTuple):
    """What a JobRecord does not show of a job that has not finished."""

    run_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    node: UUID | None
    unique_key: str | None
    requeue_seconds: float | None
    timeout_seconds: float | None
    history: str
    ready: bool
    held_because: str | None
    schedule: str | None
    tick_at: datetime | None
    ahead: int
    """Jobs that are claimed before it, up to 1,000."""
    now: datetime
    """The database's time."""
    version: int


class TableView(NamedTuple):
    """A table by the server's statistics. The days of a partitioned table are added up."""

    name: str
    live: int
    dead: int
    table_bytes: int
    index_bytes: int
    vacuumed_seconds: float | None
    """Since the last vacuum. None: never."""
    updates: int
    hot_updates: int
    parts: int


class TransactionView(NamedTuple):
    """What keeps vacuum from removing dead rows."""

    pid: str
    """The server process, or the name of a prepared transaction or slot."""
    what: str
    """``transaction``, ``prepared transaction``, ``standby`` or ``replication slot``."""
    role: str
    application: str
    client: str
    state: str | None
    open_seconds: float | None
    """None: it is no open transaction, or this login may not see the session."""
    xmin_age: int
    """How many transactions ago its snapshot was taken."""
    query: str


class WaitView(NamedTuple):
    """A session that waits for a lock."""

    pid: int
    role: str
    application: str
    waits_for: str
    seconds: float
    blocked_by: list[int]
    query: str


class BlockerView(NamedTuple):
    """A session that blocks leasework's, or holds a strong lock on one of its tables."""

    pid: int
    role: str
    application: str
    state: str | None
    open_seconds: float | None
    """How long its transaction has been open. None: this login may not see it."""
    table: str
    """The table that it has locked, or empty."""
    waiting: int
    """How many sessions of leasework wait for it."""
    seconds: float
    """How long the first of them has waited."""
    query: str


class ConnectionsView(NamedTuple):
    """The connections of the server, the role or the database."""

    of: str
    name: str
    used: int
    most: int
    """0 or less: no limit."""


class SilenceView(NamedTuple):
    """Problems of a kind that a person has silenced."""

    kind: str
    subject: str
    """Empty: all of this kind."""
    until: datetime
    who: str
    reason: str


class CountView(NamedTuple):
    """A running total of one metric."""

    metric: str
    subject: str
    part: str
    n: int


class LeaseCounts(NamedTuple):
    """The totals of one leader."""

    name: str
    held: bool
    term: int
    age_seconds: float | None
    """Since the last renewal."""
    acquired: int
    renewed: int
    resigned: int
    expired: int
    leaderless_seconds: float


class LockCounts(NamedTuple):
    """How many locks are held and waited for."""

    locks_held: int
    locks_waiting: int
    locks_oldest_wait_seconds: float
    advisory_locks_held: int
    advisory_locks_waiting: int
    advisory_locks_oldest_wait_seconds: float


class LockView(NamedTuple):
    """A lease or an advisory lock, held or waited for."""

    locktype: str
    """``lease`` or ``advisory``."""
    classid: int | None
    objid: int | None
    objsubid: int | None
    lock_key: int | None
    name: str | None
    pid: int | None
    mode: str
    """``leader``, ``lock``, or the mode of an advisory lock."""
    granted: bool
    waitstart: datetime | None
    state: str | None
    """Of the connection."""
    query: str | None
    job_id: UUID | None
    client: str | None
    since: datetime | None
    application_name: str | None
    token: int | None


class TaskFailures(NamedTuple):
    """The failures of one task."""

    task: str
    discarded: int
    """Discarded jobs."""
    failed: int
    """Attempts that will be retried."""
    finished: int
    """Jobs in the history's minutes."""
    counted_until: datetime
    """The end of these minutes."""
    error: str | None
    """The newest one."""


class InterruptedTask(NamedTuple):
    """The unfinished jobs of one task whose last runs stops of their workers ended."""

    task: str
    jobs: int
    job: UUID
    """The one whose longest run was the longest."""
    longest_seconds: float
    """That run."""


class DeadlineView(NamedTuple):
    """A deadline, of a job or without one."""

    id: UUID
    name: str
    state: str
    due_at: datetime | None
    closed_at: datetime | None
    late_seconds: float | None
    job_id: UUID | None
    schedule: str | None
    since: str | None
    until: str | None
    job_state: str | None
    on_breach: str | None
    callback_job: UUID | None


class UnhandledBreach(NamedTuple):
    """A breach whose callback was discarded or quarantined, or that no live node can run."""

    id: UUID
    name: str
    task: str
    callback_job: UUID
    why: str
    """``unknown`` if no live node knows the callback's task, or the state in which it ended."""
