"""Eager mode: a job runs in the call that enqueues it, without a database."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

from leasework.app import App
from leasework.app.sync import SyncJob
from leasework.errors import ConfigError, JobFailed, JobNotFound, WaitTimeout, told
from leasework.jobs.client import Client, Job, job_id_of
from leasework.jobs.context import around
from leasework.jobs.running import Claim
from leasework.jobs.tasks import TaskFunction
from leasework.model.codec import opened
from leasework.model.filter import JobFilter
from leasework.model.job import ClaimedJob, JobOptions, JobRecord, JobRequest
from leasework.model.moments import Duration
from leasework.model.outcome import PLAIN, Discard, Outcome, decide, outcome_of
from leasework.model.states import FINISHED, State
from leasework.testing.contexts import FakeContext, FakeSyncContext, claim_for, of_claim

_REFUSED = ("run_at", "run_in", "unique", "deadline")


@contextmanager
def eager(app: App, *, state: Any = None) -> Iterator[None]:
    """Run each job of ``app`` at once, in this process and without a database::

        with eager(app):
            job = await send_mail.enqueue(to="kim@example.org")     # runs it
            assert await job.wait() == "sent"
            await assert_enqueued(app, send_mail, to="kim@example.org")

    Arguments and results are converted as the database would return them. Middleware runs. The
    application's lifespan is not entered: handlers get ``state`` as ``ctx.state``. The enqueue
    raises what the handler raises. A job runs once: no retries, no timeouts, no ``on_failure``.

    ``app.sync.enqueue`` works too. It runs a plain handler in the calling thread if the application
    has no middleware. A handler of ``executor="process"`` runs in this process.

    ``on=``, ``run_at``, ``run_in``, ``unique`` and deadlines raise ConfigError, because only the
    database gives them a meaning. Locks, leaders and nodes still use the database.
    """
    if "client" in vars(app):
        raise ConfigError("eager mode is on already", do="Use one `with eager(app):` at a time")
    client = _EagerClient(app, state)
    app.client = client.of_loop  # type: ignore[method-assign]
    app.sync.enqueue_many = client.enqueue_here  # type: ignore[method-assign]
    try:
        yield
    finally:
        del app.client, app.sync.enqueue_many


class _Run:
    """One job: called, it runs its handler, and returns what that returns."""

    def __init__(self, task: TaskFunction, claim: Claim, state: Any, result_bytes: int) -> None:
        self.task = task
        self.claim = claim
        self.is_async = inspect.iscoroutinefunction(task.function)
        write = task.values.write_completion
        self.outer = of_claim(FakeContext, claim, state, write, result_bytes)
        """For middleware."""
        self.context: FakeContext | FakeSyncContext = self.outer
        if not self.is_async:
            self.context = of_claim(FakeSyncContext, claim, state, write, result_bytes)

    def __call__(self) -> Any:
        return self._call(self.task.function)

    def in_a_thread(self) -> Any:
        """The same in a thread that is not the caller's."""
        return self._call(self.task.handler)

    def _call(self, function: Callable[..., Any]) -> Any:
        arguments = (self.context,) if self.task.takes_context else ()
        return function(*arguments, **self.task.values.read(self.claim.job.payload))


class _EagerClient(Client):
    """Runs jobs instead of inserting them, and remembers them."""

    def __init__(self, app: App, state: Any) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing, app.env, app.settings, nothing, self.of_loop, app.codec)
        self._app = app
        self._state = state
        self._records: dict[UUID, JobRecord] = {}

    async def of_loop(self) -> Client:
        return self

    async def enqueue(self, request: JobRequest[Any], on: Any = None) -> Job[Any]:
        return (await self.enqueue_many([request], on))[0]

    async def enqueue_many(
        self, requests: Iterable[JobRequest[Any]], on: Any = None, batch: Any = None
    ) -> list[Job[Any]]:
        if batch is not None:
            raise _only_database("app.batch")
        runs = self._runs(requests, on)
        for run in runs:
            with self._failing(run):
                self._ended(run, await self._handled(run))
        return self._jobs(runs)

    async def _handled(self, run: _Run) -> Any:
        def handler() -> Awaitable[Any]:
            work: Awaitable[Any] = run() if run.is_async else asyncio.to_thread(run.in_a_thread)
            return work

        return await around(self._app.registry.middleware, run.outer, handler)

    def enqueue_here(
        self, requests: Iterable[JobRequest[Any]], *, on: Any = None
    ) -> list[SyncJob[Any]]:
        """The same for ``app.sync``. Plain handlers run in this thread, if there is no
        middleware."""
        sync = self._app.sync
        sync._need_no_loop()
        runs = self._runs(requests, on)
        for run in runs:
            with self._failing(run):
                here = not run.is_async and not self._app.registry.middleware
                self._ended(run, run() if here else sync.call(self._handled(run)))
        return [SyncJob(sync, job) for job in self._jobs(runs)]

    def _runs(self, requests: Iterable[JobRequest[Any]], on: Any) -> list[_Run]:
        """Check all jobs before the first one runs."""
        if on is not None:
            raise _only_database("on=")
        runs, given = [], list(requests)
        for request in given:
            options = request.options
            for name in _REFUSED:
                if getattr(options, name):
                    raise _only_database(f"{name}=")
            claim = claim_for(
                {
                    "task": options.task,
                    "queue": options.queue,
                    "max_attempts": options.max_attempts,
                    "timeout": options.timeout,
                },
                opened(self._app.codec, json.loads(request.payload)),
            )
            task = self._app.registry.get(options.task)
            most = self._app.settings.limits.result_bytes
            runs.append(_Run(task, claim, self._state, most))
        for run, request in zip(runs, given, strict=True):
            self._started(run.claim.job, request.options)
        return runs

    def _started(self, job: ClaimedJob, options: JobOptions) -> None:
        self._records[job.id] = JobRecord(
            id=job.id,
            task_name=job.task,
            queue=job.queue,
            state=State.RUNNING,
            priority=options.priority,
            created_at=job.scheduled_for,
            scheduled_for=job.scheduled_for,
            started_at=job.scheduled_for,
            completed_at=None,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            claim_token=job.claim_token,
            worker_id="eager",
            progress=None,
            progress_note=None,
            cancel_requested=False,
            crashes=0,
            held_because=None,
            tags=options.tags,
            payload=job.payload,
        )

    @contextmanager
    def _failing(self, run: _Run) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._note(run, state=State.DISCARDED, last_error=told(error))
            raise

    def _ended(self, run: _Run, returned: Any) -> None:
        task, job = run.task, run.claim.job
        outcome: Outcome = PLAIN
        if returned is not None:
            outcome = outcome_of(
                task.name, returned, self._app.settings.limits.result_bytes, task.values
            )
        if isinstance(outcome, Discard) and outcome is not returned:  # it cannot be stored
            raise JobFailed(outcome.reason)
        end = decide(job, outcome, task.options.backoff, 0.0)
        result = None if end.result is None else json.loads(end.result)
        if run.claim.completed_elsewhere:
            result = run.context.completion
        said = {"reason" if end.state is State.CANCELLED else "last_error": end.error}
        self._note(run, state=end.state, result=result, **said)

    def _note(self, run: _Run, **changes: Any) -> None:
        if run.context.notes:
            changes["progress"], changes["progress_note"] = run.context.notes[-1]
        if changes["state"] in FINISHED:
            changes["completed_at"] = self._env.wall_now()
        job = run.claim.job.id
        self._records[job] = replace(self._records[job], **changes)

    def _jobs(self, runs: list[_Run]) -> list[Job[Any]]:
        return [
            Job(run.claim.job.id.int, True, self.of_loop, run.task.values.read_result)
            for run in runs
        ]

    async def get(self, job: UUID | str) -> JobRecord:
        record = self._records.get(job_id_of(job))
        if record is None:
            raise JobNotFound(
                "no such job in eager mode",
                got=str(job),
                do="Ask only for jobs that were enqueued inside `with eager(app):`",
            )
        return record

    async def jobs(self, wanted: JobFilter, limit: int) -> list[JobRecord]:
        found = [
            record
            for record in reversed(self._records.values())
            if wanted.state in (None, record.state)
            and wanted.queue in (None, record.queue)
            and wanted.task in (None, record.task_name)
            and (wanted.tag is None or wanted.tag in record.tags)
        ]
        return found[:limit]

    async def cancel(
        self, job: UUID | str, reason: str = "cancelled", family: bool = False
    ) -> bool:
        if (await self.get(job)).state in FINISHED:
            return False
        raise _only_database("cancel")

    async def retry(self, job: UUID | str) -> bool:
        raise _only_database("retry")

    async def wait(self, job: UUID | str, timeout: Duration | None = None) -> Any:
        record = await self.get(job)
        if record.state not in FINISHED:
            raise WaitTimeout(
                f"the job is {record.state}, and in eager mode it does not go on",
                do="Test this on a database: use the fixture leasework_app, and drain(app)",
            )
        return await super().wait(job, timeout)


def _only_database(what: str) -> ConfigError:
    return ConfigError(
        "eager mode has no transactions, delays, unique keys, deadlines and retries",
        got=what,
        do="Test this on a database: use the fixture leasework_app, and drain(app)",
    )
