"""The client: inserts and controls jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from operator import eq
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from leasework import errors
from leasework.config import Settings, check_text
from leasework.env import Env, id_of
from leasework.jobs import tracing
from leasework.jobs.bulk import BulkJobs, Pair
from leasework.jobs.family import cancel_family
from leasework.model.codec import Codec, opened, sealed
from leasework.model.filter import JobFilter
from leasework.model.job import JobRecord, JobRequest, OnConflict, R, Unreadable, checked, encode
from leasework.model.moments import Duration, checked_timeout
from leasework.model.states import FINISHED, State
from leasework.store.reports import Reports
from leasework.store.store import Store
from leasework.tuning import Tuning

BatchGiven = tuple[UUID, dict[str, Any]]
"""A batch's id and definition, as ``leasework.make_batch`` takes it."""
Answers = list[tuple[UUID, bool]]
"""Of each job, its id, and whether it was created."""

_NOT_FOUND = (
    "A job exists once the transaction that enqueued it has committed, in the database of its "
    "connection, and until its retention period has passed"
)


class Job(Generic[R]):
    """An enqueued job. ``R`` is what its handler returns."""

    # The id stays a number until it is read: a bulk enqueue makes many jobs, and each UUID is
    # another object for the garbage collector.
    __slots__ = ("_client", "_number", "_read", "created")
    __match_args__ = ("id", "created")

    def __init__(
        self,
        number: int,
        created: bool,
        client: Callable[[], Awaitable[Client]],
        read: Callable[[Any], R] | None = None,
    ) -> None:
        self._number = number
        self.created: bool = created
        """False if its unique key matched an existing job, which this is then."""
        self._client = client  # the client of the calling event loop
        self._read = read  # converts the result from JSON

    @property
    def id(self) -> UUID:
        """The job's id, for :meth:`App.get`, :meth:`App.cancel` and others."""
        return id_of(self._number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        return (self._number, self.created) == (other._number, other.created)

    def __hash__(self) -> int:
        return hash((self._number, self.created))

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, created={self.created})"

    async def get(self) -> JobRecord:
        """Read the job's current state. Raises JobNotFound, also if its history was pruned."""
        return await (await self._client()).get(self.id)

    async def wait(self, timeout: Duration | None = None) -> R:
        """Wait until the job has finished, and return its result. Raises JobFailed (discarded,
        quarantined), JobCancelled, or WaitTimeout after ``timeout`` seconds; the job continues
        then. While the database is unavailable it retries, and raises Unavailable after
        ``timeout``."""
        result = await (await self._client()).wait(self.id, timeout)
        return self._read(result) if self._read else result

    async def cancel(self, reason: str = "cancelled") -> bool:
        """See :meth:`App.cancel`."""
        return await (await self._client()).cancel(self.id, reason)


J = TypeVar("J")


class Batch(NamedTuple, Generic[J]):
    """Jobs whose end is one event: see :meth:`App.batch`. ``J`` is :class:`Job`, or in code without
    an event loop SyncJob."""

    id: UUID
    """For :meth:`App.get_batch`."""
    jobs: list[J]
    """One that was not created, because another job holds its unique key, is no member."""

    def __repr__(self) -> str:
        return f"Batch(id={self.id!r}, jobs=[{len(self.jobs):,} jobs])"


class EnqueueOn(Protocol):
    async def enqueue(
        self, connection: Any, jobs: Sequence[Pair], payload_limit: int
    ) -> Answers: ...

    async def make_batch(
        self, connection: Any, batch: BatchGiven, jobs: Sequence[Pair], payload_limit: int
    ) -> Answers: ...

    async def signal(
        self, connection: Any, job: UUID, name: str, payload: str | None
    ) -> str | None: ...


@dataclass(eq=False)
class Client:
    """What an application can do with jobs without running them."""

    _store: Store
    _reports: Reports
    _env: Env
    _settings: Settings
    _on: EnqueueOn
    _of_loop: Callable[[], Awaitable[Client]]
    _codec: Codec | None = None

    async def enqueue(self, request: JobRequest[Any], on: Any = None) -> Job[Any]:
        """Enqueue one job. ``on`` is a connection of the user's: the job joins its transaction."""
        request = checked(request)
        sent = self._env.new_id()
        if tracing.traces():
            with tracing.enqueueing([(sent, request)]) as trace:
                traced = request.traced(trace or request.trace)
                answers = await self._insert([(sent, traced)], on)
        else:
            answers = await self._insert([(sent, request)], on)
        job_id = answers[0][0] if answers else sent
        # not what the last try says: an earlier one, whose answer was lost, may have created it
        return Job(job_id.int, job_id == sent, self._of_loop, request.options.read_result)

    async def batch(
        self, requests: Iterable[JobRequest[Any]], callbacks: dict[str, Any], on: Any = None
    ) -> Batch[Job[Any]]:
        """Enqueue jobs as a batch. ``callbacks``: as ``leasework.make_batch`` takes them."""
        batch = self._env.new_id()
        return Batch(batch, await self.enqueue_many(requests, on, (batch, callbacks)))

    async def signal(self, job: UUID | str, name: str, payload: Any, on: Any = None) -> bool:
        """See ``App.signal``."""
        check_text("a signal's name", name, self._settings.limits.text_chars)
        text, limit, job_id = None, self._settings.payload_limit, job_id_of(job)
        if payload is not None:
            text = encode("a signal's payload", payload, limit)
            text = sealed(self._codec, "a signal's payload", text, limit)
        if on is not None:
            found = await self._on.signal(on, job_id, name, text)
        else:
            found = await self._store.signal(job_id, name, text, self._env.due_now())
            if found is None:
                with suppress(errors.PermissionDenied):  # a role that may only enqueue
                    await self.get(job_id)
        return found is not None

    async def enqueue_many(
        self,
        requests: Iterable[JobRequest[Any]],
        on: Any = None,
        batch: BatchGiven | None = None,
    ) -> list[Job[Any]]:
        """Enqueue all of them or none. The ids are made here, so that a try with an unknown result
        can be repeated without duplicates. That is not possible for jobs with ``history`` off."""
        limits, env = self._settings.limits, self._env
        jobs = BulkJobs(requests, env.ids.numbers, limits.enqueue_rows)
        if not jobs and not batch:
            return []
        with tracing.enqueueing(jobs) if tracing.traces() else nullcontext() as trace:
            if trace:
                jobs.traced(trace)
            answers = await self._insert(jobs, on, batch)
        reads = [options.read_result for options in jobs.options]
        if answers is None:
            return list(map(Job, jobs.numbers, repeat(True), repeat(self._of_loop), reads))
        numbers = [job.int for job, _ in answers]
        created = map(eq, numbers, jobs.numbers)
        return list(map(Job, numbers, created, repeat(self._of_loop), reads))

    async def _insert(
        self, jobs: list[Pair] | BulkJobs, on: Any, batch: BatchGiven | None = None
    ) -> Answers | None:
        """Insert the jobs on the user's connection; or on our own, and then retry while the
        database is unavailable. None: all were created."""
        limit = self._settings.payload_limit
        if on is not None:
            if batch:
                return await self._on.make_batch(on, batch, jobs, limit)
            return await self._on.enqueue(on, jobs, limit)
        retried = False
        bulk = None if isinstance(jobs, list) else jobs
        attempt = 0
        while True:
            try:
                if bulk is not None and not retried and await self._copied(bulk, batch):
                    return None
                if batch:
                    given = [job.as_request(job_id, limit) for job_id, job in jobs]
                    return await self._store.make_batch(*batch, given, self._env.due_now())
                return await self._store.enqueue(jobs, limit, retried, self._env.due_now())
            except (errors.Unavailable, errors.ServerError) as error:
                sent = isinstance(error, errors.Unavailable) and error.sent
                if isinstance(error, errors.ServerError) and not retried:
                    raise
                retried = retried or sent
                unknown = sent and not isinstance(error, errors.Conflict)
                if attempt == Tuning.enqueue_tries - 1:
                    if retried and not sent:  # but an earlier try was sent, and may have succeeded
                        raise errors.Unavailable(error.what, do=error.do, sent=True) from error
                    raise
                if unknown and not all(map(_seen_by_a_retry, jobs)):
                    raise  # they may have run already
                await asyncio.sleep(self._env.jitter(Tuning.enqueue_first_pause * 3**attempt, 0.25))
                attempt += 1

    async def _copied(self, jobs: BulkJobs, batch: BatchGiven | None) -> bool:
        """Insert the jobs by COPY. Return False if that is not possible or not permitted."""
        if not jobs.can_be_copied(Tuning.copy_rows):
            return False
        try:
            await self._store.copy(jobs.copied(), len(jobs), jobs.bytes, batch)
        except errors.PermissionDenied:  # a role that may only enqueue
            return False
        return True

    async def get(self, job: UUID | str) -> JobRecord:
        record = await self._store.get(job_id_of(job))
        if record is None:
            raise no_such_job(job)
        return self._readable(record)

    async def jobs(
        self, wanted: JobFilter, limit: int, *, to_the_end: bool = False
    ) -> list[JobRecord]:
        """List jobs. See ``App.jobs``. ``to_the_end``: without a time limit."""
        if not 1 <= limit <= 10_000:
            raise errors.BadJob("limit must be from 1 to 10,000", got=limit)
        found = await self._reports.jobs(wanted, limit, to_the_end=to_the_end)
        return [self._readable(record) for record in found]

    def _readable(self, record: JobRecord) -> JobRecord:
        """The record with its arguments and result decoded."""
        payload, result = (self._opened(value) for value in (record.payload, record.result))
        return replace(record, payload=payload, result=result)

    def _opened(self, stored: Any) -> Any:
        try:
            return opened(self._codec, stored)
        except errors.BadPayload as error:
            return Unreadable(error.what)

    async def cancel(
        self, job: UUID | str, reason: str = "cancelled", family: bool = False
    ) -> bool:
        """Cancel a waiting job now, or tell a running one to stop. Return False if the job has
        already finished. Raises JobNotFound."""
        check_text("reason", reason, self._settings.limits.text_chars)
        act = partial(cancel_family, self._store) if family else self._store.cancel
        where = await act(job_id_of(job), reason, self._env.due_now())
        if where is None:
            raise no_such_job(job)
        return where != "finished"

    async def retry(self, job: UUID | str) -> bool:
        """Run a finished job again, or make a waiting one due now. Return False if the job is
        running. Raises JobNotFound."""
        where = await self._store.retry(job_id_of(job), self._env.due_now())
        if where is None:
            raise no_such_job(job)
        return where != "running"

    async def wait(self, job: UUID | str, timeout: Duration | None = None) -> Any:
        """Poll until the job has finished, faster at first. See ``Job.wait``."""
        started = self._env.boot_now()
        limit = checked_timeout(timeout)
        pause, found = 0.01, False
        while True:
            record, away = None, None
            try:
                record = await self.get(job)
                found = True
            except (errors.Unavailable, errors.ServerError) as error:
                if not found and isinstance(error, errors.ServerError):
                    raise
                away = error  # perhaps only for a moment, as in a failover: the job continues
            if record and record.state in FINISHED:
                return _result(record)
            left = None if limit is None else limit - (self._env.boot_now() - started)
            if left is not None and left <= 0:
                if record is None:
                    assert away
                    raise away
                raise errors.WaitTimeout(
                    f"job {record.id} is {record.state} after {limit:g} s",
                    do="The job continues. Wait again, or check its state",
                )
            await asyncio.sleep(pause if left is None else min(pause, left))
            pause = min(pause * 1.5, 0.5)


def _seen_by_a_retry(pair: Pair) -> bool:
    """Return whether another try finds the job if it has run. Without history, nothing is left of
    it. A job that replaced another has the other's id."""
    options = pair[1].options
    return options.history and options.on_conflict is not OnConflict.REPLACE


def _result(record: JobRecord) -> Any:
    if isinstance(record.result, Unreadable):
        raise errors.BadPayload(
            f"the result of job {record.id} cannot be read: {record.result.why}",
            do="Give this application the codec and the key with which the worker encoded it",
        )
    if record.state is State.COMPLETED:
        return record.result
    kind = errors.JobCancelled if record.state is State.CANCELLED else errors.JobFailed
    raise kind(
        f"job {record.id} was {record.state}", got=record.last_error or record.reason or "no reason"
    )


def no_such_job(job: UUID | str) -> errors.JobNotFound:
    return errors.JobNotFound("no such job", got=str(job), do=_NOT_FOUND)


def job_id_of(job: UUID | str) -> UUID:
    """Return the id as a UUID. Raises JobNotFound if it is not one."""
    if isinstance(job, UUID):
        return job
    try:
        return UUID(str(job))
    except ValueError:
        raise errors.JobNotFound(
            "a job's id is a UUID", got=job, do="Pass job.id, or an id from a list of jobs"
        ) from None
