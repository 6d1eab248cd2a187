"""The executor: runs claimed jobs, those of each queue within its number of slots.

One runner per queue takes one job after another, so a handler that never suspends needs no task.
When a handler waits, its runner stays with it, and another runner takes over the queue.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from dataclasses import dataclass
from types import coroutine
from typing import Any, TypeVar
from uuid import UUID

from leasework import own_tasks
from leasework.config import Limits
from leasework.jobs.acker import Acker
from leasework.jobs.attempt import Attempts
from leasework.jobs.running import Claim, Running
from leasework.lease.membership import Membership
from leasework.loops.service import BatchSize, ServiceContext
from leasework.model.outcome import Unable
from leasework.tuning import Tuning

T = TypeVar("T")


class LocalQueue:
    """One queue on this node: its slots, and the claimed jobs that wait for one."""

    def __init__(self, name: str, slots: int, claim: str = "rows") -> None:
        self.name = name
        self.slots = slots
        self.claim = claim
        """``rows`` or ``advisory``."""
        self.waiting: deque[Claim] = deque()
        self.running = 0
        self.reserved = 0
        """Slots that are left to jobs with limits, which are claimed only for idle slots."""
        self.last_limited = False
        """The last job that started has limits."""
        self.taking = False
        """A runner is taking jobs from the queue."""
        self.batch = BatchSize(Limits.batch_rows)
        """The number of rows to claim at once. Their size is only known after they arrive."""
        self.finished = 0
        """The number of jobs finished since the start. The producer derives the rate from it."""
        self.on_room: Callable[[], None] = lambda: None

    def has_slot(self) -> bool:
        """Return whether the first job that waits may start."""
        if not self.waiting or self.running >= self.slots:
            return False
        if not self.reserved or self.waiting[0].job.lane is not None:
            return True
        # with one slot, both kinds take turns
        return self.running < self.slots - self.reserved or (self.slots == 1 and self.last_limited)


@dataclass(eq=False, slots=True)
class _Turn:
    """A runner: its task, and whether its job has suspended."""

    _executor: Executor
    queue: LocalQueue
    task: own_tasks.OwnTask[None]
    suspended: bool = False

    def on_suspend(self) -> None:
        """Let another runner take over the queue."""
        self.suspended, self.queue.taking = True, False
        self._executor.pump(self.queue)


class Executor:
    """Runs the claims that it is given with ``submit``. Before each run, it asks the node's
    membership and the acker whether the job may start. After it, the acker gets the outcome."""

    def __init__(
        self,
        context: ServiceContext,
        running: Running,
        acker: Acker,
        membership: Callable[[], Membership],
        attempts: Attempts,
    ) -> None:
        self._env, self._limits = context.env, context.settings.limits
        self._emit = context.emit
        self.running = running
        self.acker = acker
        acker.on_written = lambda batch: self.pump_all()
        self._membership = membership
        self._attempts = attempts
        self._tasks: set[own_tasks.OwnTask[None]] = set()
        self._waiting = threading.Lock()
        """For the queues' waiting jobs. The guard's thread takes them while the loop is stuck."""
        self._alone: deque[tuple[LocalQueue, Claim, float]] = deque()
        """Suspects that wait to run alone, and since when."""
        self._alone_running = False
        self.queues: dict[str, LocalQueue] = {}

    def submit(self, queue: LocalQueue, claims: list[Claim]) -> None:
        self.running.add(claims)
        self._attempts.prepare()
        with self._waiting:
            queue.waiting.extend(claims)
        self.pump(queue)

    def submit_limited(self, queue: LocalQueue, claims: list[Claim]) -> None:
        """The same for jobs with limits, which were claimed for idle slots."""
        self.running.add(claims)
        self._attempts.prepare()
        with self._waiting:
            queue.waiting.extendleft(reversed(claims))
        self.pump(queue)

    def pump(self, queue: LocalQueue) -> None:
        """Start a runner if jobs wait and none takes them."""
        if self._alone:
            self._start_alone()
        elif not queue.taking and queue.has_slot():
            queue.taking = True
            self._spawn(queue)

    def pump_all(self) -> None:
        """The same for all queues: jobs that waited for the record of outcomes may start now."""
        for queue in self.queues.values():
            self.pump(queue)

    def _spawn(self, queue: LocalQueue, first: Claim | None = None) -> None:
        task = own_tasks.start(self._runner(queue, first), name="leasework-runner")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self, queue: LocalQueue) -> Claim | None:
        """Take the next job that may start now."""
        if not queue.has_slot() or self.exclusive:
            return None
        now = self._env.boot_now()
        with self._waiting:
            claim = queue.waiting[0] if queue.waiting else None
            if claim is None or not self._may_start(claim, now):
                return None
            queue.waiting.popleft()
        queue.last_limited = claim.job.lane is not None
        if claim.job.crashes < self._limits.max_crashes - 1:
            claim.started_at = now
            return claim
        # This job may kill its node. It runs alone, so that no other job is blamed.
        self._alone.append((queue, claim, now))
        self._start_alone()
        for other in self.queues.values():
            other.on_room()  # the producer gives back what waits behind it
        return None

    def _may_start(self, claim: Claim, now: float) -> bool:
        valid = self._membership().covers(claim.node, claim.job.claim_token, now)
        return valid and self.acker.has_room(self.busy)

    @property
    def exclusive(self) -> bool:
        """Whether a suspect runs alone or waits to run, so that no other job starts."""
        return self._alone_running or bool(self._alone)

    def _start_alone(self) -> None:
        if self._alone_running or any(queue.running for queue in self.queues.values()):
            return
        queue, claim, _ = self._alone[0]
        now = self._env.boot_now()
        if not self._may_start(claim, now):
            return
        claim.started_at = now
        self._alone.popleft()
        self._alone_running = True
        self._spawn(queue, claim)

    def put_off_suspects(self) -> None:
        """Let another node take the suspects that have waited too long for this node's other jobs
        to end, and start other jobs again."""
        now = self._env.boot_now()
        late = [each for each in self._alone if now - each[2] >= Tuning.alone_seconds]
        for each in late:
            self._alone.remove(each)
            claim = each[1]
            claim.started_at, claim.ended = now, True
            why = "it must run alone, and other jobs of this worker did not end in time"
            self.acker.put(claim, Unable(why, Tuning.alone_seconds, "not_alone"), now)
        if late and not self.exclusive:
            self._start_again()

    def _start_again(self) -> None:
        self.pump_all()
        for queue in self.queues.values():
            queue.on_room()

    async def _runner(self, queue: LocalQueue, first: Claim | None) -> None:
        """Take jobs and run them until there are none or another runner has taken over. ``first``
        is a suspect, to run alone."""
        me = asyncio.current_task()
        assert isinstance(me, own_tasks.OwnTask)
        turn = _Turn(self, queue, me)
        if first:
            await self._run(turn, first)
            self._alone_running = False
            self._start_again()
            return
        began = self._env.boot_now()
        while claim := self._take(queue):
            ended = await self._run(turn, claim)
            if turn.suspended:
                queue.on_room()
                if queue.taking:
                    return  # another runner has taken over the queue
                queue.taking = True
            if me.cancelling():  # our next await would raise: a new task takes over
                queue.taking = False
                self.pump(queue)
                return
            if ended - began > Tuning.stretch_seconds:
                queue.on_room()
                await asyncio.sleep(0)
                began = self._env.boot_now()
        queue.taking = False
        queue.on_room()

    async def _run(self, turn: _Turn, claim: Claim) -> float:
        """Run one job. Return when it ended."""
        queue = turn.queue
        queue.running += 1
        claim.runner = turn.task
        turn.suspended, turn.task.works_for = False, claim
        context = copy_context()
        context.run(own_tasks.HANDLER.set, claim)
        outcome = await drive(self._attempts.of(claim), context, turn.on_suspend)
        turn.task.works_for = None  # from here on, what the handler has started cannot cancel it
        claim.stop, claim.ended = None, True
        ended = self._env.boot_now()
        if outcome is not None:
            self.acker.put(claim, outcome, ended)
        elif claim.completed_elsewhere and claim.stop_reason == "stopping":
            pass  # it may still commit; if it does not, the worker gives the job back as it stops
        else:
            self.running.remove([claim])
            job = claim.job
            if not claim.completed_elsewhere:
                self._emit("job_lost", job=job.id, task=job.task, why=claim.stop_reason)
        queue.running -= 1
        queue.finished += 1
        if self._alone:
            self._start_alone()
        return ended

    def end_all(self, reason: str) -> None:
        """Stop all jobs, as far as their executors can."""
        for claim in self.running.snapshot():
            claim.end(reason)

    def take_waiting(self, *queues: LocalQueue) -> list[tuple[UUID, int]]:
        """Remove the claims of ``queues`` that have not started, and return them as (job, token).
        Without ``queues``: of all queues, and the suspects that wait to run alone. Any thread may
        call this with ``queues``."""
        taken: list[Claim] = []
        if not queues:
            taken.extend(claim for _, claim, _ in self._alone)
            self._alone.clear()
        with self._waiting:
            for queue in queues or self.queues.values():
                taken.extend(queue.waiting)
                queue.waiting.clear()
        self.running.remove(taken)
        return [(claim.job.id, claim.job.claim_token) for claim in taken]

    def known_tokens(self) -> list[int]:
        """The tokens of all claims of this process."""
        return [claim.job.claim_token for claim in self.running.snapshot()]

    def busy(self) -> int:
        return sum(queue.running for queue in self.queues.values())

    async def wait_idle(self, seconds: float) -> bool:
        """Wait until all running jobs have ended, at most ``seconds``; return whether they have."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        return not self._tasks


@coroutine
def drive(
    work: Coroutine[Any, Any, T], context: Context, on_suspend: Callable[[], None]
) -> Generator[Any, Any, T]:
    """Await ``work`` in the current task, with ``context`` as its context. Call ``on_suspend``
    once, when it first waits. A task for each job would cost more than a short job does."""
    value: T
    try:
        awaited = context.run(work.send, None)
    except StopIteration as done:
        value = done.value
        return value
    on_suspend()
    while True:
        try:
            try:
                sent = yield awaited
            except BaseException as error:
                awaited = context.run(work.throw, error)
            else:
                awaited = context.run(work.send, sent)
        except StopIteration as done:
            value = done.value
            return value
