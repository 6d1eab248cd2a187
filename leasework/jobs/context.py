"""The context of a handler: its job, its token, and operations on them; and the middleware."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar, overload
from uuid import UUID

from leasework.config import Limits
from leasework.errors import BadJob, JobCancelled, LeaseworkError, storable, without_secrets
from leasework.jobs.running import Claim, timed_out
from leasework.jobs.steps import (
    OnSteps,
    Steps,
    StepTools,
    checked_retry,
    inside,
    lost,
    values_of,
)
from leasework.model.deadline import DueDeadline
from leasework.model.job import JobRequest, R
from leasework.model.moments import Duration, in_seconds, is_number
from leasework.own_tasks import without_loop
from leasework.store.jobs import JobStore

T = TypeVar("T")
_RETURN = "Return from the handler, and write nothing more"
_logger = logging.getLogger("leasework.job")


class OnConnection(OnSteps, Protocol):
    """Operations on the user's own connection, inside its transaction."""

    async def assert_mine(self, connection: Any, job: UUID, node: UUID, token: int) -> None: ...

    async def complete(
        self, connection: Any, job: UUID, node: UUID, token: int, result: Any
    ) -> str | None:
        """Return the result as JSON."""


@dataclass
class Context:
    """The context of one attempt, passed to a handler whose first argument is named ``ctx``."""

    claim: Claim
    worker_id: str
    _store: JobStore
    _on: OnConnection
    _run: Callable[[Coroutine[Any, Any, Any]], Any] = without_loop
    """For handlers in a thread: runs a coroutine in the event loop and waits for it."""
    state: Any = None
    """What ``App(lifespan=…)`` yielded, such as clients and pools. None in a child process."""
    _write: Callable[[Any], Any] | None = None
    """Converts the result of ``complete`` by the handler's annotation."""
    _step_tools: StepTools | None = None
    _made_steps: Steps | None = None

    @property
    def job_id(self) -> UUID:
        """The job's id, the same for all its attempts: a key for services that take one."""
        return self.claim.job.id

    @property
    def task(self) -> str:
        """The name of the job's task."""
        return self.claim.job.task

    @property
    def queue(self) -> str:
        """The name of the job's queue."""
        return self.claim.job.queue

    @property
    def token(self) -> int:
        """The claim token. It grows with each claim of a job. Pass it to external systems that can
        refuse a lower one."""
        return self.claim.job.claim_token

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.claim.job.attempt

    @property
    def max_attempts(self) -> int:
        """The number of the attempt after which a failing job is discarded. Each run that ended
        because its worker died moves it by one, since that run has a number but does not count."""
        return self.claim.job.max_attempts + self.claim.job.crashes

    @property
    def scheduled_for(self) -> datetime:
        """For a schedule's job, the moment of its tick, however late or often it runs. For other
        jobs, when this attempt was due."""
        return self.claim.job.scheduled_for

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that enqueued this job, or None."""
        return self.claim.job.schedule

    @property
    def deadline(self) -> DueDeadline | None:
        """The job's deadline, as of the start of this run, or None."""
        return self.claim.deadline

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: the job was cancelled or timed out, its worker is
        stopping, or the claim was lost. A handler in a thread should check this regularly and
        return. (A coroutine is cancelled, a process is killed.) If it then returns None, it counts
        as stopped early. If it finished its work, it should return something else."""
        return self.claim.cancelled.is_set()

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the worker, the task, the job and the attempt to each line."""
        job = self.claim.job
        return _JobLog(
            _logger,
            {
                "worker_id": self.worker_id,
                "fields": {"task": job.task, "job": str(job.id), "attempt": job.attempt},
            },
        )

    async def progress(self, share: float, note: str | None = None) -> None:
        """Record the progress: ``share`` from 0 to 1. Raises BadJob for another share, and
        LostClaim if the claim was lost. If the job was cancelled, the handler is stopped here as
        it would be anywhere. If the database cannot record it, a line in the log says so. In a
        child process it does not wait for the database, and a lost claim kills the process."""
        if not is_number(share, 0, 1):
            raise BadJob(
                "progress takes a share from 0 to 1",
                got=share,
                do="Pass a fraction, such as done / total",
            )
        job = self.claim.job
        if self.claim.completed_elsewhere:
            return  # its row stays locked until the handler's transaction ends
        text = without_secrets(storable(str(note)[:1000]))[: Limits.text_chars] if note else None
        mine = (self.claim.node, job.id, job.claim_token)
        try:
            answer = await self._store.progress(*mine, float(share), text)
        except LeaseworkError as error:  # what the handler does is worth more than the report
            self.log.warning("the progress could not be recorded: %s", error)
            return
        if answer is None:
            raise lost(self.claim)
        # the job was cancelled, and the signal is late or lost; a handler that cleans up knows it
        if answer and not self.claim.stop_reason:
            self.claim.end("cancel")

    async def assert_mine(self, connection: Any) -> None:
        """Lock the job's row in the user's transaction, so that nobody can take the job away before
        the commit. Raises LostClaim if somebody already has. The server ends the transaction if it
        is idle for ten seconds."""
        job = self.claim.job
        await self._on.assert_mine(connection, job.id, self.claim.node, job.claim_token)

    async def complete(self, *, on: Any, result: Any = None) -> None:
        """Complete the job in the user's transaction, so that its effects and its completion commit
        together. ``result`` is the job's result, instead of what the handler returns. Raises
        BadPayload if it does not fit the handler's return annotation, LostClaim if the claim was
        lost, and BadJob with ``executor="process"``; roll back then. The server ends the
        transaction if it is idle for ten seconds."""
        job = self.claim.job
        if self._write:
            result = self._write(result)
        self.claim.completed_with = await self._on.complete(
            on, job.id, self.claim.node, job.claim_token, result
        )
        self.claim.completed_elsewhere = True

    @property
    def _steps(self) -> Steps:
        if self._made_steps is None:
            if self._step_tools is None:
                raise BadJob(
                    "steps do not work with executor='process'",
                    got=self.claim.job.task,
                    do="Leave executor out, and run the heavy part with subprocess",
                )
            self._made_steps = Steps(self.claim, self._step_tools)
        return self._made_steps

    @overload
    async def step(
        self, name: str, function: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any
    ) -> T: ...
    @overload
    async def step(
        self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> T: ...

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: object = None,
        timeout: Duration | None = None,
        retry: int = 0,
        on: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Call ``function(*args, **kwargs)`` and record what it returns, once. In a later run of
        the job, the recorded result is returned, and the function is not called::

            charge = await ctx.step("charge", charge_card, order_id, retry=3)

        - ``name``: how a later run finds the step. It is used once in a run; in a loop, give each
          step its ``key``: text, a number or an id.
        - ``timeout``: seconds for each try. ``retry``: how many further tries, with growing pauses,
          before the error is raised.
        - ``on``: your connection or session. The step is recorded in its transaction, which the
          function writes to and you commit: then the effect and the record are one.

        A worker that dies between the function's end and the record repeats the function, unless
        ``on`` is given. The result is converted by the function's return annotation, as that of a
        task. Raises what the function raises, BadJob for a wrong name, BadPayload for a result that
        cannot be stored, TimeoutError, or LostClaim.
        """
        steps, values = self._steps, values_of(function)
        label, found = await steps.begin(name, key, "step")
        if found:
            return steps.read(values, found.result)
        returned, seconds = await steps.run(label, function, args, kwargs, timeout, retry)
        return await steps.record(label, values, returned, seconds, on)

    async def sleep(
        self,
        seconds: Duration = 0,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        name: str = "sleep",
        key: object = None,
    ) -> None:
        """Suspend the job for that time, up to 100 years. Meanwhile it holds no slot and no room of
        its limits, and no attempt counts. ``name`` and ``key``: see :meth:`step`. Raises BadJob."""
        total = in_seconds(seconds) + 60.0 * (minutes + 60.0 * (hours + 24.0 * days))
        await self._steps.sleep(total, name, key)

    async def event(self, name: str, *, timeout: Duration | None = None, key: object = None) -> Any:
        """Wait for a signal to this job, and return its payload::

            decision = await ctx.event("approved", timeout=86400)

        :meth:`App.signal` sends it. One that was sent before is kept, and each is taken once, the
        oldest first. The job is suspended until it comes. To wait for the same name again, give
        each its ``key``. Raises WaitTimeout after ``timeout`` seconds, in every later run too.
        """
        return await self._steps.event(name, key, timeout)

    async def gather(
        self,
        jobs: Sequence[JobRequest[R]],
        *,
        name: str = "gather",
        key: object = None,
        return_exceptions: bool = False,
    ) -> list[R]:
        """Enqueue other jobs, suspend this one until all of them have ended, and return their
        results in their order::

            parts = await ctx.gather([resize.job(n) for n in range(1000)])

        A job that did not complete raises JobFailed. With ``return_exceptions``, that error is in
        its place instead. At most 10,000 jobs; their results are recorded with this job. Raises
        BadJob for jobs with a unique key or without history.
        """
        return await self._steps.gather(jobs, name, key, return_exceptions)

    async def spawn(self, job: JobRequest[Any], *, name: str = "spawn", key: object = None) -> UUID:
        """Enqueue another job, once, and return its id without waiting for it. Raises BadJob."""
        return await self._steps.spawn(job, name, key)


class SyncContext(Context):
    """The context of a handler in a thread. Its methods are plain functions that block."""

    @property
    def cancelled(self) -> bool:
        """See :attr:`Context.cancelled`."""
        self.claim.seen = super().cancelled
        return self.claim.seen

    def progress(self, share: float, note: str | None = None) -> None:  # type: ignore[override]
        """See :meth:`Context.progress`. Also raises JobCancelled (with the reason of the person who
        cancelled the job, or because the worker is stopping), JobTimeout or LostClaim if the
        handler should stop."""
        self._go_on()
        self._run(super().progress(share, note))
        self._go_on()

    def _go_on(self) -> None:
        if not self.cancelled:
            return
        match self.claim.stop_reason:
            case "cancel":
                why = self._run(self._reason())
                raise JobCancelled("the job was cancelled", got=why, do=_RETURN)
            case "lost":
                raise lost(self.claim)
            case "":
                raise timed_out(self.claim)
        raise JobCancelled("the worker is stopping, and the job runs again", do=_RETURN)

    async def _reason(self) -> str:
        """The reason of the person who cancelled the job."""
        with suppress(LeaseworkError):  # the handler ends, whether or not the database answers
            if record := await self._store.get(self.job_id):
                return record.reason or "no reason"
        return "a reason that could not be read"

    def step(  # type: ignore[override]
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        key: object = None,
        retry: int = 0,
        on: Any = None,
        **kwargs: Any,
    ) -> T:
        """See :meth:`Context.step`. The function runs in this thread, which no timeout can end."""
        self._go_on()
        further, steps, values = checked_retry(retry), self._steps, values_of(function)
        label, found = self._run(steps.begin(name, key, "step"))
        if found:
            result: T = steps.read(values, found.result)
            return result
        began = steps.tools.env.boot_now()
        with inside(label):
            for failures in range(1, further + 2):
                try:
                    returned = function(*args, **kwargs)
                    break
                except Exception:
                    if failures > further or self.claim.cancelled.wait(steps.pause(failures)):
                        raise
        seconds = steps.tools.env.boot_now() - began
        recorded = steps.record(label, values, returned, seconds, on)
        result = without_loop(recorded) if on is not None else self._run(recorded)
        return result

    def sleep(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """See :meth:`Context.sleep`."""
        self._run(super().sleep(*args, **kwargs))

    def event(self, name: str, **kwargs: Any) -> Any:
        """See :meth:`Context.event`."""
        return self._run(super().event(name, **kwargs))

    def gather(self, jobs: Sequence[JobRequest[R]], **kwargs: Any) -> list[R]:  # type: ignore[override]
        """See :meth:`Context.gather`."""
        results: list[R] = self._run(super().gather(jobs, **kwargs))
        return results

    def spawn(self, job: JobRequest[Any], **kwargs: Any) -> UUID:  # type: ignore[override]
        """See :meth:`Context.spawn`."""
        made: UUID = self._run(super().spawn(job, **kwargs))
        return made

    def assert_mine(self, connection: Any) -> None:  # type: ignore[override]
        """See :meth:`Context.assert_mine`. ``connection`` belongs to a sync driver."""
        without_loop(super().assert_mine(connection))

    def complete(self, *, on: Any, result: Any = None) -> None:  # type: ignore[override]
        """See :meth:`Context.complete`. ``on`` belongs to a sync driver."""
        without_loop(super().complete(on=on, result=result))


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        extra = dict(self.extra or {})
        fields: Any = extra.get("fields", {})
        words = " ".join(f"{name}={value}" for name, value in fields.items())
        kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        return f"{msg} worker={extra.get('worker_id')} {words}", kwargs


class CallNext(Protocol):
    """What a middleware awaits to run the handler: ``await call_next()`` returns its result or
    raises its error."""

    def __call__(self) -> Awaitable[Any]: ...


Middleware = Callable[[Context, CallNext], Awaitable[Any]]
"""A function for :meth:`App.middleware`."""


async def around(middleware: Sequence[Middleware], context: Context, handler: CallNext) -> Any:
    """Run the handler inside the middleware, of which the first is the outermost."""
    for one in reversed(middleware):
        handler = partial(one, context, handler)
    return await handler()
