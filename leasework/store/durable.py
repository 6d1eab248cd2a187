"""Steps of jobs, signals to them, and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from msgspec import Struct

from leasework.model.outcome import StepItem
from leasework.store.operation import Now, Operations, operation, value

MAKE_BATCH = "batch/make"


class StepView(Struct, frozen=True):
    """A step of a job."""

    name: str
    kind: str
    """``step``, ``sleep``, ``event``, ``gather`` or ``spawn``."""
    open: bool
    """It waits."""
    until: datetime | None
    """When its wait ends. None: when what it waits for comes."""
    result: Any
    seconds: float | None
    at: datetime
    """When it was recorded; of one that waits, since when."""


class StepState(Struct, frozen=True):
    """How a step stands that waits, or that makes jobs."""

    open: bool
    result: Any
    """Of open jobs: their batch."""
    still: float | None = None
    """Seconds for which it waits on; None: without an end."""
    ended: bool = False
    """Its jobs have ended, and it has not recorded what they returned."""


class BatchView(Struct, frozen=True):
    """A batch, and how many of its jobs have ended."""

    id: UUID
    parent: UUID | None
    """The job that made it with ``ctx.gather`` or ``ctx.spawn``."""
    total: int
    unfinished: int
    failed: int
    """Discarded, quarantined and cancelled jobs."""
    made_at: datetime
    ended_at: datetime | None


class Ended(NamedTuple):
    """A job of a batch that has ended."""

    id: UUID
    state: str
    result: Any
    error: str | None


class Relative(Struct, frozen=True):
    """A job that another one has made."""

    id: UUID
    parent: UUID
    depth: int
    """1: a child."""
    task: str
    state: str
    started_at: datetime | None
    completed_at: datetime | None


def in_order(family: Sequence[Relative]) -> list[Relative]:
    """Return a family as a tree is read: each job followed by those that it has made."""
    children: dict[UUID, list[Relative]] = {}
    for one in family:
        children.setdefault(one.parent, []).append(one)
    made = {one.id for one in family}
    left = [one for one in reversed(family) if one.parent not in made]
    found: list[Relative] = []
    while left:
        found.append(left.pop())
        left += reversed(children.get(found[-1].id, ()))
    return found


class DurableCounts(Struct, frozen=True):
    """Each is counted up to 10,000."""

    suspended: Mapping[str, int]
    """By what they wait for: ``sleep``, ``event``, ``gather``."""
    overdue: int
    """Those that should have resumed more than a minute ago."""
    signals: int
    """Signals that no job has taken."""
    signal_seconds: float | None
    """Since the oldest of them was sent."""
    signal_job: UUID | None
    """The job of that one."""
    batches: int
    """Batches that have not ended."""
    stuck_batch: UUID | None
    """One whose last jobs nobody can run."""


class DurableReports(Operations):
    @operation("step/load")
    async def steps(self, job: UUID) -> list[StepView]: ...

    @operation("step/family")
    async def family(
        self, jobs: Sequence[UUID], limit: int, unfinished: bool = False
    ) -> list[Relative]:
        """Return the jobs that these have made, and those have made, the parents first.
        ``unfinished``: only those that have not ended."""

    @operation("step/inbox")
    async def inbox(self, job: UUID) -> list[tuple[str, int, datetime]]:
        """Return the signals that the job has not taken: name, how many, since when."""

    @operation("step/counts")
    async def durable_counts(self, now: Now) -> DurableCounts: ...

    @operation("batch/get")
    async def get_batch(self, batch: UUID) -> BatchView | None: ...

    @operation("batch/results")
    async def batch_results(self, batch: UUID, after: UUID, limit: int) -> list[Ended]:
        """Return the ended jobs of a batch, in their order."""


class DurableStore(DurableReports):
    @operation("step/record")
    async def record_steps(
        self, node: UUID, steps: Sequence[StepItem], now: Now
    ) -> set[tuple[UUID, str]]:
        """Record steps, each under its live claim, in the order of their jobs: rows are locked in
        it. Return the (job, name) of those recorded. A repetition of the same call finds its
        own."""

    @operation("step/wait")
    async def wait_in_step(
        self,
        node: UUID,
        job: UUID,
        token: int,
        name: str,
        kind: str,
        signal: str | None,
        seconds: float | None,
        now: Now,
    ) -> StepState | None:
        """Begin or continue to wait in a step. None: the claim was lost."""

    @operation("step/gather")
    async def gather(
        self,
        node: UUID,
        job: UUID,
        token: int,
        name: str,
        kind: str,
        batch: UUID,
        jobs: list[dict[str, Any]],
        now: Now,
    ) -> StepState | None:
        """Make jobs in a step, once. None: the claim was lost, or the job is being cancelled."""

    @operation("step/gathered", answer=value)
    async def gathered(
        self, node: UUID, job: UUID, token: int, name: str, now: Now
    ) -> list[list[Any]] | Literal[False] | None:
        """Record what the ended jobs of a step returned, and return it: id, state, result and
        error of each. None: the claim was lost. False: one of them runs again."""

    @operation("step/forget", answer=value)
    async def forget_steps(self, job: UUID, name: str) -> int:
        """Forget this step and all that began after it. Return how many; 0 if the job runs."""

    @operation("step/signal", answer=value, waits=True)
    async def signal(self, job: UUID, name: str, payload: str | None, now: Now) -> str | None:
        """Send a signal: ``woken``, ``kept``, or None if no unfinished job has this id."""

    @operation(MAKE_BATCH)
    async def make_batch(
        self, batch: UUID, definition: dict[str, Any], jobs: list[dict[str, Any]], now: Now
    ) -> list[tuple[UUID, bool]]:
        """Make a batch and enqueue its jobs: (id, created) of each. One that exists stays."""

    @operation("batch/end")
    async def end_batches(self, now: Now) -> tuple[int, bool]:
        """End batches whose jobs have all ended. Return how many, and whether any is open."""
