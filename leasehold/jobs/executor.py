"""The executor: runs claimed jobs, each queue within its number of slots.

One runner a queue takes job after job; a handler that never suspends costs no task. When a
handler waits for something, its runner stays with it and another one goes on with the queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from uuid import UUID

from leasehold import own
from leasehold.config import Limits, Tuning
from leasehold.env import Env
from leasehold.jobs.attempt import Attempts
from leasehold.jobs.drive import drive
from leasehold.jobs.running import Claim, Running
from leasehold.model.batch import BatchSize
from leasehold.model.outcome import Outcome
from leasehold.telemetry import Emit


class Lane:
    """One queue on this node: its slots, and the jobs that wait for one."""

    def __init__(self, queue: str, slots: int, claim: str = "rows") -> None:
        self.queue = queue
        self.slots = slots
        self.claim = claim
        """``rows`` or ``advisory``."""
        self.waiting: deque[Claim] = deque()
        self.running = 0
        self.taking = False
        """A runner is taking jobs; the others wait with theirs."""
        self.batch = BatchSize(Limits.batch_rows)
        """Rows of a claim: how big they are is known when they have come."""
        self.finished = 0
        """Ever; the producer measures the rate by it."""
        self.on_room: Callable[[], None] = lambda: None

    @property
    def in_hand(self) -> int:
        return self.running + len(self.waiting)


class _Turn:
    """A runner: its task, and whether the job that it runs has suspended."""

    __slots__ = ("_executor", "lane", "suspended", "task")

    def __init__(self, executor: Executor, lane: Lane, task: own.OwnTask[None]) -> None:
        self._executor = executor
        self.lane = lane
        self.task = task
        self.suspended = False

    def on_suspend(self) -> None:
        """Another one goes on with the queue."""
        self.suspended, self.lane.taking = True, False
        self._executor.pump(self.lane)


class Executor:
    """``submit`` claims; each outcome goes to ``put``, with the moment of its end. ``may_start``
    is asked before each, with the moment of its start."""

    def __init__(
        self,
        env: Env,
        limits: Limits,
        running: Running,
        emit: Emit,
        put: Callable[[Claim, Outcome, float], None],
        may_start: Callable[[Claim, float], bool],
        attempts: Attempts,
    ) -> None:
        self._env = env
        self._limits = limits
        self._claims = running
        self._emit = emit
        self._put = put
        self._may_start = may_start
        self._attempts = attempts
        self._tasks: set[own.OwnTask[None]] = set()
        self._alone: deque[tuple[Lane, Claim]] = deque()
        self._alone_running = False
        self.lanes: dict[str, Lane] = {}

    # -- taking in -------------------------------------------------------------------------------
    def submit(self, lane: Lane, claims: list[Claim]) -> None:
        self._claims.add(*claims)
        self._claims.end_early(claims)
        self._attempts.prepare()
        lane.waiting.extend(claims)
        self.pump(lane)

    def pump(self, lane: Lane) -> None:
        """See to it that somebody takes what waits."""
        if self._alone:
            self._start_alone()
        elif lane.waiting and not lane.taking and lane.running < lane.slots:
            lane.taking = True
            self._spawn(lane)

    def _spawn(self, lane: Lane, first: Claim | None = None) -> None:
        task = own.start(self._runner(lane, first), name="leasehold-runner")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self, lane: Lane) -> Claim | None:
        """The next job that may start now."""
        if not lane.waiting or lane.running >= lane.slots or self.exclusive:
            return None
        claim = lane.waiting[0]
        now = self._env.boot_now()
        if not self._may_start(claim, now):
            return None
        lane.waiting.popleft()
        if claim.job.crashes < self._limits.max_crashes - 1:
            claim.started_at = now
            return claim
        # It may be what kills its node: it runs alone, so that nobody else is blamed.
        self._alone.append((lane, claim))
        self._start_alone()
        for other in self.lanes.values():
            other.on_room()  # what waits behind it is given back
        return None

    # -- alone -----------------------------------------------------------------------------------
    @property
    def exclusive(self) -> bool:
        """A suspect runs alone, or waits until it can: nothing else starts here."""
        return self._alone_running or bool(self._alone)

    def _start_alone(self) -> None:
        if self._alone_running or any(lane.running for lane in self.lanes.values()):
            return
        lane, claim = self._alone[0]
        now = self._env.boot_now()
        if not self._may_start(claim, now):
            return
        claim.started_at = now
        self._alone.popleft()
        self._alone_running = True
        self._spawn(lane, claim)

    def _alone_ended(self) -> None:
        self._alone_running = False
        for lane in self.lanes.values():
            self.pump(lane)
            lane.on_room()

    # -- running ---------------------------------------------------------------------------------
    async def _runner(self, lane: Lane, first: Claim | None) -> None:
        """Take jobs and run them, until there are none or another runner does it. ``first``: a
        suspect, to be run alone."""
        me = asyncio.current_task()
        assert isinstance(me, own.OwnTask)
        turn = _Turn(self, lane, me)
        if first:
            await self._run(turn, first)
            self._alone_ended()
            return
        began = self._env.boot_now()
        while claim := self._take(lane):
            ended = await self._run(turn, claim)
            if turn.suspended:
                lane.on_room()
                if lane.taking:
                    return  # another one went on with the queue meanwhile
                lane.taking = True
            if me.cancelling():  # our next await would be ended: a fresh task goes on
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
        """One job; when did it end?"""
        lane = turn.lane
        lane.running += 1
        claim.runner = turn.task
        turn.suspended, turn.task.works_for = False, claim
        context = copy_context()
        context.run(own.HANDLER.set, claim)
        outcome = await drive(self._attempts.of(claim), context, turn.on_suspend)
        claim.stop = None
        ended = self._env.boot_now()
        if outcome is not None:
            self._put(claim, outcome, ended)
        elif claim.completed_elsewhere and claim.stop_reason == "stopping":
            pass  # nobody knows whether that commits: what does not is given back by who stops us
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
        """Stop what runs, as far as its executor can."""
        for claim in self._claims.snapshot():
            claim.end(reason)

    def take_waiting(self, *lanes: Lane) -> list[tuple[UUID, int]]:
        """The claims that were not started, out of our hands: (job, token). Of ``lanes``, or all,
        with the suspect that waits to run alone."""
        taken: list[Claim] = []
        if not lanes:
            taken.extend(claim for _, claim in self._alone)
            self._alone.clear()
        for lane in lanes or self.lanes.values():
            taken.extend(lane.waiting)
            lane.waiting.clear()
        for claim in taken:
            self._claims.remove(claim)
        return [(claim.job.id, claim.job.claim_token) for claim in taken]

    def known_tokens(self) -> list[int]:
        """Of every claim that is in our hands."""
        return [claim.job.claim_token for claim in self._claims.snapshot()]

    def busy(self) -> int:
        return sum(lane.running for lane in self.lanes.values())

    async def wait_idle(self, seconds: float) -> bool:
        """Wait for all running jobs to end; False when some did not within ``seconds``."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        return not self._tasks
