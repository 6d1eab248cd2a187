"""APScheduler 3.11 in several processes: run jobs on the leader only.

The gate starts the scheduler paused and resumes it while this process leads. It also checks the
leadership before each run, because ``pause()`` does not stop submitted runs. When the leadership is
lost, a running coroutine is cancelled; a thread cannot be.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from apscheduler.events import EVENT_EXECUTOR_ADDED, EVENT_SCHEDULER_STARTED
from apscheduler.executors.pool import ProcessPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.base import STATE_STOPPED
from apscheduler.triggers.combining import AndTrigger, OrTrigger

from leasework.errors import ConfigError, LostLease

if TYPE_CHECKING:
    from leasework.app import App
    from leasework.app.leader import Leader
    from leasework.app.sync import SyncLeader


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
                if following := _first_from(job.trigger, due, moment):
                    job.modify(next_run_time=following)
                else:
                    job.remove()

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
        do="Use the thread pool or the event loop",
    )


def _first_from(trigger: Any, due: datetime, moment: datetime) -> datetime | None:
    """Return the trigger's first moment that is not before ``moment``. ``due`` is one of its
    moments. None: there is none."""
    at = moment.astimezone(due.tzinfo)
    if isinstance(trigger, OrTrigger):
        parts = (_first_from(part, due, moment) for part in trigger.triggers)
        return min((first for first in parts if first), default=None)
    following: datetime | None = due
    if not isinstance(trigger, AndTrigger):  # which, without a moment before, may search for ever
        following = trigger.get_next_fire_time(None, at)
        if following is not None and following < at:  # some count from their start
            following = due
    while following is not None and following < at:
        following = trigger.get_next_fire_time(following, at)
    return following


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
