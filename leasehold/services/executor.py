"""The executor: runs claimed jobs, each queue within its number of slots, and turns whatever
comes of them into outcomes."""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from leasehold import errors
from leasehold.config import Limits
from leasehold.env import Env
from leasehold.model.job import encode
from leasehold.model.outcome import (
    Cancel,
    Complete,
    Discard,
    Fail,
    Outcome,
    Snooze,
    Unknown,
    as_outcome,
)
from leasehold.ports import Completion, Store
from leasehold.services.context import Context, OnConnection, SyncContext
from leasehold.services.running import Claim, Running
from leasehold.services.tasks import Registry, TaskFunction
from leasehold.telemetry import Emit

_FIRST_LOOK = 0.01
_LONGEST_LOOK = 1.0
"""Seconds between two looks at a completion whose transaction is open."""

RunInProcess = Callable[[TaskFunction, Claim], Awaitable[Outcome]]


class Lane:
    """One queue on this node: its slots, and the jobs that wait for one."""

    def __init__(self, queue: str, slots: int, claim: str = "rows") -> None:
        self.queue = queue
        self.slots = slots
        self.claim = claim
        """``rows`` or ``advisory``."""
        self.contended = False
        """An advisory claim left candidates to others: there may be more."""
        self.waiting: deque[Claim] = deque()
        self.running = 0
        self.drained = True
        """The last claim found fewer jobs than it asked for."""
        self.finished = 0
        """Ever; the producer measures the rate by it."""
        self.on_room: Callable[[], None] = lambda: None

    @property
    def in_hand(self) -> int:
        return self.running + len(self.waiting)


class Executor:
    """``submit`` claims; each outcome goes to ``put``. ``may_start`` is asked before each."""

    def __init__(
        self,
        store: Store,
        env: Env,
        limits: Limits,
        registry: Registry,
        running: Running,
        emit: Emit,
        on: OnConnection,
        put: Callable[[Claim, Outcome], None],
        may_start: Callable[[Claim], bool],
        in_process: RunInProcess,
    ) -> None:
        self._store = store
        self._env = env
        self._limits = limits
        self._registry = registry
        self._claims = running
        self._emit = emit
        self._on = on
        self._put = put
        self._may_start = may_start
        self._in_process = in_process
        self._threads: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._alone: deque[tuple[Lane, Claim]] = deque()
        self._alone_running = False
        self.worker_id = ""
        self.lanes: dict[str, Lane] = {}

    # -- taking in -------------------------------------------------------------------------------
    def submit(self, lane: Lane, claims: list[Claim]) -> None:
        for claim in claims:
            self._claims.add(claim)
            lane.waiting.append(claim)
        self.pump(lane)

    def pump(self, lane: Lane) -> None:
        """Start what may start."""
        if self._alone:
            self._start_alone()
            return
        while lane.waiting and lane.running < lane.slots and not self._alone_running:
            claim = lane.waiting[0]
            if not self._may_start(claim):
                return
            lane.waiting.popleft()
            if claim.job.crashes >= self._limits.max_crashes - 1:
                # It may be what kills its node: it runs alone, so that nobody else is blamed.
                self._alone.append((lane, claim))
                self._start_alone()
                return
            self._start(lane, claim)

    def _start_alone(self) -> None:
        if self._alone_running or any(lane.running for lane in self.lanes.values()):
            return
        lane, claim = self._alone[0]
        if not self._may_start(claim):
            return
        self._alone.popleft()
        self._alone_running = True
        self._start(lane, claim)

    def _start(self, lane: Lane, claim: Claim) -> None:
        lane.running += 1
        claim.started_at = self._env.boot_now()
        task = asyncio.create_task(self._run(lane, claim))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _ended(self, lane: Lane, claim: Claim) -> None:
        lane.running -= 1
        lane.finished += 1
        if self._alone_running:
            self._alone_running = False
            for other in self.lanes.values():
                self.pump(other)
        else:
            self.pump(lane)
        lane.on_room()

    # -- running ---------------------------------------------------------------------------------
    async def _run(self, lane: Lane, claim: Claim) -> None:
        try:
            outcome = await self._attempt(claim)
        except errors.Unavailable:
            outcome = Snooze(1.0)
        except asyncio.CancelledError:  # by claim.end(), after the handler had ended
            outcome = None if claim.lost else _stopped(claim)
        except Exception as error:  # never a handler's: those are outcomes
            outcome = Fail(f"leasehold could not run it: {error!r}")
            self._emit("service_failed", service="executor", error=repr(error))
        claim.stop = None
        if outcome is not None:
            self._put(claim, outcome)
        else:
            self._claims.remove(claim)
            job = claim.job
            if not claim.completed_elsewhere:
                self._emit("job_lost", job=job.id, task=job.task, why=claim.stop_reason)
        self._ended(lane, claim)

    async def _attempt(self, claim: Claim) -> Outcome | None:
        """One attempt; None when nothing is to be written."""
        job = claim.job
        task = self._registry.find(job.task)
        if task is None:
            return Unknown()
        if claim.stop_reason:
            return _stopped(claim)
        if not isinstance(job.payload, dict):
            return Discard(f"its arguments cannot be read: {errors.shorten(job.payload)}")
        if job.crashes and not await self._store.start(
            claim.node, job.id, job.claim_token, self._env.due_now()
        ):
            claim.end("lost")
            return None
        if job.deadlines:
            claim.deadlines = await self._store.start_deadlines(
                claim.node, job.id, job.claim_token, self._env.due_now()
            )
        if claim.cancelled.is_set():  # asked for while the mark was written
            return None if claim.lost else _stopped(claim)
        outcome = await self._execute(task, claim)
        if claim.completed_elsewhere:
            return await self._check_completion(claim, outcome)
        return None if claim.lost else outcome

    async def _execute(self, task: TaskFunction, claim: Claim) -> Outcome:
        run = {
            "async": self._run_async,
            "thread": self._run_thread,
            "process": self._in_process,
        }[task.executor]
        try:
            return await run(task, claim)
        except asyncio.CancelledError:
            if not claim.stop_reason:
                return Fail("the handler raised CancelledError")
            return _stopped(claim)
        except errors.JobTimeout as error:
            return Fail(str(error))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit, and what foreign code derives from the base
            return Fail(describe(error, self._limits.error_chars))

    async def _run_async(self, task: TaskFunction, claim: Claim) -> Outcome:
        me = asyncio.current_task()
        assert me is not None
        claim.stop = partial(_cancel, me)
        job = claim.job
        arguments = (self._context(Context, claim),) if task.takes_context else ()
        if job.timeout is None:
            return self._outcome_of(task, await task.function(*arguments, **job.payload))
        limit = asyncio.timeout(job.timeout)
        try:
            async with limit:
                returned = await task.function(*arguments, **job.payload)
        except TimeoutError:
            if limit.expired():
                raise _timed_out(claim) from None
            raise
        return self._outcome_of(task, returned)

    async def _run_thread(self, task: TaskFunction, claim: Claim) -> Outcome:
        """Nothing ends a thread: a timeout or a cancel sets ``ctx.cancelled`` and waits."""
        loop = asyncio.get_running_loop()
        job = claim.job
        context = self._context(SyncContext, claim)
        context._run = lambda work: asyncio.run_coroutine_threadsafe(work, loop).result()  # type: ignore[arg-type]
        arguments = (context,) if task.takes_context else ()

        def call() -> tuple[Any, BaseException | None]:
            # as a value: a future takes no StopIteration, and a SystemExit would end the loop
            try:
                return task.function(*arguments, **job.payload), None
            except BaseException as error:
                return None, error

        timer = loop.call_later(job.timeout, claim.cancelled.set) if job.timeout else None
        try:
            returned, error = await loop.run_in_executor(self._pool(), call)
        finally:
            if timer:
                timer.cancel()
        if error is not None:
            return Fail(describe(error, self._limits.error_chars))
        if claim.stop_reason == "cancel" and returned is None:
            return _stopped(claim)
        return self._outcome_of(task, returned)

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            slots = sum(lane.slots for lane in self.lanes.values())
            # threads are made as they are needed; a job that runs must not wait for one
            self._threads = ThreadPoolExecutor(slots, thread_name_prefix="leasehold-job")
        return self._threads

    def _context(self, kind: type[Context], claim: Claim) -> Context:
        return kind(claim, self.worker_id, self._store, self._on)

    def _outcome_of(self, task: TaskFunction, returned: Any) -> Outcome:
        outcome = as_outcome(returned)
        if outcome is not None:
            return outcome
        if returned is None:
            return Complete()
        return Complete(encode(f"result of {task.name}", returned, self._limits.result_bytes))

    async def _check_completion(self, claim: Claim, outcome: Outcome) -> Outcome | None:
        """The handler completed its job in a transaction of its own: did that commit?"""
        claim.stop = None  # the handler has ended
        job = claim.job
        pause = _FIRST_LOOK
        while not claim.stop_reason or claim.stop_reason == "cancel":
            with suppress(errors.Unavailable):
                found = await self._store.completion(claim.node, job.id, job.claim_token)
                if found is Completion.ROLLED_BACK:
                    claim.completed_elsewhere = False
                    why = "the transaction in which the job was completed was rolled back"
                    return Fail(why) if isinstance(outcome, Complete) else outcome
                if found is Completion.OVER:
                    if isinstance(outcome, Fail):
                        self._emit("job_failed", job=job.id, task=job.task, attempt=job.attempt,
                                   error=f"after it was completed: {outcome.error}")  # fmt: skip
                    return None
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_LOOK)
        return None

    # -- ending ----------------------------------------------------------------------------------
    def end_all(self, reason: str) -> None:
        """Stop what runs, as far as its executor can."""
        for claim in self._claims.snapshot():
            claim.end(reason)

    def take_waiting(self) -> list[tuple[UUID, int]]:
        """The claims that were not started, out of our hands: (job, token)."""
        taken: list[Claim] = [claim for _, claim in self._alone]
        self._alone.clear()
        for lane in self.lanes.values():
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

    def close(self) -> None:
        if self._threads:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()


def _stopped(claim: Claim) -> Outcome:
    match claim.stop_reason:
        case "cancel":
            return Cancel("cancelled while it ran")
        case _:
            return Snooze(0)


def _timed_out(claim: Claim) -> errors.JobTimeout:
    return errors.JobTimeout(f"ran longer than its timeout of {claim.job.timeout:g} s")


def describe(error: BaseException, limit: int) -> str:
    """Type and message first, then the traceback, the end of it if it is long."""
    try:
        head = f"{type(error).__name__}: {error}"[:1000]
    except Exception as odd:
        head = f"{type(error).__name__}: (its str() raised {type(odd).__name__})"
    with suppress(Exception):
        start = trace = error.__traceback__
        while trace:  # from the handler on: the frames before are ours, or the thread pool's
            ours = trace.tb_frame.f_code.co_filename == __file__
            start, trace = (trace.tb_next if ours else None) or start, trace.tb_next
        lines = traceback.format_exception(type(error), error, start)
        return f"{head}\n{''.join(lines)[-(limit - len(head) - 1) :]}"
    return head
