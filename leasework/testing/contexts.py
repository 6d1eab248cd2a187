"""A context without a worker, to call a handler in a unit test."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from types import SimpleNamespace
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack
from uuid import UUID

from leasework.config import Limits
from leasework.env import Env
from leasework.errors import ConfigError, suggest
from leasework.jobs.context import Context, SyncContext
from leasework.jobs.running import Claim
from leasework.jobs.steps import StepTools
from leasework.model.deadline import DueDeadline
from leasework.model.job import ClaimedJob, encode
from leasework.model.moments import Duration, in_seconds
from leasework.model.outcome import StepItem
from leasework.own_tasks import without_loop
from leasework.store.durable import StepState

_NODE = UUID(int=0)
C = TypeVar("C", "FakeContext", "FakeSyncContext")


class Note(NamedTuple):
    """What a handler passed to ``ctx.progress``."""

    share: float
    note: str | None


class _Memory:
    """What the methods of a context write to, instead of the database."""

    def __init__(self, claim: Claim, signals: dict[str, Any]) -> None:
        self._claim = claim
        self.reason = ""
        self.notes: list[Note] = []
        self.completion: Any = None
        self.signals = signals
        self.steps_done: dict[str, Any] = {}

    async def steps(self, job: UUID) -> list[Any]:
        return []

    async def record(self, claim: Claim, item: StepItem) -> None:
        self.steps_done[item.name] = json.loads(item.result)

    async def record_step(self, connection: Any, node: UUID, item: StepItem) -> None:
        self.steps_done[item.name] = json.loads(item.result)

    async def wait_in_step(
        self, node: UUID, job: UUID, token: int, name: str, kind: str, signal: str | None,
        seconds: float | None, now: Any,
    ) -> StepState:  # fmt: skip
        came = signal in self.signals
        return StepState(False, {"payload": self.signals[str(signal)]} if came else None, 0.0)

    async def gather(self, *_: Any) -> Any:
        raise ConfigError(
            "ctx.gather and ctx.spawn need a database",
            do="Test this handler with the fixture leasework_app, and drain the jobs",
        )

    async def progress(
        self, node: UUID, job: UUID, token: int, share: float, note: str | None
    ) -> bool:
        if self._claim.stop_reason:
            raise asyncio.CancelledError
        self.notes.append(Note(share, note))
        return False

    async def get(self, job: UUID) -> SimpleNamespace:
        return SimpleNamespace(reason=self.reason)

    async def assert_mine(self, connection: Any, job: UUID, node: UUID, token: int) -> None: ...

    async def complete(
        self, connection: Any, job: UUID, node: UUID, token: int, result: Any
    ) -> str:
        written = encode("result", result, Limits.result_bytes)
        self.completion = json.loads(written)
        return written


class _Fake:
    """What a test sees and does, beside what a handler does."""

    claim: Claim
    memory: _Memory

    @property
    def notes(self) -> list[Note]:
        """The handler's progress: (share, note) pairs."""
        return self.memory.notes

    @property
    def steps_done(self) -> dict[str, Any]:
        """The results of the handler's steps, by name."""
        return self.memory.steps_done

    @property
    def completed(self) -> bool:
        """Whether the handler called ``ctx.complete``. Nothing was written to its connection."""
        return self.claim.completed_elsewhere

    @property
    def completion(self) -> Any:
        """The result that the handler passed to ``ctx.complete``."""
        return self.memory.completion

    def cancel(self, reason: str = "cancelled") -> None:
        """Cancel the job: ``ctx.cancelled`` is true from now on, and the next ``ctx.progress``
        raises CancelledError, in a :class:`FakeSyncContext` JobCancelled with the reason."""
        self.memory.reason = reason
        self.claim.end("cancel")


class FakeContext(_Fake, Context):
    """A context that remembers what the handler did. Made by :func:`context`."""


class FakeSyncContext(_Fake, SyncContext):
    """The same for a plain ``def`` handler. Made by :func:`sync_context`."""


class ContextGiven(TypedDict, total=False):
    """What :func:`context` and :func:`sync_context` take."""

    job_id: UUID
    task: str
    queue: str
    attempt: int
    """From 1."""
    max_attempts: int
    token: int
    timeout: Duration | None
    """Nothing limits the time of a handler that a test calls."""
    scheduled_for: datetime
    schedule: str | None
    deadline: DueDeadline | None
    state: Any
    """What ``App(lifespan=…)`` would yield."""
    signals: dict[str, Any]
    """The payloads that ``ctx.event`` returns, by name. It raises WaitTimeout for any other."""


def context(**given: Unpack[ContextGiven]) -> FakeContext:
    """Make a context for an ``async def`` handler, to call the handler without a database::

        ctx = context(attempt=2)
        await resize(ctx, photo=42)
        assert ctx.notes == [(0.5, "half"), (1.0, None)]

    All arguments are optional; ``scheduled_for`` is now by default. ``ctx.notes`` has the progress,
    ``ctx.completed`` and ``ctx.completion`` tell of ``ctx.complete``, ``ctx.cancel()`` cancels.
    Steps run; ``ctx.steps_done`` has their results. ``ctx.sleep`` returns at once.
    Raises ConfigError for an unknown argument.
    """
    return _made(FakeContext, given)


def sync_context(**given: Unpack[ContextGiven]) -> FakeSyncContext:
    """Make a context for a plain ``def`` handler. See :func:`context`."""
    return _made(FakeSyncContext, given)


def _made(kind: type[C], given: ContextGiven) -> C:
    for wrong in given.keys() - ContextGiven.__annotations__.keys():
        raise ConfigError(
            f"a context has no {wrong!r}", do=suggest(wrong, ContextGiven.__annotations__)
        )
    env = Env()
    job = ClaimedJob(
        id=given.get("job_id") or env.new_id(),
        task=given.get("task", "test"),
        queue=given.get("queue", "default"),
        payload={},
        priority=0,
        attempt=given.get("attempt", 1),
        max_attempts=given.get("max_attempts", 5),
        crashes=0,
        claim_token=given.get("token", 1),
        timeout=in_seconds(given.get("timeout")),
        requeue_after=None,
        scheduled_for=given.get("scheduled_for") or env.wall_now(),
        history=True,
        schedule=given.get("schedule"),
    )
    claim = Claim(job, _NODE, deadline=given.get("deadline"))
    memory: Any = _Memory(claim, given.get("signals") or {})
    run: Any = without_loop
    made = kind(claim, "test", memory, memory, run, given.get("state"))
    made._step_tools = StepTools(
        memory, memory, memory, env, None, Limits.result_bytes, Limits.payload_bytes
    )
    made.memory = memory
    return made
