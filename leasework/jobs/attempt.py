"""Runs one attempt of a job, from its claim to its outcome, whatever the handler does."""

from __future__ import annotations

import asyncio
import math
import signal
import threading
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from leasework import errors, own_tasks
from leasework.jobs.context import Context, OnConnection, SyncContext, around
from leasework.jobs.failed_starts import Starts
from leasework.jobs.logged import keep_lines
from leasework.jobs.running import Claim, timed_out
from leasework.jobs.steps import StepRecorder, StepTools, Suspended
from leasework.jobs.tasks import Registry, TaskFunction
from leasework.jobs.tracing import running, traces
from leasework.lease.membership import Membership
from leasework.loops.service import ServiceContext
from leasework.model.codec import ENCODED, opened, sealed
from leasework.model.job import ClaimedJob, Unreadable, needs
from leasework.model.limits import Throttled
from leasework.model.outcome import (
    PLAIN,
    Cancel,
    Complete,
    Discard,
    Fail,
    Outcome,
    Snooze,
    Stopped,
    Unable,
    Unknown,
    outcome_of,
)
from leasework.store.jobs import Completion
from leasework.tuning import Tuning

T = TypeVar("T")
_ENDS = (errors.JobCancelled, errors.JobTimeout, errors.LostClaim, asyncio.CancelledError)
"""The errors with which a handler in a thread stops when it should."""

Run = Callable[[TaskFunction, Claim], Awaitable[Outcome]]


class _NoThread(RuntimeError):
    """The system starts no further thread."""


class Attempts:
    """Runs attempts: ``of(claim)`` runs the handler in its task's executor."""

    def __init__(
        self,
        context: ServiceContext,
        registry: Registry,
        on: OnConnection,
        membership: Callable[[], Membership],
        in_process: Run,
        slots: int,
        starts: Starts,
    ) -> None:
        self._store, self._users = context.store, context.users
        self._env, self._limits = context.env, context.settings.limits
        self._emit = context.emit
        self._starts = starts
        self._registry = registry
        self._on = on
        self._membership = membership
        self._executors: dict[str, Run] = {
            "async": self._run_async,
            "thread": self._run_thread,
            "process": in_process,
        }
        keep_lines()
        self._steps = StepTools(
            self._users,
            StepRecorder(self._users, self._env),
            on,
            self._env,
            registry.codec,
            self._limits.result_bytes,
            context.settings.payload_limit,
        )
        self._slots = slots
        self._threads: ThreadPoolExecutor | None = None
        self.worker_id = ""
        self.state: Any = None
        """What the application's lifespan yielded."""
        self._traced = False
        self.not_tasks: set[str] = set()
        """Tasks that have no handler here. This node stops claiming their jobs."""
        self._unknown: dict[str, float] = {}
        """Versions of tasks for which an event was emitted, and when (boot clock)."""

    def prepare(self) -> None:
        """Check once per claimed batch what need not be checked for each job."""
        self._traced = traces()

    async def of(self, claim: Claim) -> Outcome | None:
        """Run one attempt. Return None if there is no outcome to write."""
        job = claim.job
        try:
            task = self._registry.find(job.task)
            if task is None:
                return self._unknown_task(job)
            if job.start_in > 0 and not claim.stop_reason and not await self._wait_for_start(claim):
                return None
            if claim.stop_reason:
                return stopped(claim)
            if isinstance(job.payload, dict) and ENCODED in job.payload:
                job = self._opened(claim)
            if not isinstance(job.payload, dict):
                return self._unreadable(job)
            if job.version != task.version:
                if not task.knows(job.version):
                    return self._unknown_version(task, job)
                if failed := self._bring_up(task, claim):
                    return failed
                job = claim.job
            if (job.crashes or job.deadlines) and not await self._marked(claim):
                return None if claim.lost else stopped(claim)
            work = self._executors[task.executor](task, claim)
            work = self._spanned(work, claim) if self._traced else self._guarded(work, claim)
            outcome = await work
            if claim.completed_elsewhere:
                return await self._check_completion(claim, outcome)
            if isinstance(outcome, Throttled):
                outcome = await self._throttled(claim, outcome)
            if self._registry.codec and isinstance(outcome, Complete):
                outcome = self._sealed(outcome)
            return outcome if not claim.stop_reason else _when_stopped(claim, outcome)
        except errors.Unavailable:
            return Snooze(1.0)
        except errors.ServerError as error:  # as in a failover, to a server that is a replica yet
            return Unable(f"its start could not be recorded: {error}", 1.0)
        except asyncio.CancelledError:  # from claim.end(), before or after the handler
            return None if claim.lost or claim.completed_elsewhere else stopped(claim)
        except Exception as error:  # not the handler's: its errors are outcomes
            self._emit("service_failed", service="executor", error=repr(error))
            return Fail(f"leasework could not run it: {error!r}")

    async def _wait_for_start(self, claim: Claim) -> bool:
        """Wait until the job's limits let it start: it was claimed a moment ahead. Return False if
        the lease has been lost meanwhile."""
        if claim.runner:
            claim.stop = claim.runner.cancel
        elapsed = self._env.boot_now() - claim.claimed_at
        await asyncio.sleep(max(0.0, claim.job.start_in - elapsed))
        claim.stop = None
        claim.started_at = now = self._env.boot_now()
        if not self._membership().covers(claim.node, claim.job.claim_token, now):
            claim.end("lost")
        return not claim.lost

    async def _throttled(self, claim: Claim, outcome: Throttled) -> Outcome:
        """Close the limit for all jobs. This job returns to its place at once, and waits there. If
        that fails, it waits by itself."""
        key = outcome.key_in(claim.job.lane)
        if key is None:
            said = f"the handler was throttled by the limit {outcome.limit!r}"
            return Fail(f"{said}, which the job does not have")
        with suppress(errors.LeaseworkError):
            await self._store.throttle(key, outcome.seconds, self._env.due_now())
            job, seconds = claim.job, outcome.seconds
            self._emit("job_throttled", job=job.id, task=job.task, key=key, seconds=seconds)
            return Throttled(outcome.limit, 0.0)
        return outcome

    def _opened(self, claim: Claim) -> ClaimedJob:
        """Decode the arguments. Those that the codec cannot decode become Unreadable."""
        try:
            payload = opened(self._registry.codec, claim.job.payload)
        except errors.BadPayload as error:
            payload = Unreadable(error.what)
        except BaseException as error:  # SystemExit, and a panic of an extension
            payload = Unreadable(errors.told(error))
        claim.job = claim.job._replace(payload=payload)
        return claim.job

    def _sealed(self, outcome: Complete) -> Outcome:
        """Encode the result. If the codec cannot, the job is discarded, because its handler has
        run."""
        if outcome.result is None:
            return outcome
        try:
            limit = self._limits.result_bytes
            return Complete(sealed(self._registry.codec, "result", outcome.result, limit))
        except BaseException as error:
            why = error.what if isinstance(error, errors.BadPayload) else errors.told(error)
            return Discard(f"the handler ran to its end, but its result is lost: {why}")

    def _bring_up(self, task: TaskFunction, claim: Claim) -> Fail | None:
        """Bring the arguments to the version of this worker. Return why an upcast failed."""
        job = claim.job
        try:
            payload = task.brought_up(job.payload, job.version)
        except BaseException as error:  # also SystemExit, and a panic of an extension
            return describe(error, self._limits.error_chars)
        claim.job = job._replace(payload=payload, version=task.version)
        return None

    def _unknown_task(self, job: ClaimedJob) -> Outcome:
        """Leave jobs of this task to nodes that know it."""
        if job.task not in self.not_tasks and len(self.not_tasks) < Tuning.unknown_tasks:
            self.not_tasks.add(job.task)
            self._emit("job_unknown", job=job.id, task=job.task)
        return Unknown()

    def _unknown_version(self, task: TaskFunction, job: ClaimedJob) -> Outcome:
        """Return the job to the queue until a worker of another release takes it."""
        needed = needs(job.task, job.version)
        now = self._env.boot_now()
        if needed not in self._unknown and len(self._unknown) < Tuning.unknown_tasks:
            self._unknown[needed] = now
            self._emit("job_unknown", job=job.id, task=needed)
        # a release that takes long would otherwise write each job that waits, again and again
        pause = (now - self._unknown.get(needed, -math.inf)) * Tuning.unknown_version_share
        pause = min(max(pause, Tuning.unknown_version_seconds), Tuning.unknown_version_longest)
        error = f"its arguments have version {job.version}, and this worker knows {task.version}"
        return Unable(error, pause, "unknown_version")

    def _unreadable(self, job: ClaimedJob) -> Outcome:
        """Return the job to the queue until a worker can read it: this worker may be at fault."""
        error = f"its arguments cannot be read: {errors.shorten(job.payload)}"
        self._emit("job_unreadable", job=job.id, task=job.task, error=error)
        return Unable(error, Tuning.unreadable_seconds, "unreadable")

    async def _marked(self, claim: Claim) -> bool:
        """Record the start of a job with crashes or a deadline. Return whether it may start."""
        job, began = claim.job, True
        if claim.runner:
            claim.stop = claim.runner.cancel  # a fence must not wait for the database's answer
        mine, now = (claim.node, job.id, job.claim_token), self._env.due_now
        if job.crashes:
            began = await self._store.start(*mine, now())
        if began and job.deadlines:
            began, claim.deadline = await self._store.start_deadline(*mine, now())
        claim.stop = None  # not to cancel this task itself
        if not began:
            claim.end("lost")
        # the job may have been stopped, or the lease may have expired, in the meantime
        valid = self._membership().covers(claim.node, job.claim_token, self._env.boot_now())
        return valid and not claim.stop_reason

    async def _spanned(self, work: Awaitable[Outcome], claim: Claim) -> Outcome:
        outcome: Outcome | None = None
        try:
            with running(claim.job, self.worker_id) as ended:
                outcome = await self._guarded(work, claim)
                ended(outcome)
        except BaseException as error:  # the application's tracing fails, not the job
            if isinstance(error, KeyboardInterrupt) and _from_keyboard():
                raise
            self._emit("service_failed", service="tracing", error=errors.told(error))
        return await self._guarded(work, claim) if outcome is None else outcome

    async def _guarded(self, running: Awaitable[Outcome], claim: Claim) -> Outcome:
        """Turn whatever the handler raises into an outcome."""
        try:
            outcome = await running
        except BaseException as error:  # SystemExit and foreign subclasses too
            return self._raised(error, claim)
        return outcome if claim.suspend is None else _hidden(claim, outcome)

    def _raised(self, error: BaseException, claim: Claim) -> Outcome:
        match error:
            case KeyboardInterrupt() if _from_keyboard():
                raise error
            case errors.JobTimeout():
                return Fail(errors.words(error))
            case Throttled() if not claim.stop_reason:
                return error
            case _ if claim.suspend and _only_suspended(error):
                return claim.suspend
            case asyncio.CancelledError():
                failed = Fail("the handler raised CancelledError")
            case _:
                failed = describe(error, self._limits.error_chars)
        if claim.stop_reason == "cancel" and not isinstance(error, asyncio.CancelledError):
            return Cancel(failed.error)
        return stopped(claim) if claim.stop_reason else failed

    async def _run_async(self, task: TaskFunction, claim: Claim) -> Outcome:
        assert claim.runner is not None
        claim.stop = claim.runner.cancel
        job = claim.job
        arguments = (self._context(Context, claim),) if task.takes_context else ()
        given = task.values.read(job.payload) if task.values.converts else job.payload
        if self._registry.middleware:
            context = arguments[0] if arguments else self._context(Context, claim)
            handler = partial(task.handler, *arguments, **given)
            work = around(self._registry.middleware, context, handler)
        else:
            work = task.handler(*arguments, **given)
        claim.place = work
        returned = await (work if job.timeout is None else _limited(work, claim, job.timeout))
        if returned is None and claim.stop_reason:  # it stopped because it should
            return stopped(claim)
        return PLAIN if returned is None else self._outcome_of(task, returned)

    async def _run_thread(self, task: TaskFunction, claim: Claim) -> Outcome:
        """Run in a thread. Nothing can end it: a timeout or a cancel only sets
        ``ctx.cancelled``."""
        loop = asyncio.get_running_loop()
        job = claim.job
        context = self._context(SyncContext, claim)
        context._run = lambda work: asyncio.run_coroutine_threadsafe(work, loop).result()
        arguments = (context,) if task.takes_context else ()

        def call() -> tuple[Any, BaseException | None]:
            claim.place = threading.get_ident()
            # Returned: a future cannot hold StopIteration, and SystemExit would end the loop.
            try:
                returned = task.handler(*arguments, **task.values.read(job.payload))
            except BaseException as error:
                return None, error
            return returned, None

        timer = loop.call_later(job.timeout, claim.cancelled.set) if job.timeout else None
        try:
            if self._registry.middleware:
                returned, error = await self._around_thread(claim, call)
            else:
                returned, error = await self._in_thread(call)
        except _NoThread as trouble:
            return await self._starts.failed("thread", f"no thread could be started: {trouble}")
        finally:
            if timer:
                timer.cancel()
        early = error is not None or returned is None or isinstance(returned, Cancel)
        if claim.seen and early:  # it stopped because it should
            if not claim.stop_reason:
                return Fail(str(timed_out(claim)))
            if error is None or isinstance(error, _ENDS):
                return stopped(claim)
            return self._raised(error, claim)
        if isinstance(error, Throttled):
            return error
        if claim.suspend and error is not None and _only_suspended(error):
            return claim.suspend
        if error is not None:
            return describe(error, self._limits.error_chars)
        return PLAIN if returned is None else self._outcome_of(task, returned)

    async def _around_thread(
        self, claim: Claim, call: Callable[[], tuple[Any, BaseException | None]]
    ) -> tuple[Any, BaseException | None]:
        """Run ``call`` in a thread, inside the middleware. Return what comes out of it."""

        threads: list[asyncio.Future[tuple[Any, BaseException | None]]] = []

        async def handler() -> Any:
            threads.append(own_tasks.start(self._in_thread(call)))
            returned, error = await asyncio.shield(threads[-1])
            if error is not None:
                raise error
            return returned

        try:
            context = self._context(Context, claim)
            return await around(self._registry.middleware, context, handler), None
        except _NoThread:
            raise
        except BaseException as error:
            return None, error
        finally:
            if threads:  # nothing can end a thread: the job runs until the thread has ended
                await asyncio.wait(threads)
            for thread in threads:  # middleware may hide that the handler did not run
                if isinstance(thread.exception(), _NoThread):
                    thread.result()

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Run ``call`` in a thread. Raises _NoThread if none starts, and never runs it then."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        begun = threading.Lock()

        def work() -> None:
            if begun.acquire(blocking=False):
                value = call()
                with suppress(RuntimeError):  # the loop is closed: the process is exiting
                    loop.call_soon_threadsafe(settle, value)

        def settle(value: T) -> None:
            if not done.done():
                done.set_result(value)

        try:
            self._pool().submit(copy_context().run, work)
        except RuntimeError as error:
            # The pool still queued it. If a thread has begun it, its result counts.
            if begun.acquire(blocking=False):
                raise _NoThread(*error.args) from None
        else:
            self._starts.succeeded("thread")
        return await done

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            # The pool adds threads on demand, up to one per slot, so that no started job waits.
            self._threads = ThreadPoolExecutor(
                self._slots, thread_name_prefix=own_tasks.JOB_THREADS
            )
        return self._threads

    def _context(self, kind: type[Context], claim: Claim) -> Context:
        task = self._registry.find(claim.job.task)
        write = task.values.write_completion if task else None
        users, on, state = self._users, self._on, self.state
        return kind(
            claim, self.worker_id, users, on, state=state, _write=write, _step_tools=self._steps
        )

    def _outcome_of(self, task: TaskFunction, returned: Any) -> Outcome:
        return outcome_of(task.name, returned, self._limits.result_bytes, task.values)

    async def _check_completion(self, claim: Claim, outcome: Outcome) -> Outcome | None:
        """Find out whether the handler's own transaction, which completed the job, committed."""
        claim.stop = claim.runner.cancel if claim.runner else None  # the handler has ended
        job = claim.job
        pause = Tuning.completion_first_look
        while not claim.stop_reason or claim.stop_reason == "cancel":
            with suppress(errors.LeaseworkError):
                found = await self._store.completion(claim.node, job.id, job.claim_token)
                if found is Completion.ROLLED_BACK:
                    claim.completed_elsewhere = False
                    why = "the transaction in which the job was completed was rolled back"
                    return Fail(why) if isinstance(outcome, Complete) else outcome
                if found is Completion.OVER:
                    if dropped := _dropped(outcome, claim):
                        self._emit("job_failed", job=job.id, task=job.task, attempt=job.attempt,
                                   error=f"after it was completed: {dropped}")  # fmt: skip
                    return None
            await asyncio.sleep(pause)
            pause = min(pause * 2, Tuning.completion_longest_look)
        return None

    def close(self) -> None:
        if self._threads:
            self._threads.shutdown(wait=False, cancel_futures=True)


async def _limited(work: Awaitable[T], claim: Claim, seconds: float) -> T:
    """Await a handler for so many seconds. Raises JobTimeout, whatever the handler makes of that;
    only a result that it still returns counts."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            returned = await work
    except BaseException as error:
        if limit.expired() and not claim.stop_reason:
            raise timed_out(claim) from error
        raise
    if returned is None and limit.expired() and not claim.stop_reason:
        raise timed_out(claim)
    return returned


def _only_suspended(error: BaseException) -> bool:
    """Return whether the handler ended because it was suspended, perhaps in a TaskGroup."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_only_suspended, error.exceptions))
    return isinstance(error, (Suspended, asyncio.CancelledError))


def _hidden(claim: Claim, outcome: Outcome) -> Outcome:
    """The outcome of a run that was suspended: its handler must not catch that and go on."""
    if outcome is claim.suspend or not isinstance(outcome, Complete):
        return outcome
    return Fail(
        f"the handler caught the Suspended of ctx.{claim.suspend and claim.suspend.because} and "
        "returned. Catch Exception instead of BaseException, or raise it again"
    )


def _dropped(outcome: Outcome, claim: Claim) -> str:
    """What the handler of a job that it has completed itself did later, if anything."""
    match outcome:
        case Fail(error):
            return error
        case Complete(result) if result not in (None, claim.completed_with):
            return "the handler returned another result than it gave to ctx.complete(result=…)"
        case Snooze() | Throttled() | Cancel() | Discard() if not claim.stop_reason:
            return f"the handler returned {errors.shorten(outcome)}"
    return ""


def _when_stopped(claim: Claim, outcome: Outcome) -> Outcome | None:
    """A Cancel that a handler returns because the worker is stopping does not cancel the job."""
    if claim.lost:
        return None
    if claim.stop_reason == "stopping" and isinstance(outcome, Cancel):
        return stopped(claim)
    return outcome


def stopped(claim: Claim) -> Outcome:
    return Cancel("the worker ended it") if claim.stop_reason == "cancel" else Stopped()


def _from_keyboard() -> bool:
    """Return whether Ctrl-C raises KeyboardInterrupt in this thread. In a worker and in most
    servers it does not; then a handler raised it."""
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def describe(error: BaseException, limit: int) -> Fail:
    """What an error says, and its traceback, without secrets. A long traceback keeps its end."""
    said, trace = errors.told(error)[:2000], None  # a secret is masked before it is cut
    with suppress(BaseException):  # the error's own methods may raise
        start = place = error.__traceback__
        while place:  # skip our own frames and those of the thread pool
            ours = place.tb_frame.f_code.co_filename == __file__
            start, place = (place.tb_next if ours else None) or start, place.tb_next
        lines = traceback.format_exception(type(error), error, start)
        trace = errors.without_secrets("".join(lines)[-2 * limit :])[-limit:]
    return Fail(errors.without_secrets(said)[: min(limit, 1000)], trace)
