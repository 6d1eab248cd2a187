"""The tables of the simulated database, and what several operations on them share.

It mirrors ``leasework/pg/sql``: the contract suite runs the same tests on both. Each operation of
:class:`leasework_lab.sim.store.SimStore` changes it in one step, without an ``await`` in between,
like one statement in one transaction. ``locked`` has what a user's transaction holds; statements
with SKIP LOCKED skip it, and none waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from leasework.model.begins import Level
from leasework.model.deadline import Callback
from leasework.model.job import JobOptions
from leasework.model.states import State
from leasework.store.nodes import NodeIdentity, NodeSeen
from leasework.store.rows import EventView
from leasework_lab.sim.promises import judge

_SEATS_AHEAD = 3


UNKNOWN = ("unknown_task", "unknown_version")
"""Why a job waits that the worker which took it could not run."""


@dataclass(slots=True)
class NodeRow:
    identity: NodeIdentity
    token: int
    lease_seconds: float
    started_at: datetime
    renewed_at: datetime
    seq: int = 1
    epoch: int = 1
    sleeping: frozenset[str] = frozenset()
    info: dict[str, Any] = field(default_factory=dict)
    halted: bool = False
    shown: tuple[Any, NodeSeen] | None = None
    """What a heartbeat shows of the node, and the state from which it was made."""


@dataclass(slots=True)
class StackRow:
    request: UUID
    node: UUID
    claim_token: int
    asked_at: datetime
    answered_at: datetime | None = None
    says: str | None = None


@dataclass(slots=True)
class DeathRow:
    worker_id: str
    died_at: datetime
    app: str
    how: str = "died"
    settled: bool = False
    seen_at: datetime | None = None


@dataclass(slots=True)
class LeaderRow:
    token: int
    lease_seconds: float
    node: UUID | None = None
    seq: int = 0
    acquired_at: datetime | None = None
    renewed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TermRow:
    name: str
    token: int
    node: UUID
    worker_id: str
    acquired_at: datetime


@dataclass(slots=True)
class JobRow:
    """An unfinished job. ``ready`` False: it waits for ``run_at``. ``node`` set: it is running."""

    id: UUID
    options: JobOptions
    payload: Any
    run_at: datetime
    created_at: datetime
    unique_key: str | None = None
    schedule: str | None = None
    tick_at: datetime | None = None
    ready: bool = True
    held_because: str | None = None
    last_error: str | None = None
    progress: float | None = None
    progress_note: str | None = None
    started_at: datetime | None = None
    crashes: int = 0
    cancel_requested: bool = False
    attempt: int = 0
    node: UUID | None = None
    claim_token: int | None = None
    claimed_at: datetime | None = None
    deadlines: bool = False
    trace: str | None = None
    fresh: bool = True
    seat: int = 0

    @property
    def level(self) -> int:
        return self.options.priority * 2 + self.fresh

    @property
    def state(self) -> State:
        """As the view ``leasework.jobs`` derives it."""
        if self.ready:
            return State.AVAILABLE if self.node is None else State.RUNNING
        return State.RETRYABLE if self.held_because == "retryable" else State.SCHEDULED

    def __getattr__(self, name: str) -> Any:
        """Gives access to the options' fields."""
        if name.startswith("__") or name == "options":
            raise AttributeError(name)
        return getattr(self.options, name)


@dataclass(slots=True)
class DoneRow:
    """A finished job and its outcome."""

    job: JobRow
    finished_at: datetime
    state: str
    started_at: datetime | None
    crashes: int
    result: Any
    last_error: str | None
    node: UUID | None
    claim_token: int | None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    attempt: int
    node: UUID | None
    started_at: datetime | None
    ended_at: datetime
    outcome: str
    error: str | None
    traceback: str | None = None


@dataclass(slots=True)
class ScheduleRow:
    app: str
    name: str
    spec: dict[str, Any]
    described: str
    task_name: str
    job: dict[str, Any]
    missed: str
    grace_seconds: float
    release: str
    next_at: datetime | None
    updated_at: datetime
    paused: bool = False
    paused_at: datetime | None = None
    resumed_at: datetime | None = None
    in_code: bool = True
    high_water: datetime | None = None
    former: dict[str, Any] | None = None


@dataclass(slots=True)
class DeadlineRow:
    """A job's deadline, or one without a job."""

    id: UUID
    of_job: bool
    name: str
    since: str
    seconds: float
    until: str
    callback: dict[str, Any]
    made_at: datetime
    state: str
    due_at: datetime | None
    schedule: str | None = None
    tick_at: datetime | None = None
    closed_at: datetime | None = None
    job_state: str | None = None
    callback_job: UUID | None = None


@dataclass(frozen=True, slots=True)
class TickRow:
    until: datetime | None
    state: str
    job: UUID | None
    term: int | None
    decided_at: datetime


class SimDatabase:
    """One database. ``clock``: its wall clock, used if a call passes no ``now``. ``on_notify``:
    receives each notification of a committed statement (``q:default``)."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        on_notify: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.clock = clock
        self.on_notify = on_notify
        self.timeline = 1
        self.settled = 0
        self.sequence = 0
        self.seats = 0
        self.xids = 0
        self.open_xids: set[int] = set()
        """Open transactions that have begun to write."""
        self.nodes: dict[UUID, NodeRow] = {}
        self.claimed_to: dict[UUID, dict[Level, int]] = {}
        """By node and level: the highest seat that a job of the node can have."""
        self.shared_begins: dict[tuple[int, Level], int] = {}
        """By server and level of fresh jobs: the number of the sequence with the begin."""
        self.sequences: list[int] = [0]
        """The values of these sequences. A dump of them may be newer than that of the jobs."""
        self.deaths: dict[UUID, DeathRow] = {}
        self.leaders: dict[str, LeaderRow] = {}
        self.fences: dict[str, int] = {}
        self.terms: dict[tuple[str, int], TermRow] = {}
        self.bids: list[tuple[str, UUID]] = []
        """(lock, node) in the order of arrival."""
        self.releases: dict[tuple[str, str], int] = {}
        self.jobs: dict[UUID, JobRow] = {}
        self.done: dict[UUID, DoneRow] = {}
        self.attempts: dict[tuple[UUID, int], AttemptRow] = {}
        self.keys: dict[str, tuple[UUID, datetime | None]] = {}
        self.repeated: dict[UUID, datetime] = {}
        self.signals: dict[tuple[UUID, UUID, str], int] = {}
        self.stacks: dict[UUID, StackRow] = {}
        self.schedules: dict[tuple[str, str], ScheduleRow] = {}
        self.ticks: dict[tuple[str, str, datetime], TickRow] = {}
        """From when on the ledger is complete."""
        self.deadlines: dict[UUID, DeadlineRow] = {}
        self.events: list[EventView] = []
        self.history: dict[tuple[datetime, str, str], dict[str, Any]] = {}
        self.last_event = 0
        self.tallies = 0
        self.lock_names: dict[tuple[str, int], tuple[str, datetime]] = {}
        self.locked: set[UUID] = set()
        """Jobs whose rows a user's transaction holds."""

    def at(self, now: datetime | None) -> datetime:
        return self.clock() if now is None else now

    def crash(self) -> None:
        """The server crashes and restarts: all commits survive."""

    def promote(self) -> None:
        """Another server takes over with all commits, under a new timeline. No transaction
        survives."""
        self.timeline += 1
        self.open_xids.clear()

    @property
    def server(self) -> int:
        """A number that changes with a failover."""
        return self.timeline

    # -- what several statements share -----------------------------------------------------------
    def shared(self, queues: Collection[str]) -> Iterable[tuple[Level, int]]:
        """Yield the levels of these queues whose begins workers share, with their sequences."""
        for (server, level), sequence in self.shared_begins.items():
            if server == self.server and level[0] in queues:
                yield level, sequence

    def share(self, level: Level) -> int:
        """Let workers share the begin of this level. Return its sequence."""
        sequence = self.shared_begins.setdefault((self.server, level), len(self.sequences))
        if sequence == len(self.sequences):
            self.sequences.append(0)
        return sequence

    def publish(self, sequence: int, first: int, settled: int) -> None:
        if sequence:
            begin = min(first, settled)
            self.sequences[sequence] = max(begin, self.sequences[sequence])

    def new_token(self) -> int:
        self.sequence += 1
        return (self.timeline - 1 << 32) + self.sequence

    def new_seat(self) -> int:
        self.seats += 1
        return self.seats

    def new_xid(self) -> int:
        self.xids += 1
        return self.xids

    @property
    def oldest_xid(self) -> int:
        """The oldest open transaction, or the next one."""
        return min(self.open_xids, default=self.xids + 1)

    def insert(self, row: JobRow) -> None:
        """Insert a new job, committed at once."""
        row.seat = self.new_seat()
        self.jobs[row.id] = row

    def claim(self, row: JobRow, node: UUID, moment: datetime) -> None:
        row.node, row.claimed_at, row.attempt = node, moment, row.attempt + 1
        row.claim_token = self.new_token()
        self.note_claim(node, row)

    def note_claim(self, node: UUID, row: JobRow) -> None:
        levels = self.claimed_to.setdefault(node, {})
        level = row.queue, row.level
        if row.seat > levels.get(level, 0):
            levels[level] = row.seat + _SEATS_AHEAD

    def held_by(self, nodes: Collection[UUID]) -> list[JobRow]:
        """Jobs that these nodes hold, within the seats that each has claimed."""
        return [
            row
            for row in self.jobs.values()
            if row.node is not None
            and row.node in nodes
            and row.seat <= self.claimed_to.get(row.node, {}).get((row.queue, row.level), 0)
        ]

    def free(self, row: JobRow) -> None:
        """Free the job from its node, and place it before the fresh jobs of its priority."""
        row.node = row.claim_token = row.started_at = None
        row.fresh, row.seat = False, self.new_seat()

    def new_id(self, moment: datetime) -> UUID:
        """A new id that grows with time, like the database's own."""
        self.sequence += 1
        milliseconds = int(moment.timestamp() * 1000)
        return UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62 | self.sequence)

    def fenced(self, name: str, token: int) -> bool:
        """Is the fence still at this term?"""
        return self.fences.get(name) == token

    def notify(self, message: str) -> None:
        self.on_notify(message)

    def wake(self, queues: Iterable[str]) -> None:
        for queue in sorted(set(queues)):
            if any(queue in node.sleeping for node in self.nodes.values()):
                self.notify(f"q:{queue}")

    def remove_node(self, node: UUID, how: str = "died") -> str:
        """Remove its row and note the death, as the trigger does. Returns the worker_id."""
        me = self.nodes.pop(node).identity
        worker_id = me.worker_id
        self.deaths.setdefault(
            node, DeathRow(worker_id, self.clock(), me.app, how, not me.executes)
        )
        self.bids = [bid for bid in self.bids if bid[1] != node]
        return worker_id

    def free_leases(self, *nodes: UUID) -> list[str]:
        """Free their leases. Returns the names."""
        held = [(name, row) for name, row in self.leaders.items() if row.node in nodes]
        for _, row in held:
            row.node, row.seq = None, row.seq + 1
        return [name for name, _ in held]

    def worker_id(self, node: UUID | None) -> str | None:
        if node in self.nodes:
            return self.nodes[node].identity.worker_id
        return self.deaths[node].worker_id if node in self.deaths else None

    def claimed(self, job: UUID, token: int, node: UUID) -> JobRow | None:
        """The row, if this node holds it under this token."""
        row = self.jobs.get(job)
        return row if row and row.claim_token == token and row.node == node else None

    def finish(
        self,
        row: JobRow,
        state: str,
        moment: datetime,
        *,
        started_at: datetime | None = None,
        result: Any = None,
        error: str | None = None,
        crashed: bool = False,
        keep: bool = True,
    ) -> None:
        """Move a row to the finished ones (``keep`` False: delete it), and free its key."""
        error = error if error is not None else row.last_error
        if row.cancel_requested:
            how = "it ran to its end" if state == "completed" else error
            parts = dict.fromkeys(part for part in (row.last_error, how) if part)
            error = "; ".join(parts)
        elif state == "completed":
            error = None
        del self.jobs[row.id]
        if keep:
            self.done[row.id] = DoneRow(
                job=row,
                finished_at=moment,
                state=state,
                started_at=started_at,
                crashes=row.crashes + crashed,
                result=result,
                last_error=error,
                node=row.node,
                claim_token=row.claim_token if row.node else None,
            )
        if row.unique_key is not None and self.keys.get(row.unique_key) == (row.id, None):
            del self.keys[row.unique_key]
        if row.deadlines:
            judge(self, row, state, moment)
        if row.options.on_failure and keep and state != "completed":
            self._call(row.options.on_failure, self.done[row.id])

    def _call(self, callback: Callback, done: DoneRow) -> None:
        """Enqueue the job that tells of a failure."""
        job, moment = done.job, done.finished_at
        told = {
            "job": str(job.id), "task": job.task, "queue": job.queue, "state": done.state,
            "error": None if done.state == "cancelled" else done.last_error,
            "reason": done.last_error if done.state == "cancelled" else None,
            "attempt": job.attempt, "tags": list(job.tags), "schedule": job.schedule,
            "tick": job.tick_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if job.tick_at else None,
        }  # fmt: skip
        options = JobOptions(callback.task, **callback.options)
        row = JobRow(self.new_id(moment), options, {"failure": told}, moment, moment)
        self.insert(row)
        self.wake([row.queue])
