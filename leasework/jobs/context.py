"""The context of a handler: its job, its token, and operations on them; and the middleware."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from leasework.config import Limits
from leasework.errors import BadJob, JobCancelled, LeaseworkError, LostClaim, shorten, storable
from leasework.jobs.running import Claim, timed_out
from leasework.model.deadline import DueDeadline
from leasework.model.moments import is_number
from leasework.own_tasks import without_loop
from leasework.store.jobs import JobStore

_RETURN = "Return from the handler, and write nothing more"
_logger = logging.getLogger("leasework.job")


class OnConnection(Protocol):
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
    _run: Callable[[Coroutine[Any, Any, Any]], Any] | None = None
    """For handlers in a thread: runs a coroutine in the event loop and waits for it."""
    state: Any = None
    """What ``App(lifespan=…)`` yielded, such as clients and pools. None in a child process."""
    _write: Callable[[Any], Any] | None = None
    """Converts the result of ``complete`` by the handler's annotation."""

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
        text = shorten(storable(str(note)), Limits.text_chars) if note else None
        mine = (self.claim.node, job.id, job.claim_token)
        try:
            answer = await self._store.progress(*mine, float(share), text)
        except LeaseworkError as error:  # what the handler does is worth more than the report
            self.log.warning("the progress could not be recorded: %s", error)
            return
        if answer is None:
            raise LostClaim("the job was taken away", got=str(job.id), do=_RETURN)
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
        assert self._run
        self._go_on()
        self._run(super().progress(share, note))
        self._go_on()

    def _go_on(self) -> None:
        if not self.cancelled:
            return
        match self.claim.stop_reason:
            case "cancel":
                assert self._run
                why = self._run(self._reason())
                raise JobCancelled("the job was cancelled", got=why, do=_RETURN)
            case "lost":
                raise LostClaim("the job was taken away", got=str(self.job_id), do=_RETURN)
            case "":
                raise timed_out(self.claim)
        raise JobCancelled("the worker is stopping, and the job runs again", do=_RETURN)

    async def _reason(self) -> str:
        """The reason of the person who cancelled the job."""
        with suppress(LeaseworkError):  # the handler ends, whether or not the database answers
            if record := await self._store.get(self.job_id):
                return record.reason or "no reason"
        return "a reason that could not be read"

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


# -- middleware ------------------------------------------------------------------------------------
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
