"""APScheduler 3.11 in several processes: run jobs on the leader only, or each run once.

    async with leader_gate(scheduler, app, "content-engine") as lead:    # in an event loop
    with leader_gate_in_thread(scheduler, app, "content-engine"): ...    # BackgroundScheduler
    run_blocking(scheduler, app, "content-engine")                       # BlockingScheduler

The gate starts the scheduler paused and resumes it while this process leads. It also checks the
leadership before each run, because ``pause()`` does not stop submitted runs. When the leadership is
lost, a running coroutine is cancelled; a thread cannot be.

    adopt(scheduler, app, queue="scheduled")

turns each run into a job of leasework instead: one job for each (job id, run time), whichever
process enqueues it first. leasework's workers run it, with retries, timeouts and history.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from apscheduler.events import (
    EVENT_EXECUTOR_ADDED,
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MISSED,
    EVENT_SCHEDULER_STARTED,
    JobExecutionEvent,
)
from apscheduler.executors.base import BaseExecutor
from apscheduler.executors.pool import ProcessPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.base import STATE_STOPPED
from apscheduler.triggers.interval import IntervalTrigger

from leasework.errors import ConfigError, LostLease, ReadOnlyServer, Unavailable
from leasework.integrations.triggers import check_adoptable, first_from, is_moment, of_the_epoch
from leasework.tuning import Tuning

if TYPE_CHECKING:
    from leasework.app import App
    from leasework.app.leader import Leader
    from leasework.app.sync import SyncLeader

EXECUTOR = "leasework"


# -- the gate --------------------------------------------------------------------------------------
@asynccontextmanager
async def leader_gate(scheduler: Any, app: App, name: str) -> AsyncIterator[Leader]:
    """With ``async with``, the scheduler runs inside the block while this process leads ``name``.
    For an AsyncIOScheduler, or a BackgroundScheduler in an application with an event loop. Raises
    ConfigError for an executor with processes."""
    gate = _Gate(scheduler, app)
    lead = app.leader(name, on_gain=gate.open, on_loss=gate.close)
    gate.guard_runs(lead)
    gate.start()
    try:
        async with lead:
            yield lead
    finally:
        gate.stop()
        await asyncio.sleep(0)  # an AsyncIOScheduler shuts down at its loop's next turn


@contextmanager
def leader_gate_in_thread(scheduler: Any, app: App, name: str) -> Iterator[SyncLeader]:
    """:func:`leader_gate` without an event loop, for a BackgroundScheduler: use ``with``."""
    gate = _Gate(scheduler, app)
    lead = app.sync.leader(name, on_gain=gate.open, on_loss=gate.close)
    gate.guard_runs(lead)
    try:
        gate.start()
        with lead:
            yield lead
    finally:
        gate.stop()


def run_blocking(scheduler: Any, app: App, name: str) -> None:
    """Run ``scheduler.start()`` of a BlockingScheduler behind the gate until it is shut down.
    Raises Unavailable if the database does not answer, or the error with which it refuses to
    serve."""
    gate = _Gate(scheduler, app)
    lead = app.sync.leader(name, on_gain=gate.open, on_loss=gate.close)
    failed: list[BaseException] = []

    def enter(event: Any) -> None:
        try:
            lead.__enter__()
        except BaseException as error:  # APScheduler would log it, and stay paused for ever
            failed.append(error)
            gate.shut_down()

    gate.guard_runs(lead)
    scheduler.add_listener(enter, EVENT_SCHEDULER_STARTED)
    try:
        scheduler.start(paused=True)
    finally:
        scheduler.remove_listener(enter)
        gate.forget()
        lead.__exit__(None, None, None)
    if failed:
        raise failed[0]


class _Gate:
    def __init__(self, scheduler: Any, app: App) -> None:
        self._scheduler = scheduler
        self._app = app
        self._ours = False
        self._opened = False

    # -- the scheduler ---------------------------------------------------------------------------
    def start(self) -> None:
        """Start the scheduler paused, or pause it if it is running."""
        if self._scheduler.state == STATE_STOPPED:
            self._ours = True
            self._scheduler.start(paused=True)
        else:
            self._scheduler.pause()
            self._guard_executors()

    def stop(self) -> None:
        self.forget()
        if self._ours:
            self.shut_down()
        elif self._scheduler.state != STATE_STOPPED:
            self._scheduler.pause()

    def shut_down(self) -> None:
        if self._scheduler.state != STATE_STOPPED:
            self._scheduler.shutdown(wait=False)

    def forget(self) -> None:
        """Stop watching for new executors. Those that exist stay guarded against late
        submissions; another gate's guard replaces ours."""
        self._scheduler.remove_listener(self._on_executors)

    def open(self, lead: Leader | SyncLeader) -> None:
        if self._scheduler.state == STATE_STOPPED:
            return
        try:
            if self._opened or not lead.found_vacant:
                self._skip_before(self._app.env.wall_now() - timedelta(seconds=lead._vacant_ago()))
        finally:
            self._opened = True
            self._scheduler.resume()

    def close(self, lead: Leader | SyncLeader) -> None:
        if self._scheduler.state != STATE_STOPPED:
            self._scheduler.pause()

    def _skip_before(self, moment: datetime) -> None:
        """Skip the runs that were due while another process led, because they were its to run.
        For later ones APScheduler's misfire settings decide. A shared job store needs no skip."""
        for job in self._scheduler.get_jobs():
            store = self._scheduler._jobstores.get(job._jobstore_alias)
            due = job.next_run_time
            if due is None or due >= moment or not isinstance(store, MemoryJobStore):
                continue
            with suppress(JobLookupError):  # it has been removed meanwhile
                if following := first_from(job.trigger, due, moment):
                    job.modify(next_run_time=following)
                else:
                    job.remove()

    # -- each run --------------------------------------------------------------------------------
    def guard_runs(self, lead: Leader | SyncLeader) -> None:
        """Guard the executors. Call it before the scheduler starts, because APScheduler only logs
        what a listener raises. Raises ConfigError."""
        self._lead = lead
        for alias, executor in self._scheduler._executors.items():
            if isinstance(executor, ProcessPoolExecutor):
                _refuse(alias)
        events = EVENT_SCHEDULER_STARTED | EVENT_EXECUTOR_ADDED
        self._scheduler.add_listener(self._on_executors, events)

    def _on_executors(self, event: Any) -> None:
        self._guard_executors()

    def _guard_executors(self) -> None:
        for alias, executor in self._scheduler._executors.items():
            submit = executor._do_submit_job
            if isinstance(executor, ProcessPoolExecutor):  # added to a running scheduler
                executor._do_submit_job = partial(_refuse, alias)
            else:  # a partial is the guard of an earlier gate, whose leadership is over
                bare = submit.args[0] if isinstance(submit, partial) else submit
                executor._do_submit_job = partial(self._submit, bare)

    def _submit(self, submit: Callable[[Any, Any], None], job: Any, run_times: Any) -> None:
        submit(_Guarded(job, self._lead), run_times)


def _refuse(alias: str, job: Any = None, run_times: Any = None) -> None:
    raise ConfigError(
        "a run in another process cannot check whether this process still leads",
        got=f"executor {alias!r}",
        do="Use the thread pool or the event loop, or adopt() and executor='process'",
    )


class _Guarded:
    """A job whose function checks the leadership first; otherwise the job itself."""

    def __init__(self, job: Any, lead: Any) -> None:
        self._job = job
        self.func = _guarded(job.func, job.id, lead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    def __str__(self) -> str:
        return str(self._job)


def _guarded(function: Any, job: str, lead: Any) -> Any:
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            _check(lead, job)
            if not hasattr(lead, "while_leading"):
                return await function(*args, **kwargs)
            async with lead.while_leading():
                return await function(*args, **kwargs)

        return guarded

    @wraps(function)
    def guarded_in_thread(*args: Any, **kwargs: Any) -> Any:
        _check(lead, job)
        return function(*args, **kwargs)

    return guarded_in_thread


def _check(lead: Any, job: str) -> None:
    if not lead.is_leader:
        raise LostLease("the run was skipped: this process no longer leads", got=job)


# -- each run once ---------------------------------------------------------------------------------
def adopt(
    scheduler: Any, app: App, *, queue: str = "default", prefix: str = "apscheduler", **options: Any
) -> list[str]:
    """Make the scheduler's runs jobs of leasework, one for each (job id, run time), and return
    their tasks' names. ``options``: as for ``app.task``.

    Call it in every process after adding the jobs and before starting the scheduler, and start the
    scheduler in all of them. Each job needs its own id, the same in every process. An interval
    that counts from the start of the process is changed to count from 1970, so that all processes
    see the same moments. Raises ConfigError for what differs between processes: jitter, ids that
    APScheduler generates, combined triggers with intervals, dates with a fraction of a second (an
    omitted date is each process's own moment), and calendar intervals of more than a day that
    count from today (as they do without a ``start_date``), and a ``next_run_time`` that is no
    moment of the trigger.
    """
    jobs = scheduler.get_jobs()
    today = app.env.wall_now().astimezone().date()
    for job in jobs:
        check_adoptable(job, today)
        given = getattr(job, "next_run_time", None)
        if scheduler.state == STATE_STOPPED and given and not is_moment(job.trigger, given):
            raise ConfigError(
                "a next_run_time of its own differs between processes",
                got=f"{job.id}: {job.next_run_time}",
                do="Leave it out. To run the job at once too, enqueue it",
            )
    if EXECUTOR not in scheduler._executors:
        scheduler.add_executor(_Enqueues(app, prefix), EXECUTOR)
    names = []
    for job in jobs:
        name = f"{prefix}/{job.id}"
        app.task(name=name, queue=queue, **options)(_handler(job))
        changes: dict[str, Any] = {"executor": EXECUTOR, "max_instances": 1000}
        job.modify(**changes)
        if isinstance(job.trigger, IntervalTrigger) and job.trigger.start_date.microsecond:
            trigger = of_the_epoch(job.trigger)
            paused = getattr(job, "next_run_time", trigger) is None
            job.modify(trigger=trigger) if paused else job.reschedule(trigger)
        names.append(name)
    return names


def _handler(job: Any) -> Callable[..., Any]:
    function, args, kwargs = job.func, job.args, job.kwargs
    if inspect.iscoroutinefunction(function):

        async def run() -> Any:
            return await function(*args, **kwargs)

        return run

    def run_in_thread() -> Any:
        return function(*args, **kwargs)

    return run_in_thread


class _Enqueues(BaseExecutor):  # type: ignore[misc]
    """An executor that enqueues runs and runs nothing itself."""

    def __init__(self, app: App, prefix: str) -> None:
        super().__init__()
        self._app = app
        self._prefix = prefix

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        loop = self._app.sync.background()
        work = asyncio.run_coroutine_threadsafe(self._enqueue(job, run_times), loop)
        work.add_done_callback(partial(self._done, job.id))

    def _done(self, job: str, work: Any) -> None:
        error = work.exception()
        if error:
            self._run_job_error(job, error)
        else:
            self._run_job_success(job, work.result())

    async def _enqueue(self, job: Any, run_times: list[datetime]) -> list[Any]:
        task = self._app.registry.find(f"{self._prefix}/{job.id}")
        assert task
        late = min(job.misfire_grace_time or Tuning.run_key_seconds, Tuning.run_key_seconds)
        events = []
        for at in run_times:
            if self._app.env.wall_now() - at > timedelta(seconds=late):
                events.append(JobExecutionEvent(EVENT_JOB_MISSED, job.id, job._jobstore_alias, at))
                continue
            key = f"{self._prefix}/{job.id}@{at.astimezone(UTC).isoformat()}"
            given = {"unique": key, "unique_for": Tuning.run_key_seconds + Tuning.run_try_seconds}
            request = task.job(options=task.with_options(task.job_options, given))
            await self._try(request)
            events.append(JobExecutionEvent(EVENT_JOB_EXECUTED, job.id, job._jobstore_alias, at))
        return events

    async def _try(self, request: Any) -> None:
        """Enqueue, and try again while the database is unavailable; the key makes that safe."""
        give_up_at = self._app.env.boot_now() + Tuning.run_try_seconds
        pause = 0.2
        while True:
            try:
                await self._app.enqueue(request)
                return
            except (Unavailable, ReadOnlyServer):  # perhaps a failover
                if self._app.env.boot_now() + pause > give_up_at:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, Tuning.run_longest_pause)
