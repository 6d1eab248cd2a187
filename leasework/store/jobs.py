"""The queue: enqueue, claim, ack, rescue and control of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from leasework.model.begins import Begins
from leasework.model.job import BulkJob, ClaimedJob, JobRecord, JobRequest
from leasework.model.outcome import Decision
from leasework.model.states import State
from leasework.store.operation import Now, Operations, Row, Term, count, operation


class AckItem(NamedTuple):
    """One outcome to write under its token."""

    job: UUID
    token: int
    decision: Decision
    ran_seconds: float
    """Seconds since the handler started."""


class Acked(NamedTuple):
    """What happened to a batch of outcomes. An id in neither set was refused (claim lost)."""

    written: frozenset[UUID]
    locked: frozenset[UUID] = frozenset()
    """Another transaction has locked the row: try again."""


class Completion(StrEnum):
    """What happened to the user's transaction in which a job was completed."""

    OPEN = "open"
    ROLLED_BACK = "rolled back"
    OVER = "over"
    """Committed, or the job was taken away."""


class Rescued(Struct, frozen=True):
    job: UUID
    dead: UUID
    blamed: bool
    quarantined: bool


class Staged(Struct, frozen=True):
    count: int
    held_on: int
    """Due jobs whose task no live node knows."""
    next_in: float | None
    """Seconds until the next job is due."""
    deadline_in: float | None = None
    """Seconds until the next deadline; negative if it has passed."""
    dead: bool = False
    """Dead nodes may still hold jobs."""
    schedules: bool = False
    """A schedule of the leader's application has a moment that is due."""


def _completion(rows: list[Row]) -> Completion:
    free, there = rows[0]
    if free:
        return Completion.ROLLED_BACK
    return Completion.OPEN if there else Completion.OVER


class JobStore(Operations):
    async def enqueue(
        self,
        jobs: Sequence[tuple[UUID, JobRequest[Any]]],
        payload_limit: int,
        retried: bool,
        now: Now,
    ) -> list[tuple[UUID, bool]]:
        """Enqueue jobs. Return (id, created) in order. ``retried``: a try may have committed."""

    async def copy(self, jobs: Iterable[BulkJob], most: int, most_bytes: int = 0) -> None:
        """Insert plain jobs by COPY, all or none, and wake the nodes asleep on their queues. It
        reads ``jobs`` while the database inserts the ones before. If that raises, nothing is
        inserted. ``most`` and ``most_bytes`` are upper limits of the jobs and of their
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
        """Claim at most ``limits`` jobs of each queue, best first. ``begins`` records where the
        next claim may begin. None: begin at the first job."""

    @operation("job/start")
    async def start(self, node: UUID, job: UUID, token: int, now: Now) -> bool: ...

    async def ack(self, node: UUID, items: Sequence[AckItem], now: Now) -> Acked:
        """Write outcomes, at most one per job."""

    async def ack_again(self, node: UUID, items: Sequence[AckItem], now: Now) -> Acked:
        """Write outcomes again after an unknown result. Those written the first time count."""

    @operation("job/completion", answer=_completion)
    async def completion(self, node: UUID, job: UUID, token: int) -> Completion: ...

    @operation("job/give_back", answer=count)
    async def give_back(
        self, node: UUID, claims: Sequence[tuple[UUID, int]], now: Now = None
    ) -> int:
        """Give claims back without counting the run. Cancelled jobs end. Return how many; those
        whose rows are locked stay ours."""

    @operation("job/give_back_unknown", answer=count)
    async def give_back_unknown(
        self, node: UUID, epoch: int, known: Sequence[int], now: Now = None
    ) -> int:
        """Give back all claims except those with the ``known`` tokens. It works only in this
        ``epoch``, so that a late execution does not take newer claims."""

    @operation("job/requeue")
    async def requeue(self, job: UUID, token: int, now: Now = None) -> State | None:
        """Take a job from its run, which counts. It becomes available, discarded if this was its
        last attempt, or cancelled if that was requested. Return its state. RUNNING: the row is
        locked, try again. None: the claim was lost."""

    @operation("job/candidates")
    async def candidates(
        self, queue: str, not_tasks: Sequence[str], skip: int, limit: int
    ) -> list[UUID]:
        """Return the best available jobs after the first ``skip``, for claims with advisory locks.
        The list may soon be stale."""

    @operation("job/claim_candidates")
    async def claim_candidates(
        self, node: UUID, epoch: int, jobs: Sequence[UUID], limit: int, now: Now
    ) -> list[ClaimedJob]:
        """Claim at most ``limit`` of ``jobs``: those that no other process is trying, and that are
        still available under the lock. They are in the order of ``jobs``."""

    @operation("job/rescue")
    async def rescue(
        self, nodes: Sequence[UUID], max_crashes: int, limit: int, now: Now
    ) -> list[Rescued]: ...

    @operation("job/note_stranded")
    async def note_stranded(self, page: int, pages: int) -> tuple[int, list[UUID]]:
        """Look at some pages of the table for running jobs whose node does not exist, and see to it
        that ``deaths`` and ``rescue`` find them. Return the next page (0: begin again), and the
        nodes that were not found there."""

    @operation("job/stage")
    async def stage(self, term: Term, limit: int, now: Now) -> Staged: ...

    @operation("job/progress")
    async def progress(
        self, node: UUID, job: UUID, token: int, share: float, note: str | None
    ) -> bool | None:
        """Return whether a cancel was requested, or None if the claim was lost."""

    async def cancel(self, job: UUID, reason: str, now: Now) -> str | None:
        """Return ``waiting`` (now cancelled), ``running`` (flagged), ``finished``, None:
        unknown."""

    async def retry(self, job: UUID, now: Now) -> str | None:
        """Return ``waiting`` or ``finished`` (now available), ``running`` (as is), None:
        unknown."""

    async def discard(self, job: UUID, reason: str, now: Now) -> str | None:
        """Return ``waiting`` or ``quarantined`` (now discarded), ``running`` or ``finished`` (as
        is), None: unknown."""

    async def reprioritize(self, job: UUID, priority: int) -> str | None:
        """Return ``waiting`` (now of this priority), ``running`` or ``finished`` (as is), None:
        unknown."""

    async def get(self, job: UUID) -> JobRecord | None: ...
