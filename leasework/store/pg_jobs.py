"""The store's operations on jobs that need more than a declaration."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import UUID

from leasework.errors import BadPayload, Conflict, LeaseworkError, PermissionDenied
from leasework.model.begins import Begins, Range
from leasework.model.job import COLUMNS, BulkJob, ClaimedJob, JobRecord, JobRequest, plain_first_try
from leasework.model.states import State
from leasework.pg.connection.encodings import words_in_ascii
from leasework.pg.connection.fast.copying import NULL, field, text
from leasework.pg.connection.fast.link import Row
from leasework.pg.connection.pool import Pool
from leasework.store.jobs import Acked, AckItem, JobStore
from leasework.store.operation import Now
from leasework.store.operator import OperatorStore
from leasework.tuning import Tuning

_RANGE = [f"range_{name}" for name in Range._fields]


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


class PgJobs(JobStore, OperatorStore):
    _pool: Pool
    _may_insert = True
    """False if the login may only call leasework.enqueue, not write the table itself."""

    async def enqueue(
        self,
        jobs: Sequence[tuple[UUID, JobRequest[Any]]],
        payload_limit: int,
        retried: bool,
        now: Now,
    ) -> list[tuple[UUID, bool]]:
        plain = plain_first_try(jobs, payload_limit, retried) if self._may_insert else None
        if plain:
            job_id, job = plain
            try:
                return [(job_id, await self._enqueue_plain(job_id, job, now))]
            except PermissionDenied:
                self._may_insert = False
        requests = [job.as_request(job_id, payload_limit) for job_id, job in jobs]
        if retried:
            requests = [{**request, "retried": True} for request in requests]
        text = json.dumps(requests)
        params = {"jobs": text, "now": now}
        seconds = self._pool.seconds_for(len(text))
        waits = any(job.options.unique for _, job in jobs)
        rows = await self._pool.fetch("job/enqueue", params, seconds, waits=waits)
        return [(job_id, created) for job_id, created in rows]

    async def _enqueue_plain(self, job_id: UUID, job: JobRequest[Any], now: Now) -> bool:
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
        seconds = self._pool.seconds_for(len(job.payload))
        return bool((await self._pool.fetch("job/enqueue_plain", params, seconds))[0][0])

    async def copy(self, jobs: Iterable[BulkJob], most: int, most_bytes: int = 0) -> None:
        queues: set[str] = set()
        # prepares each block while the server works on the previous one
        await self._pool.copy("job/copy", _copy_lines(jobs, queues), most, most_bytes)
        # The jobs are committed. A lost wake-up costs one poll and is not the caller's error.
        with suppress(LeaseworkError):
            await self._pool.fetch("job/wake", {"queues": sorted(queues)})

    async def claim(
        self,
        node: UUID,
        epoch: int,
        limits: Mapping[str, int],
        not_tasks: Sequence[str],
        now: Now,
        begins: Begins | None = None,
    ) -> list[ClaimedJob]:
        begins = begins or Begins(self._pool.now)
        jobs: list[ClaimedJob] = []
        again = bool(limits)
        while again:
            params = claim_params(node, epoch, limits, not_tasks, now, begins)
            known = begins.server, len(begins.shared)
            for *job, seen in await self._pool.fetch("job/claim", params):
                if seen is None:
                    jobs.append(ClaimedJob(*job))
                else:
                    begins.note(job[2], seen)
            # if it was only told where others begin, it begins there now
            again = not jobs and known != (begins.server, len(begins.shared))
        return jobs

    async def ack(self, node: UUID, items: Sequence[AckItem], now: Now) -> Acked:
        """Record outcomes. A batch in which every job succeeded uses a shorter statement."""
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
        if all(d.state is State.COMPLETED for d in decisions):
            return _acked(items, await self._pool.fetch("job/ack_completed", params))
        params |= {
            "states": [str(d.state) for d in decisions],
            "run_in": [d.run_in for d in decisions],
            "errors": [d.error for d in decisions],
            "tracebacks": [d.traceback for d in decisions],
            "counts": [d.counts for d in decisions],
            "held": [d.held_because for d in decisions],
        }
        fetch = partial(self._pool.fetch, "job/ack")
        try:
            return _acked(items, await fetch(params))
        except BadPayload:
            return _acked(items, await fetch({**params, **words_in_ascii(params)}))

    async def ack_again(self, node: UUID, items: Sequence[AckItem], now: Now) -> Acked:
        acked = await self.ack(node, items, now)
        rest = [i for i in items if i.job not in acked.written and i.job not in acked.locked]
        if not rest:
            return acked
        # This node no longer has these: did the first attempt write them, or were they taken?
        params = {"ids": [i.job for i in rest], "tokens": [i.token for i in rest]}
        taken = {row[0] for row in await self._pool.fetch("job/was_taken", params)}
        before = {item.job for item in rest if item.job not in taken}
        return Acked(acked.written | before, acked.locked)

    async def cancel(self, job: UUID, reason: str, now: Now) -> str | None:
        return await _control(job, lambda: self.cancel_many([job], reason, now))

    async def retry(self, job: UUID, now: Now) -> str | None:
        return await _control(job, lambda: self.retry_many([job], now))

    async def discard(self, job: UUID, reason: str, now: Now) -> str | None:
        return await _control(job, lambda: self.discard_many([job], reason, now))

    async def reprioritize(self, job: UUID, priority: int) -> str | None:
        return await _control(job, lambda: self.reprioritize_many([job], priority))

    async def get(self, job: UUID) -> JobRecord | None:
        for _ in range(2):  # as in _control
            rows = await self._pool.fetch("job/get", {"job": job})
            if rows:
                return JobRecord(*rows[0])
        return None


async def _control(job: UUID, act: Callable[[], Awaitable[dict[UUID, str]]]) -> str | None:
    """Act on one job. A job that is moving between its tables may be visible in neither: try again
    with a fresh snapshot before reporting that it does not exist."""
    for look in range(Tuning.locked_tries):
        where = (await act()).get(job)
        if where is not None and where not in ("locked", "unchanged"):
            return where
        if where is None and look >= 2:
            return None
        # wait here: in the database, later calls would queue behind this one
        await asyncio.sleep(Tuning.locked_first_pause * 2**look if where else 0)
    raise Conflict(
        "a transaction holds a lock on the job's row: its handler completes it there, or "
        "another session has locked it",
        got=str(job),
        do="Try again when that transaction has ended",
    )


_SHARED = attrgetter(*COLUMNS)


def _copy_lines(jobs: Iterable[BulkJob], queues: set[str]) -> Iterator[str]:
    """Yield the rows for job/copy. Options that jobs share are formatted once. ``queues`` collects
    the names of the queues."""
    last, middle = None, ""
    middles: dict[Any, str] = {}
    for job_number, options, payload, trace in jobs:
        if options is not last:
            last = options
            shared = _SHARED(options)
            if shared not in middles:
                middles[shared] = "\t".join(map(field, shared))
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


def _acked(items: Sequence[AckItem], left: Sequence[Row]) -> Acked:
    """Return the result. ``left`` are the jobs that were not written, and whether this node still
    has each of them."""
    jobs = frozenset([item.job for item in items])
    if not left:
        return Acked(jobs)
    return Acked(jobs - {job for job, _ in left}, frozenset(job for job, ours in left if ours))
