"""The acker: writes the outcomes of jobs in batches, each with its claim token, and drops none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec import structs

from leasework import errors
from leasework.errors import storable
from leasework.jobs.logged import lines_of
from leasework.jobs.running import Claim, Running
from leasework.jobs.tasks import Registry
from leasework.loops.service import BatchSize, Service, ServiceContext
from leasework.model.backoff import Backoff
from leasework.model.outcome import COMPLETED, PLAIN, Decision, Outcome, decide
from leasework.model.states import State
from leasework.store.jobs import Acked, AckItem
from leasework.tuning import Tuning

_DEFAULT_BACKOFF = Backoff()
_ROW_BYTES = 100
"""Bytes of an outcome without its result or error."""

Pair = tuple[Claim, AckItem]


class Acker(Service):
    """Writes each outcome that it is given with ``put``: within ``flush_seconds``, or at once when
    nothing else runs. While the database is unavailable, it retries until the write succeeds."""

    name = "acker"

    def __init__(
        self, context: ServiceContext, registry: Registry, running: Running, slots: int
    ) -> None:
        super().__init__(context)
        self._registry = registry
        self._running = running
        self._slots = slots
        self.on_written: Callable[[Sequence[Pair]], None] = lambda batch: None
        """Called after each batch. The executor sets it."""
        self._queue: deque[Pair] = deque()
        self._locked: list[Pair] = []
        """Outcomes whose rows were locked. They wait here and do not delay others."""
        self._locked_until = 0.0
        self._bytes = BatchSize(self._limits.batch_bytes)
        self._suspects = 0
        """The number of outcomes at the head of the queue that are written one at a time."""
        self._unknown: set[int] = set()
        """Tokens of outcomes that were sent but not confirmed."""
        self._since = 0.0
        self._in_flight = 0
        self._pressed = False
        """A job cannot start until an outcome is recorded."""
        self._usual = 0.0
        """Moving average of run times, in seconds."""
        self._careful = False
        """A kill would repeat many runs that take a while. So fewer jobs are unrecorded."""
        self._full = Tuning.full_batch_rows
        """A batch with so many outcomes is written at once."""

    @property
    def backlog(self) -> int:
        """The number of outcomes that are not recorded yet."""
        return len(self._queue) + self._in_flight + len(self._locked)

    def has_room(self, running: Callable[[], int]) -> bool:
        """Return whether another job may start. ``running`` counts those that run. A kill repeats
        every job that runs or is unrecorded: brief jobs cost little to repeat, and there are few
        long ones."""
        backlog = len(self._queue) + self._in_flight + len(self._locked)
        if not self._careful:
            return backlog <= self._limits.unrecorded_outcomes
        room = running() + backlog < max(Tuning.at_risk_jobs, self._slots)
        if not room and not self._pressed:
            self._pressed = True
            self.wake()
        return room

    def put(self, claim: Claim, outcome: Outcome, ended: float) -> None:
        """Queue an outcome. ``ended`` is a time of CLOCK_BOOTTIME."""
        job, queue = claim.job, self._queue
        decision = COMPLETED if outcome is PLAIN else self._decide(claim, outcome)
        ran = ended - (claim.started_at if claim.started_at is not None else ended)
        self._usual += (ran - self._usual) * 0.05
        self._careful = Tuning.brief_run_seconds < self._usual < Tuning.lasting_run_seconds
        self._full = Tuning.full_batch_rows // (2 if self._careful else 1)
        if not queue:
            self._since = ended
        queue.append((claim, AckItem(job.id, job.claim_token, decision, ran)))
        if decision is not COMPLETED and decision.state is not State.COMPLETED:
            self._report(claim, decision)
        # Wake on the first outcome, which starts the timer, and when the batch is complete.
        count = len(queue)
        if count == 1 or count >= len(self._running) or count >= self._full:
            self.wake()

    def _decide(self, claim: Claim, outcome: Outcome) -> Decision:
        task = self._registry.find(claim.job.task)
        backoff = task.options.backoff if task else _DEFAULT_BACKOFF
        decision = decide(claim.job, outcome, backoff, self._env.rng.random())
        keeps = decision.error is not None or (task and task.options.keep_log)
        if keeps and (log := lines_of(claim, self._limits.error_chars)):
            decision = structs.replace(decision, log=log)
        return decision

    def _report(self, claim: Claim, decision: Decision) -> None:
        job = claim.job
        error = "\n".join(filter(None, (decision.error, decision.traceback)))
        if decision.state is State.RETRYABLE:
            self._emit("job_failed", job=job.id, task=job.task, attempt=job.attempt, error=error)
        elif decision.state is State.DISCARDED:
            self._emit("job_discarded", job=job.id, task=job.task, error=error)

    async def tick(self, now: datetime | None) -> float:
        if self._locked and self._env.boot_now() >= self._locked_until:
            self._queue.extend(self._locked)
            self._locked.clear()
        if self._queue:
            waited = self._env.boot_now() - self._since
            more_to_come = len(self._running) > len(self._queue)
            patient = more_to_come and not self._pressed
            if len(self._queue) < self._full and patient and waited < self._limits.flush_seconds:
                return self._limits.flush_seconds - waited
            await self.flush(now)
        if self._queue:
            return 0.0
        if self._locked:
            return max(0.001, self._locked_until - self._env.boot_now())
        return 60.0  # put() wakes it

    async def flush(self, now: datetime | None) -> None:
        """Write one batch. Outcomes that could not be written stay in the queue."""
        batch: list[Pair] = []
        jobs: set[int] = set()
        node = self._queue[0][0].node
        most = 1 if self._suspects else self._limits.batch_rows
        # A batch has one node, because after self-fencing the old node's outcomes are refused, and
        # one outcome per job, because we may have lost a job and claimed it again.
        size = 0
        while self._queue and len(batch) < most and self._queue[0][0].node is node:
            item = self._queue[0][1]
            number, size_of_it = item.job.int, _size(item.decision)
            if number in jobs or (batch and size + size_of_it > self._bytes.now):
                break
            size += size_of_it
            batch.append(self._queue.popleft())
            jobs.add(number)
        self._in_flight, self._pressed = len(batch), False
        began = self._env.boot_now()
        try:
            items = [item for _, item in batch]
            again = self._unknown and any(item.token in self._unknown for item in items)
            write = self._store.ack_again if again else self._store.ack
            acked = await write(node, items, now)
        except (errors.UsageError, ValueError, TypeError) as error:
            # One of them cannot be stored: find it by writing one at a time, and discard it.
            if len(batch) == 1:
                batch = [self._failed(batch[0], error)]
            self._suspects = max(self._suspects, len(batch))
            self._queue.extendleft(reversed(batch))
            return
        except BaseException as error:
            if isinstance(error, errors.Unavailable) and error.sent:
                self._unknown.update(item.token for _, item in batch)
                self._bytes.unanswered(size)
            self._queue.extendleft(reversed(batch))
            raise
        finally:
            self._in_flight = 0
        self._bytes.answered(size, self._env.boot_now() - began)
        self._suspects = max(0, self._suspects - len(batch))
        self._written(batch, acked)

    def _failed(self, pair: Pair, error: Exception) -> Pair:
        claim, item = pair
        text = storable(f"its outcome cannot be stored: {error}")[: self._limits.error_chars]
        decision = Decision(State.DISCARDED, error=text)
        self._report(claim, decision)
        return claim, AckItem(item.job, item.token, decision, item.ran_seconds)

    def _written(self, batch: Sequence[Pair], acked: Acked) -> None:
        recorded = batch
        if len(acked.written) == len(batch) and not self._unknown:
            self._running.remove([claim for claim, _ in batch])
            batch = ()
        for claim, item in batch:
            if item.job in acked.locked:
                self._locked.append((claim, item))
                self._locked_until = self._env.boot_now() + Tuning.locked_row_seconds
                continue
            self._unknown.discard(item.token)
            self._running.remove([claim])
            if item.job not in acked.written:
                self._emit(
                    "ack_refused",
                    job=item.job,
                    task=claim.job.task,
                    token=item.token,
                    outcome=str(item.decision.state),
                )
        self._since = self._env.boot_now()
        self.on_written(recorded)


def _size(decision: Decision) -> int:
    """Approximate size in bytes."""
    if decision is COMPLETED:
        return _ROW_BYTES
    return _ROW_BYTES + sum(
        len(text or "")
        for text in (decision.result, decision.error, decision.traceback, decision.log)
    )
