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
from types import coroutine
from typing import Any, TypeVar
from uuid import UUID

from leasework import own_tasks
from leasework.config import Limits
from leasework.jobs.attempt import Attempts
from leasework.jobs.running import Claim, Running
from leasework.loops.service import BatchSize, ServiceContext
from leasework.model.outcome import Outcome, Unable
from leasework.tuning import Tuning

T = TypeVar("T")


class Lane:
    """One queue on this node: its slots, and the claimed jobs that wait for one."""

    def __init__(self, queue: str, slots: int, claim: str = "rows") -> None:
        self.queue = queue
        self.slots = slots
        self.claim = claim
        """``rows`` or ``advisory``."""
        self.waiting: deque[Claim] = deque()
        self.running = 0
        self.taking = False
        """A runner is taking jobs from the queue."""
        self.batch = BatchSize(Limits.batch_rows)
        """The number of rows to claim at once. Their size is only known after they arrive."""
        self.finished = 0
        """The number of jobs finished since the start. The producer derives the rate from it."""
        self.on_room: Callable[[], None] = lambda: None

    @property
    def in_hand(self) -> int:
        return self.running + len(self.waiting)


class _Turn:
    """A runner: its task, and whether its job has suspended."""

    __slots__ = ("_executor", "lane", "suspended", "task")

    def __init__(self, executor: Executor, lane: Lane, task: own_tasks.OwnTask[None]) -> None:
        self._executor = executor
        self.lane = lane
        self.task = task
        self.suspended = False

    def on_suspend(self) -> None:
        """Let another runner take over the queue."""
        self.suspended, self.lane.taking = True, False
        self._executor.pump(self.lane)


class Executor:
    """Runs the claims that it is given with ``submit``. It calls ``may_start`` with the time before
    each run, and ``put`` with the outcome and the time after it."""

    def __init__(
        self,
        context: ServiceContext,
        running: Running,
        put: Callable[[Claim, Outcome, float], None],
        may_start: Callable[[Claim, float], bool],
        attempts: Attempts,
    ) -> None:
        self._env, self._limits = context.env, context.settings.limits
        self._emit = context.emit
        self._claims = running
        self._put = put
        self._may_start = may_start
        self._attempts = attempts
        self._tasks: set[own_tasks.OwnTask[None]] = set()
        self._waiting = threading.Lock()
        """For the lanes' waiting jobs. The guard's thread takes them while the loop is stuck."""
        self._alone: deque[tuple[Lane, Claim, float]] = deque()
        """Suspects that wait to run alone, and since when."""
        self._alone_running = False
        self.lanes: dict[str, Lane] = {}

    # -- taking in -------------------------------------------------------------------------------
    def submit(self, lane: Lane, claims: list[Claim]) -> None:
        self._claims.add(*claims)
        self._claims.end_early(claims)
        self._attempts.prepare()
        with self._waiting:
            lane.waiting.extend(claims)
        self.pump(lane)

    def pump(self, lane: Lane) -> None:
        """Start a runner if jobs wait and none takes them."""
        if self._alone:
            self._start_alone()
        elif lane.waiting and not lane.taking and lane.running < lane.slots:
            lane.taking = True
            self._spawn(lane)

    def _spawn(self, lane: Lane, first: Claim | None = None) -> None:
        task = own_tasks.start(self._runner(lane, first), name="leasework-runner")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self, lane: Lane) -> Claim | None:
        """Take the next job that may start now."""
        if not lane.waiting or lane.running >= lane.slots or self.exclusive:
            return None
        now = self._env.boot_now()
        with self._waiting:
            if not lane.waiting or not self._may_start(lane.waiting[0], now):
                return None
            claim = lane.waiting.popleft()
        if claim.job.crashes < self._limits.max_crashes - 1:
            claim.started_at = now
            return claim
        # This job may kill its node. It runs alone, so that no other job is blamed.
        self._alone.append((lane, claim, now))
        self._start_alone()
        for other in self.lanes.values():
            other.on_room()  # the producer gives back what waits behind it
        return None

    # -- alone -----------------------------------------------------------------------------------
    @property
    def exclusive(self) -> bool:
        """Whether a suspect runs alone or waits to run, so that no other job starts."""
        return self._alone_running or bool(self._alone)

    def _start_alone(self) -> None:
        if self._alone_running or any(lane.running for lane in self.lanes.values()):
            return
        lane, claim, _ = self._alone[0]
        now = self._env.boot_now()
        if not self._may_start(claim, now):
            return
        claim.started_at = now
        self._alone.popleft()
        self._alone_running = True
        self._spawn(lane, claim)

    def put_off_suspects(self) -> None:
        """Let another node take the suspects that have waited too long for this node's other jobs
        to end, and start other jobs again."""
        now = self._env.boot_now()
        late = [each for each in self._alone if now - each[2] >= Tuning.alone_seconds]
        for each in late:
            self._alone.remove(each)
            claim = each[1]
            claim.started_at, claim.ended = now, True
            said = "it must run alone, and other jobs of this worker did not end in time"
            self._put(claim, Unable(said, Tuning.alone_seconds, "not_alone"), now)
        if late and not self.exclusive:
            self._start_again()

    def _start_again(self) -> None:
        for lane in self.lanes.values():
            self.pump(lane)
            lane.on_room()

    # -- running ---------------------------------------------------------------------------------
    async def _runner(self, lane: Lane, first: Claim | None) -> None:
        """Take jobs and run them until there are none or another runner has taken over. ``first``
        is a suspect, to run alone."""
        me = asyncio.current_task()
        assert isinstance(me, own_tasks.OwnTask)
        turn = _Turn(self, lane, me)
        if first:
            await self._run(turn, first)
            self._alone_running = False
            self._start_again()
            return
        began = self._env.boot_now()
        while claim := self._take(lane):
            ended = await self._run(turn, claim)
            if turn.suspended:
                lane.on_room()
                if lane.taking:
                    return  # another runner has taken over the queue
                lane.taking = True
            if me.cancelling():  # our next await would raise: a new task takes over
                lane.taking = False
                self.pump(lane)
                return
            if ended - began > Tuning.stretch_seconds:
                lane.on_room()
                await asyncio.sleep(0)
                began = self._env.boot_now()
        lane.taking = False
        lane.on_room()

    async def _run(self, turn: _Turn, claim: Claim) -> float:
        """Run one job. Return when it ended."""
        lane = turn.lane
        lane.running += 1
        claim.runner = turn.task
        turn.suspended, turn.task.works_for = False, claim
        context = copy_context()
        context.run(own_tasks.HANDLER.set, claim)
        outcome = await drive(self._attempts.of(claim), context, turn.on_suspend)
        turn.task.works_for = None  # from here on, what the handler has started cannot cancel it
        claim.stop, claim.ended = None, True
        ended = self._env.boot_now()
        if outcome is not None:
            self._put(claim, outcome, ended)
        elif claim.completed_elsewhere and claim.stop_reason == "stopping":
            pass  # it may still commit; if it does not, the worker gives the job back as it stops
        else:
            self._claims.remove(claim)
            job = claim.job
            if not claim.completed_elsewhere:
                self._emit("job_lost", job=job.id, task=job.task, why=claim.stop_reason)
        lane.running -= 1
        lane.finished += 1
        if self._alone:
            self._start_alone()
        return ended

    # -- ending ----------------------------------------------------------------------------------
    def end_all(self, reason: str) -> None:
        """Stop all jobs, as far as their executors can."""
        for claim in self._claims.snapshot():
            claim.end(reason)

    def take_waiting(self, *lanes: Lane) -> list[tuple[UUID, int]]:
        """Remove the claims of ``lanes`` that have not started, and return them as (job, token).
        Without ``lanes``: of all lanes, and the suspects that wait to run alone. Any thread may
        call this with ``lanes``."""
        taken: list[Claim] = []
        if not lanes:
            taken.extend(claim for _, claim, _ in self._alone)
            self._alone.clear()
        with self._waiting:
            for lane in lanes or self.lanes.values():
                taken.extend(lane.waiting)
                lane.waiting.clear()
        for claim in taken:
            self._claims.remove(claim)
        return [(claim.job.id, claim.job.claim_token) for claim in taken]

    def known_tokens(self) -> list[int]:
        """The tokens of all claims of this process."""
        return [claim.job.claim_token for claim in self._claims.snapshot()]

    def busy(self) -> int:
        return sum(lane.running for lane in self.lanes.values())

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
