"""The acker: writes outcomes in batches, each under its token, and drops none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from leasehold import errors
from leasehold.config import Limits
from leasehold.env import Env
from leasehold.model.backoff import Backoff
from leasehold.model.outcome import Decision, Outcome, decide
from leasehold.model.states import State
from leasehold.ports import AckItem, JobStore
from leasehold.services.running import Claim, Running
from leasehold.services.service import Service
from leasehold.services.tasks import Registry
from leasehold.telemetry import Emit

_DEFAULT_BACKOFF = Backoff()
_FULL = 100
"""A batch that is worth sending without waiting for more."""


class Acker(Service):
    """``put`` an outcome; it is written within ``flush_seconds``, at once when nothing else
    runs. When the database is away it is tried again until it answers."""

    name = "acker"

    def __init__(
        self,
        store: JobStore,
        env: Env,
        limits: Limits,
        registry: Registry,
        running: Running,
        emit: Emit,
        on_written: Callable[[], None],
    ) -> None:
        self._store = store
        self._env = env
        self._limits = limits
        self._registry = registry
        self._running = running
        self._emit = emit
        self._on_written = on_written
        self._queue: deque[tuple[Claim, AckItem]] = deque()
        self._unknown: set[int] = set()
        """Tokens of outcomes that were sent once and not answered."""
        self._since = 0.0
        self.wake: Callable[[], None] = lambda: None

    @property
    def backlog(self) -> int:
        """Outcomes that are not recorded yet."""
        return len(self._queue)

    def put(self, claim: Claim, outcome: Outcome) -> None:
        task = self._registry.find(claim.job.task)
        backoff = task.options.backoff if task else _DEFAULT_BACKOFF
        decision = decide(claim.job, outcome, backoff, self._env.rng.random())
        now = self._env.boot_now()
        ran = now - (claim.started_at if claim.started_at is not None else now)
        if not self._queue:
            self._since = now
        self._queue.append((claim, AckItem(claim.job.id, claim.job.claim_token, decision, ran)))
        if decision.state is not State.COMPLETED:
            self._tell(claim, decision)
        self.wake()

    def _tell(self, claim: Claim, decision: Decision) -> None:
        job = claim.job
        if decision.state is State.RETRYABLE:
            self._emit(
                "job_failed", job=job.id, task=job.task, attempt=job.attempt, error=decision.error
            )
        elif decision.state is State.DISCARDED:
            self._emit("job_discarded", job=job.id, task=job.task, error=decision.error)
        elif decision.held_because == "unknown_task":
            self._emit("job_unknown", job=job.id, task=job.task)

    async def tick(self, now: datetime | None) -> float:
        if not self._queue:
            return 60.0  # put() wakes us
        waited = self._env.boot_now() - self._since
        more_to_come = len(self._running) > len(self._queue)
        if len(self._queue) < _FULL and more_to_come and waited < self._limits.flush_seconds:
            return self._limits.flush_seconds - waited
        await self.flush(now)
        return 0.0 if self._queue else 60.0

    async def flush(self, now: datetime | None) -> None:
        """Write one batch. What was not written stays in the queue."""
        batch: list[tuple[Claim, AckItem]] = []
        node = self._queue[0][0].node
        # one identity a statement: after a self-fencing the old one's outcomes are refused
        while (
            self._queue and len(batch) < self._limits.batch_rows and self._queue[0][0].node == node
        ):
            batch.append(self._queue.popleft())
        try:
            accepted = await self._write(node, [item for _, item in batch], now)
        except errors.BadPayload as error:
            await self._single_out(batch, error, now)
            return
        except BaseException as error:
            if isinstance(error, errors.Unavailable) and error.sent:
                self._unknown.update(item.token for _, item in batch)
            self._queue.extendleft(reversed(batch))
            raise
        self._written(batch, accepted)

    async def _write(self, node: UUID, items: Sequence[AckItem], now: datetime | None) -> set[UUID]:
        if self._unknown and any(item.token in self._unknown for item in items):
            return await self._store.ack_again(node, items, now)
        return await self._store.ack(node, items, now)

    def _written(self, batch: list[tuple[Claim, AckItem]], accepted: set[UUID]) -> None:
        for claim, item in batch:
            self._unknown.discard(item.token)
            self._running.remove(claim)
            if item.job not in accepted:
                self._emit(
                    "ack_refused",
                    job=item.job,
                    task=claim.job.task,
                    token=item.token,
                    outcome=str(item.decision.state),
                )
        self._since = self._env.boot_now()
        self._on_written()

    async def _single_out(
        self, batch: list[tuple[Claim, AckItem]], error: errors.BadPayload, now: datetime | None
    ) -> None:
        """One result in the batch is nothing that the database can store: write the others, and
        that one as a failure."""
        if len(batch) == 1:
            claim, item = batch[0]
            failed = Decision(State.DISCARDED, error=str(error)[: self._limits.error_chars])
            batch = [(claim, AckItem(item.job, item.token, failed, item.ran_seconds))]
            self._tell(claim, failed)
        for pair in batch:
            accepted: set[UUID] = set()
            try:
                accepted = await self._write(pair[0].node, [pair[1]], now)
            except errors.BadPayload as bad:
                await self._single_out([pair], bad, now)
                continue
            self._written([pair], accepted)
