"""APScheduler 3.11 in several processes: run jobs on the leader only.

The gate starts the scheduler paused and resumes it while this process leads. It also checks the
leadership before each run, because ``pause()`` does not stop submitted runs. When the leadership is
lost, a running coroutine is cancelled; a thread cannot be.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

from apscheduler.executors.pool import ProcessPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.base import STATE_STOPPED
from apscheduler.triggers.combining import AndTrigger

from leasework.app.sync import InBackground, SyncLeader
from leasework.errors import ConfigError, LostLease

if TYPE_CHECKING:
    from leasework.app import App
    from leasework.app.leader import Leader


@asynccontextmanager
async def leader_gate(scheduler: Any, app: App, name: str) -> AsyncIterator[Leader]:
    """With ``async with``, the scheduler runs inside the block while this process leads ``name``.
    For an AsyncIOScheduler, or a BackgroundScheduler in an application with an event loop. Raises
    ConfigError for an executor with processes."""
    gate = _Gate(scheduler, app)
    lead = app.leader(name, on_gain=gate.open, on_loss=gate.close)
    gate.start(lead)
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
    standing = InBackground(app, name, on_gain=gate.open, on_loss=gate.close)
    lead = SyncLeader(app.sync, standing)
    gate.start(lead)
    try:
        with lead:
            yield lead
    finally:
        gate.stop()


class _Gate:
    def __init__(self, scheduler: Any, app: App) -> None:
        self._scheduler = scheduler
        self._app = app
        self._ours = False
        self._opened = False

    def start(self, lead: Leader | SyncLeader) -> None:
        """Guard the runs. Then start the scheduler paused, or pause it if it is running. Raises
        ConfigError."""
        scheduler = self._scheduler
        for alias, executor in scheduler._executors.items():
            _check_executor(alias, executor)
        # it stays after the gate, against late submissions; the next gate replaces it
        scheduler._lookup_executor = lambda alias: _Submits(alias, scheduler._executors, lead)
        if scheduler.state == STATE_STOPPED:
            self._ours = True
            scheduler.start(paused=True)
        else:
            scheduler.pause()

    def stop(self) -> None:
        if self._scheduler.state == STATE_STOPPED:
            return
        if self._ours:
            self._scheduler.shutdown(wait=False)
        else:
            self._scheduler.pause()

    def open(self, lead: Leader) -> None:
        if self._scheduler.state == STATE_STOPPED:
            return
        try:
            if self._opened or not lead.found_vacant:
                self._skip_before(self._app.env.wall_now() - timedelta(seconds=lead._vacant_ago()))
        finally:
            self._opened = True
            self._scheduler.resume()

    def close(self, lead: Leader) -> None:
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


def _first_from(trigger: Any, due: datetime, moment: datetime) -> datetime | None:
    """Return the trigger's first moment that is not before ``moment``. ``due`` is one of its
    moments. None: there is none."""
    at = moment.astimezone(due.tzinfo)
    following: datetime | None = due
    if not isinstance(trigger, AndTrigger):  # which, without a moment before, may search for ever
        following = trigger.get_next_fire_time(None, at)
    while following is not None and following < at:  # some triggers count from their start
        following = trigger.get_next_fire_time(following, at)
    return following


def _check_executor(alias: str, executor: Any) -> None:
    if isinstance(executor, ProcessPoolExecutor):
        raise ConfigError(
            "a run in another process cannot check whether this process still leads",
            got=f"executor {alias!r}",
            do="Use the thread pool or the event loop",
        )


class _Submits:
    """Stands for an executor where the scheduler submits a job's runs."""

    def __init__(self, alias: str, executors: dict[str, Any], lead: Any) -> None:
        self._alias = alias
        self._executor = executors[alias]
        self._lead = lead

    def submit_job(self, job: Any, run_times: Any) -> None:
        _check_executor(self._alias, self._executor)  # it may have been added after the start
        self._executor.submit_job(_Guarded(job, self._lead), run_times)


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
    def check() -> None:
        if not lead.is_leader:
            raise LostLease("the run was skipped: this process no longer leads", got=job)

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            check()
            if not hasattr(lead, "while_leading"):
                return await function(*args, **kwargs)
            async with lead.while_leading():
                return await function(*args, **kwargs)

        return guarded

    @wraps(function)
    def guarded_in_thread(*args: Any, **kwargs: Any) -> Any:
        check()
        return function(*args, **kwargs)

    return guarded_in_thread
