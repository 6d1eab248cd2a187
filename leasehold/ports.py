"""The Store: every operation of the protocol on the database, by name.

Services see nothing else of it. Each operation is one statement and one transaction (the bulk
insert is one COPY), so that there is never an open transaction of ours to be left behind. ``now``
is the time that the database shall take for its own; None, in production, lets it decide.

Every operation may raise Unavailable (``sent`` tells whether its outcome is unknown) and
ServerError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from leasehold.model.job import ClaimedJob, JobRecord, JobRequest
from leasehold.model.lease import Seen
from leasehold.model.outcome import Decision

Now = datetime | None


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What a process says of itself when it registers."""

    id: UUID
    app: str
    release: str
    host: str
    pid: int
    version: str
    executes: bool
    tasks: tuple[str, ...]
    queues: dict[str, int]
    """Queue name → how many jobs at once."""

    @property
    def worker_id(self) -> str:
        """``host:pid:short-id``, as in every view and log line."""
        return f"{self.host}:{self.pid}:{str(self.id)[-6:]}"


@dataclass(frozen=True, slots=True)
class Signal:
    """Something that somebody asks of a running job."""

    job: UUID
    token: int
    kind: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """Another node's row as one heartbeat showed it."""

    id: UUID
    seen: Seen
    app: str
    release_number: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The answer of one heartbeat."""

    node_renewed: bool
    led: frozenset[str]
    """The leaderships that were renewed."""
    leaders: dict[str, Seen]
    nodes: tuple[NodeSeen, ...]
    signals: tuple[Signal, ...]


@dataclass(frozen=True, slots=True)
class AckItem:
    """One outcome to be written under its token."""

    job: UUID
    token: int
    decision: Decision
    ran_seconds: float
    """Since the handler was started."""


@dataclass(frozen=True, slots=True)
class Acked:
    """What became of a batch of outcomes; an id in neither was refused: the claim was lost."""

    written: frozenset[UUID]
    locked: frozenset[UUID] = frozenset()
    """Somebody else's transaction holds the row: try again."""


class Completion(StrEnum):
    """What became of the user's transaction in which a job was completed."""

    OPEN = "open"
    ROLLED_BACK = "rolled back"
    OVER = "over"
    """Committed; or the job was taken away."""


@dataclass(frozen=True, slots=True)
class Rescued:
    job: UUID
    dead: UUID
    blamed: bool
    quarantined: bool


@dataclass(frozen=True, slots=True)
class Staged:
    count: int
    held_on: int
    """Due, but no live node knows their task."""
    next_in: float | None
    """Seconds until the next one is due."""


@dataclass(frozen=True, slots=True)
class DueSchedule:
    name: str
    spec: dict[str, Any]
    missed: str
    grace_seconds: float
    release: str
    high_water: datetime | None
    next_at: datetime
    now: datetime
    """The database's time at which it was due."""


@dataclass(frozen=True, slots=True)
class TickDecision:
    """One entry of the ledger."""

    at: datetime
    state: str
    """``fired`` or ``missed``"""
    job: UUID | None = None
    until: datetime | None = None
    """The end of a stretch of missed moments that starts at ``at``."""


@dataclass(frozen=True, slots=True)
class TickPlan:
    """A decision on some moments of one schedule."""

    name: str
    release: str
    seen: datetime | None
    """The high-water mark on which it stands."""
    high_water: datetime | None
    next_at: datetime | None
    ticks: tuple[TickDecision, ...]


@dataclass(frozen=True, slots=True)
class ScheduleDefinition:
    """A schedule as the code defines it."""

    name: str
    spec: dict[str, Any]
    described: str
    task_name: str
    job: dict[str, Any]
    missed: str
    grace_seconds: float
    next_at: datetime | None
    """The first moment, if the schedule is new or its spec changed."""


@dataclass(frozen=True, slots=True)
class Synced:
    newest: bool
    """False: a newer release is alive, and its definitions stand."""
    kept: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts for ``status``; each stops at 10,000."""

    ready: int
    waiting: int
    unknown: int
    quarantined: int
    oldest_seconds: float | None
    """How long the oldest available job has been due."""
    unknown_tasks: tuple[str, ...]
    queues: tuple[str, ...]
    """Queues with available jobs."""


Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Term:
    """A leadership of this process, as a duty names it."""

    leader: str
    token: int


class NodeStore(Protocol):
    async def register(self, node: NodeIdentity, lease_seconds: float, now: Now) -> int:
        """Insert the node; its token."""

    async def heartbeat(
        self,
        node: UUID,
        token: int,
        held: Sequence[Term],
        watched: Sequence[str],
        info: dict[str, Any],
        heard: Sequence[UUID],
        timeout: float,
        now: Now,
    ) -> Heartbeat:
        """Renew the node and ``held``, and see the rest. ``heard``: signals taken in before."""

    async def set_sleeping(self, node: UUID, queues: Sequence[str]) -> None: ...

    async def bury(self, term: Term, node: UUID, token: int, seq: int) -> str | None:
        """Declare dead what was observed silent; its worker_id, or None if it moved."""

    async def leave(self, node: UUID, token: int) -> bool: ...

    async def certify(self, node: UUID, timeout: float, *, process: bool = False) -> str | None:
        """This identity is dead, says who knows it: the process itself when nothing runs under
        it any more, or (``process``: with every identity that it took since) the parent that
        gave it and saw it die. Its worker_id, or None if it had no row."""

    async def deaths(self, limit: int) -> list[tuple[UUID, str]]:
        """Dead nodes whose jobs were not all freed: (id, worker_id)."""

    async def settle(self, nodes: Sequence[UUID]) -> int: ...

    async def new_epoch(self, node: UUID, token: int, epoch: int) -> int | None:
        """After this no claim of an epoch before ``epoch`` commits; the epoch that the node has
        now. Done again, or late, it changes nothing. None: the node is gone."""

    async def ensure_election(self, name: str, lease_seconds: float) -> bool:
        """Make its rows; True when they had been there before and were deleted."""

    async def acquire(
        self,
        name: str,
        node: NodeIdentity,
        seen: Seen,
        lease_seconds: float,
        timeout: float,
        now: Now,
    ) -> int | None:
        """Compare-and-swap; the new term, or None when the row was not as ``seen``."""

    async def resign(self, term: Term, node: UUID, timeout: float) -> bool: ...


class JobStore(Protocol):
    async def enqueue(
        self, jobs: Sequence[tuple[UUID, JobRequest]], payload_limit: int, retried: bool, now: Now
    ) -> list[tuple[UUID, bool]]:
        """(id, created) per job, in order. ``retried``: an earlier try may have committed."""

    async def copy(self, jobs: Sequence[tuple[UUID, JobRequest]]) -> None:
        """Bulk insert of plain jobs, all or none, and wake who sleeps on their queues."""

    async def claim(
        self, node: UUID, epoch: int, queue: str, not_tasks: Sequence[str], limit: int, now: Now
    ) -> list[ClaimedJob]: ...

    async def start(self, node: UUID, job: UUID, token: int, now: Now) -> bool: ...

    async def ack(self, node: UUID, items: Sequence[AckItem], now: Now) -> Acked:
        """Write outcomes, at most one of each job."""

    async def ack_again(self, node: UUID, items: Sequence[AckItem], now: Now) -> Acked:
        """The same after an unknown outcome: what was written the first time counts."""

    async def completion(self, node: UUID, job: UUID, token: int) -> Completion: ...

    async def give_back(self, node: UUID, claims: Sequence[tuple[UUID, int]]) -> int: ...

    async def give_back_unknown(self, node: UUID, epoch: int, known: Sequence[int]) -> int:
        """``known``: the tokens of the claims that we know of. Only in this ``epoch``: carried out
        late, it must not take what was claimed since."""

    async def requeue(self, job: UUID, token: int) -> bool | None:
        """None: the claim was lost; False: locked by a transaction, ask again."""

    async def rescue(
        self, nodes: Sequence[UUID], max_crashes: int, limit: int, now: Now
    ) -> list[Rescued]: ...

    async def stage(self, term: Term, limit: int, now: Now) -> Staged: ...

    async def progress(
        self, node: UUID, job: UUID, token: int, share: float, note: str | None
    ) -> bool | None:
        """None: the claim was lost; else whether somebody asked to cancel the job."""

    async def cancel(self, job: UUID, reason: str, now: Now) -> str | None:
        """``waiting`` (cancelled now), ``running`` (flagged), ``finished``, or None: not found."""

    async def retry(self, job: UUID, now: Now) -> str | None:
        """``waiting`` or ``finished`` (available now), ``running`` (left), None: not found."""

    async def get(self, job: UUID) -> JobRecord | None: ...

    async def jobs(
        self, state: str | None, queue: str | None, task: str | None, limit: int
    ) -> list[JobRecord]: ...


class ScheduleStore(Protocol):
    async def due_schedules(self, app: str, limit: int, now: Now) -> list[DueSchedule]: ...

    async def next_schedule(self, app: str, now: Now) -> tuple[float | None, float]:
        """Seconds until the next moment (None: there is none), and how many seconds the
        furthest decided moment lies ahead of the clock (0 or less: it does not)."""

    async def fire(
        self, term: Term, app: str, plans: Sequence[TickPlan], now: Now
    ) -> list[tuple[str, datetime, str]]:
        """Write decisions; the ledger entries made: (schedule, moment, state)."""

    async def database_now(self, app: str, now: Now) -> datetime: ...

    async def sync_schedules(
        self, app: str, release: str, schedules: Sequence[ScheduleDefinition], now: Now
    ) -> Synced: ...

    async def pause_schedule(self, app: str, name: str, paused: bool) -> bool: ...


class OperatorStore(Protocol):
    async def record(self, events: Sequence[dict[str, Any]], now: Now) -> None: ...

    async def prune(self, days: dict[str, int], limit: int, now: Now) -> int:
        """``days``: finished, events, ticks, attempts; how many rows went."""

    async def summary(self, now: Now) -> Summary: ...

    async def nodes(self, limit: int) -> Rows: ...

    async def leaders(self, limit: int) -> Rows: ...

    async def terms(self, name: str | None, limit: int) -> Rows: ...

    async def schedules(self, limit: int) -> Rows: ...

    async def ticks(self, schedule: str | None, limit: int) -> Rows: ...

    async def events(self, kind: str | None, after: int | None, limit: int) -> Rows: ...


class Store(NodeStore, JobStore, ScheduleStore, OperatorStore, Protocol):
    async def close(self) -> None: ...

    def shut(self) -> None:
        """Break every connection now: whoever waits gets Unavailable."""


class Wakeups(Protocol):
    """Notifications as an accelerator; polling goes on underneath."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    @property
    def healthy(self) -> bool:
        """A notification sent to ourselves arrived lately."""


@dataclass(frozen=True, slots=True)
class Wake:
    """One notification: ``q`` a queue has work, ``e`` an election is open, ``d`` a node died,
    ``c`` a job of this node is to be cancelled."""

    kind: str
    subject: str = ""
