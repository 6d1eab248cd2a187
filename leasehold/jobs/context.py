"""What a handler gets: its job, its token, and ways to speak to the database about them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from leasehold.config import Limits
from leasehold.errors import BadJob, JobCancelled, LostClaim, shorten, storable
from leasehold.jobs.running import Claim, timed_out
from leasehold.model.deadline import DueLevel
from leasehold.ports import JobStore

_logger = logging.getLogger("leasehold.job")


class OnConnection(Protocol):
    """Operations on a connection of the user's, inside the user's transaction."""

    async def assert_mine(self, connection: Any, job: UUID, node: UUID, token: int) -> None: ...

    async def complete(
        self, connection: Any, job: UUID, node: UUID, token: int, result: Any
    ) -> None: ...


@dataclass
class Context:
    """Passed to a handler as its first argument, if that is named ``ctx``."""

    claim: Claim
    worker_id: str
    _store: JobStore
    _on: OnConnection
    _run: Callable[[Awaitable[Any]], Any] | None = None
    """For handlers in a thread: run a coroutine in the loop and wait for it."""

    @property
    def job_id(self) -> UUID:
        return self.claim.job.id

    @property
    def token(self) -> int:
        """The claim's token: it only grows from claim to claim of a job. Pass it to outside
        systems that can refuse a lower one."""
        return self.claim.job.claim_token

    @property
    def attempt(self) -> int:
        """From 1."""
        return self.claim.job.attempt

    @property
    def scheduled_for(self) -> datetime:
        """The tick's moment for a schedule's job, however late or often it runs; else when this
        attempt was due."""
        return self.claim.job.scheduled_for

    @property
    def schedule(self) -> str | None:
        """The name of the schedule whose tick this job is."""
        return self.claim.job.schedule

    @property
    def deadlines(self) -> tuple[DueLevel, ...]:
        """The levels of the job's deadline, as they were when this run started."""
        return self.claim.deadlines

    @property
    def deadline(self) -> DueLevel | None:
        """The level that is due next (``.due_at``), else the last one; None: there is none."""
        due = [level for level in self.deadlines if level.due_at is not None]
        armed = [level for level in due if level.state == "armed"]
        if armed:
            return min(armed, key=lambda level: level.due_at)  # type: ignore[arg-type,return-value]
        return self.deadlines[-1] if self.deadlines else None

    @property
    def cancelled(self) -> bool:
        """The job shall end: somebody cancelled it, its time is over, its worker stops, or the
        claim was lost. A handler in a thread should look now and then, and return (a coroutine is
        cancelled, a process is killed). One that returns None after it has seen this has stopped
        early; one that has done its work all the same returns something else."""
        if not self.claim.cancelled.is_set():
            return False
        self.claim.seen = True
        return True

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines name the worker, the task, the job and the attempt."""
        job = self.claim.job
        return _JobLog(
            _logger,
            {
                "worker_id": self.worker_id,
                "fields": {"task": job.task, "job": str(job.id), "attempt": job.attempt},
            },
        )

    async def progress(self, share: float, note: str | None = None) -> None:
        """``share`` from 0 to 1. Raises LostClaim when the job is not ours any more. If somebody
        asked to cancel it, it ends here as it would anywhere."""
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise BadJob("progress takes a share from 0 to 1", got=share)
        job = self.claim.job
        if self.claim.completed_elsewhere:
            return  # its row is locked until the handler's transaction ends
        text = shorten(storable(str(note)), Limits.text_chars) if note else None
        answer = await self._store.progress(
            self.claim.node, job.id, job.claim_token, float(share), text
        )
        if answer is None:
            raise LostClaim("the job was taken away", got=str(job.id))
        if answer:  # somebody asked to cancel it, and the signal has not come, or got lost
            self.claim.end("cancel")

    async def assert_mine(self, connection: Any) -> None:
        """Inside the user's transaction: lock the job's row until it ends, so that nobody can
        take the job away before the commit. Raises LostClaim when somebody has. The server ends
        the transaction when it is idle for ten seconds."""
        job = self.claim.job
        await self._on.assert_mine(connection, job.id, self.claim.node, job.claim_token)

    async def complete(self, *, on: Any, result: Any = None) -> None:
        """Complete the job in the user's transaction: its effects and its completion are one
        commit. Raises LostClaim (roll back then) when the claim is lost. The server ends the
        transaction when it is idle for ten seconds."""
        job = self.claim.job
        await self._on.complete(on, job.id, self.claim.node, job.claim_token, result)
        self.claim.completed_elsewhere = True


class SyncContext(Context):
    """The same for a handler in a thread: ``progress`` and the others wait for their end."""

    def progress(self, share: float, note: str | None = None) -> None:  # type: ignore[override]
        """As :meth:`Context.progress`. When the job shall end it raises JobCancelled (somebody
        cancelled it, or its worker stops), JobTimeout or LostClaim."""
        assert self._run
        self._go_on()
        self._run(super().progress(share, note))
        self._go_on()

    def _go_on(self) -> None:
        if not self.cancelled:
            return
        match self.claim.stop_reason:
            case "cancel":
                raise JobCancelled("somebody cancelled the job")
            case "lost":
                raise LostClaim("the job was taken away", got=str(self.job_id))
            case "":
                raise timed_out(self.claim)
        raise JobCancelled("the worker stops; the job runs again")

    def assert_mine(self, connection: Any) -> None:  # type: ignore[override]
        _finish(super().assert_mine(connection))

    def complete(self, *, on: Any, result: Any = None) -> None:  # type: ignore[override]
        _finish(super().complete(on=on, result=result))


def _finish(work: Any) -> None:
    """Run a coroutine over a connection that never waits in a loop (a sync driver's)."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise BadJob("a handler in a thread needs a connection of a sync driver")


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        extra = dict(self.extra or {})
        fields: Any = extra.get("fields", {})
        words = " ".join(f"{name}={value}" for name, value in fields.items())
        kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        return f"{msg} worker={extra.get('worker_id')} {words}", kwargs
