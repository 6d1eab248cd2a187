"""The queue: enqueue, claim, ack, rescue and control of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from leasehold.model.begins import Begins
from leasehold.model.filter import JobFilter
from leasehold.model.job import BulkJob, ClaimedJob, JobRecord, JobRequest
from leasehold.model.outcome import Decision
from leasehold.model.states import State
from leasehold.ports.common import Now, Term
from leasehold.ports.operation import Operations, count, operation


class AckItem(NamedTuple):
    """One outcome to be written under its token."""

    job: UUID
    token: int
    decision: Decision
    ran_seconds: float
    """Since the handler was started."""


class Acked(NamedTuple):
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


class JobStore(Operations):
    async def enqueue(
        self, jobs: Sequence[tuple[UUID, JobRequest]], payload_limit: int, retried: bool, now: Now
    ) -> list[tuple[UUID, bool]]:
        """(id, created) per job, in order. ``retried``: an earlier try may have committed."""

    async def copy(self, jobs: Iterable[BulkJob], most: int, most_bytes: int = 0) -> None:
        """Bulk insert of plain jobs, all or none, and wake who sleeps on their queues. They are
        asked for while the database works on those before them; what that raises ends it, and
        nothing was inserted. ``most``: so many there may be, ``most_bytes`` of
        arguments."""

    async def claim(
        self,
        node: UUID,
        epoch: int,
        limits: Mapping[str, int],
        not_tasks: Sequence[str],
        now: Now,
        begins: Begins | None = None,
    ) -> list[ClaimedJob]:
        """At most so many jobs of each queue, best first. ``begins`` learns where the next claim
        may begin; None: begin with the first job there is."""

    @operation("job/start")
    async def start(self, node: UUID, job: UUID, token: int, now: Now) -> bool: ...

    async def ack(self, node: UUID, items: Sequence[AckItem], now: Now) -> Acked:
        """Write outcomes, at most one of each job."""

    async def ack_again(self, node: UUID, items: Sequence[AckItem], now: Now) -> Acked:
        """The same after an unknown outcome: what was written the first time counts."""

    async def completion(self, node: UUID, job: UUID, token: int) -> Completion: ...

    async def give_back(
        self, node: UUID, claims: Sequence[tuple[UUID, int]], now: Now = None
    ) -> int:
        """The run does not count; what somebody asked to cancel is cancelled. How many;
        those whose rows somebody holds locked are still ours."""

    @operation("job/give_back_unknown", answer=count)
    async def give_back_unknown(
        self, node: UUID, epoch: int, known: Sequence[int], now: Now = None
    ) -> int:
        """``known``: the tokens of the claims that we know of. Only in this ``epoch``: carried out
        late, it must not take what was claimed since."""

    @operation("job/requeue")
    async def requeue(self, job: UUID, token: int, now: Now = None) -> State | None:
        """Take a job from its run, which counts: available again, or discarded if it was the last
        one, or cancelled if somebody asked for that. RUNNING: locked by a transaction, ask again;
        None: the claim was lost."""

    @operation("job/rescue")
    async def rescue(
        self, nodes: Sequence[UUID], max_crashes: int, limit: int, now: Now
    ) -> list[Rescued]: ...

    @operation("job/stage")
    async def stage(self, term: Term, limit: int, now: Now) -> Staged: ...

    @operation("job/progress")
    async def progress(
        self, node: UUID, job: UUID, token: int, share: float, note: str | None
    ) -> bool | None:
        """None: the claim was lost; else whether somebody asked to cancel the job."""

    async def cancel(self, job: UUID, reason: str, now: Now) -> str | None:
        """``waiting`` (cancelled now), ``running`` (flagged), ``finished``, or None: not found."""

    async def retry(self, job: UUID, now: Now) -> str | None:
        """``waiting`` or ``finished`` (available now), ``running`` (left), None: not found."""

    async def get(self, job: UUID) -> JobRecord | None: ...

    async def jobs(self, wanted: JobFilter, limit: int) -> list[JobRecord]:
        """The newest that match."""
