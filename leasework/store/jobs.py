"""The queue: enqueue, claim, ack, rescue and control of jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from leasework.errors import LeaseworkError, PermissionDenied
from leasework.model.begins import Begins, Range
from leasework.model.job import COLUMNS, BulkJob, ClaimedJob, JobRecord, JobRequest, plain_first_try
from leasework.model.outcome import Decision
from leasework.model.states import State
from leasework.pg.connection.fast.copying import NULL, field, text
from leasework.pg.connection.fast.link import Row
from leasework.store.durable import MAKE_BATCH
from leasework.store.operation import Now, Operations, Term, operation

_RANGE = [f"range_{name}" for name in Range._fields]


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
    batches: bool = False
    """A batch has not ended."""


def _completion(rows: list[Row]) -> Completion:
    free, there = rows[0]
    if free:
        return Completion.ROLLED_BACK
    return Completion.OPEN if there else Completion.OVER


def claim_params(
    node: UUID,
    epoch: int,
    limits: Mapping[str, int],
    not_tasks: Sequence[str],
    now: Now,
    begins: Begins,
) -> dict[str, Any]:
    """Return the parameters of ``job/claim``. The queues are claimed in alphabetical order."""
    queues = sorted(limits)
    # no nulls, which a login may not be able to send
    columns = [_array(map(str, column)) for column in zip(*begins.ranges(queues), strict=True)]
    return {
        "node": node,
        "epoch": epoch,
        "queues": _array(map(_quoted, queues)),
        "limits": _array(str(limits[queue]) for queue in queues),
        "not_tasks": _array(map(_quoted, not_tasks)),
        "server": begins.server,
        "unsettled": begins.unsettled(),
        "settled": begins.settled,
        "asks": begins.asks(),
        **dict(zip(_RANGE, columns, strict=True)),
        "now": now,
    }


class JobStore(Operations):
    _may_insert = True
    """False if the login may only call leasework.enqueue, not write the table itself."""

    async def enqueue(
        self,
        jobs: Sequence[tuple[UUID, JobRequest[Any]]],
        payload_limit: int,
        retried: bool,
        now: Now,
    ) -> list[tuple[UUID, bool]]:
        """Enqueue jobs. Return (id, created) in order. ``retried``: a try may have committed."""
        plain = plain_first_try(jobs, payload_limit, retried) if self._may_insert else None
        if plain:
            job_id, job = plain
            options = job.options
            params = {
                "id": job_id.hex,
                "queue": options.queue,
                "task": options.task,
                "priority": options.priority,
                "max_attempts": options.max_attempts,
                "timeout": options.timeout,
                "requeue": options.requeue_after,
                "history": options.history,
                "payload": job.payload,
                "now": now,
            }
            seconds = self.pool.seconds_for(len(job.payload))
            try:
                rows = await self.pool.fetch("job/enqueue_plain", params, seconds)
                return [(job_id, bool(rows[0][0]))]
            except PermissionDenied:
                self._may_insert = False
        requests = [job.as_request(job_id, payload_limit) for job_id, job in jobs]
        if retried:
            requests = [{**request, "retried": True} for request in requests]
        sent = json.dumps(requests)
        seconds = self.pool.seconds_for(len(sent))
        waits = any(job.options.unique for _, job in jobs)
        params = {"jobs": sent, "now": now}
        rows = await self.pool.fetch("job/enqueue", params, seconds, waits=waits)
        return [(job_id, created) for job_id, created in rows]

    async def copy(
        self,
        jobs: Iterable[BulkJob],
        most: int,
        most_bytes: int = 0,
        batch: tuple[UUID, dict[str, Any]] | None = None,
    ) -> None:
        """Insert plain jobs by COPY, all or none, and wake the nodes asleep on their queues. It
        reads ``jobs`` while the database inserts the ones before. If that raises, nothing is
        inserted. ``most`` and ``most_bytes`` are upper limits of the jobs and of their
        arguments. ``batch``: the id and the definition of their batch, which is made with them."""
        queues: set[str] = set()
        first, name = None, "job/copy"
        if batch:
            definition = json.dumps({**batch[1], "total": most})
            params = {"batch": batch[0], "definition": definition, "jobs": "[]", "now": None}
            first, name = (MAKE_BATCH, params), "job/copy_batch"
        # prepares each block while the server works on the previous one
        lines = _copy_lines(jobs, queues, batch and batch[0])
        await self.pool.copy(name, lines, most, most_bytes, first)
        # The jobs are committed. A lost wake-up costs one poll and is not the caller's error.
        with suppress(LeaseworkError):
            await self.pool.fetch("job/wake", {"queues": sorted(queues)})

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
        begins = begins or Begins(self.pool.now)
        jobs: list[ClaimedJob] = []
        again = bool(limits)
        while again:
            params = claim_params(node, epoch, limits, not_tasks, now, begins)
            known = begins.server, len(begins.shared)
            for *job, seen in await self.pool.fetch("job/claim", params):
                if seen is None:
                    jobs.append(ClaimedJob(*job))
                else:
                    begins.note(job[2], seen)
            # if it was only told where others begin, it begins there now
            again = not jobs and known != (begins.server, len(begins.shared))
        return jobs

    @operation("job/start")
    async def start(self, node: UUID, job: UUID, token: int, now: Now) -> bool: ...

    async def ack(self, node: UUID, items: Sequence[AckItem], now: Now) -> Acked:
        """Write outcomes, at most one per job."""
        items = sorted(items, key=attrgetter("job.int"))  # rows are locked in this order
        decisions = [item.decision for item in items]
        params = {
            "node": node,
            "ids": _array([f"{item.job.int:032x}" for item in items]),
            "tokens": _array([str(item.token) for item in items]),
            "ran": _array([f"{item.ran_seconds:.6f}" for item in items]),
            # the statement pads a shorter array with nulls
            "results": [d.result for d in decisions] if any(d.result for d in decisions) else [],
            "now": now,
        }
        if all(d.state is State.COMPLETED and not d.log for d in decisions):
            left = await self.pool.fetch("job/ack_completed", params)  # shorter
        else:
            prints, logs = [d.fingerprint for d in decisions], [d.log for d in decisions]
            params |= {
                "states": [str(d.state) for d in decisions],
                "run_in": [d.run_in for d in decisions],
                "errors": [d.error for d in decisions],
                "tracebacks": [d.traceback for d in decisions],
                "fingerprints": prints if any(prints) else [],
                "logs": logs if any(logs) else [],
                "counts": [d.counts for d in decisions],
                "held": [d.held_because for d in decisions],
                "waits": [d.waits for d in decisions],
            }
            left = await self.pool.fetch("job/ack", params)
        # left: the jobs that were not written, and whether this node still has each of them
        written = frozenset([item.job for item in items])
        if not left:
            return Acked(written)
        locked = frozenset(job for job, ours in left if ours)
        return Acked(written - {job for job, _ in left}, locked)

    async def ack_again(self, node: UUID, items: Sequence[AckItem], now: Now) -> Acked:
        """Write outcomes again after an unknown result. Those written the first time count."""
        acked = await self.ack(node, items, now)
        rest = [i for i in items if i.job not in acked.written and i.job not in acked.locked]
        if not rest:
            return acked
        # this node no longer has these: did the first attempt write them, or were they taken?
        taken = await self.was_taken([i.job for i in rest], [i.token for i in rest])
        before = {item.job for item in rest if item.job not in taken}
        return Acked(acked.written | before, acked.locked)

    @operation("job/was_taken")
    async def was_taken(self, ids: Sequence[UUID], tokens: Sequence[int]) -> set[UUID]:
        """Return those of the jobs whose claims ended otherwise than by an outcome."""

    @operation("job/completion", answer=_completion)
    async def completion(self, node: UUID, job: UUID, token: int) -> Completion: ...

    @operation("job/give_back", answer=len)
    async def give_back(
        self, node: UUID, claims: Sequence[tuple[UUID, int]], now: Now = None
    ) -> int:
        """Give claims back without counting the run. Cancelled jobs end. Return how many; those
        whose rows are locked stay ours."""

    @operation("job/give_back_unknown", answer=len)
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

    async def get(self, job: UUID) -> JobRecord | None:
        for _ in range(2):  # one that is moving between its tables may be in neither
            rows = await self.pool.fetch("job/get", {"job": job})
            if rows:
                return JobRecord(*rows[0])
        return None


_SHARED = attrgetter(*COLUMNS)


def _copy_lines(
    jobs: Iterable[BulkJob], queues: set[str], batch: UUID | None = None
) -> Iterator[str]:
    """Yield the rows for job/copy. Options that jobs share are formatted once. ``queues`` collects
    the names of the queues."""
    member = f"\t{batch.hex}" if batch else ""
    last, middle = None, ""
    middles: dict[Any, str] = {}
    for job_number, options, payload, trace in jobs:
        if options is not last:
            last = options
            shared = _SHARED(options)
            if shared not in middles:
                middles[shared] = "\t".join(map(field, shared)) + member
            middle = middles[shared]
            queues.add(options.queue)
        yield f"{job_number:032x}\t{middle}\t{trace or NULL}\t{text(payload)}\n"


def _array(texts: Iterable[str]) -> str:
    """Return a PostgreSQL array literal of texts that need no quoting. This is much faster than
    psycopg's general conversion."""
    return "{" + ",".join(texts) + "}"


def _quoted(text: str) -> str:
    """Return an element of an array literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
