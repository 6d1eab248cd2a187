"""The same surface for code without an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from leasehold.app.advisory_sync import SyncAdvisoryLock
from leasehold.app.deadlines import SyncStandingDeadline
from leasehold.app.held import without_loop
from leasehold.app.threads import SyncLeader, SyncLock
from leasehold.env import LOOP_FACTORY
from leasehold.errors import ConfigError
from leasehold.jobs.client import Client, Job
from leasehold.model.job import JobRecord, JobRequest

if TYPE_CHECKING:
    from leasehold.app.home import Home

T = TypeVar("T")


class SyncApp:
    """The same for code without an event loop; safe from any thread.

    Calls run in one background loop of the process. With ``on=`` the statement runs in the
    calling thread, on the caller's connection.
    """

    def __init__(self, app: Home) -> None:
        self.home = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._thread: int | None = None
        """Of the loop; with gevent a greenlet."""
        self._lock = threading.Lock()

    def enqueue(self, request: JobRequest, *, on: Any = None) -> Job:
        return self.enqueue_many([request], on=on)[0]

    def enqueue_many(self, requests: Iterable[JobRequest], *, on: Any = None) -> list[Job]:
        if on is not None:
            self.home.on_connection.need_sync(on)
            return without_loop(self._enqueue_on(requests, on))
        self._need_no_loop()
        # a generator of the caller's runs in the caller's thread
        given = list(islice(requests, self.home.settings.limits.enqueue_rows + 1))
        return self.call(self.home.enqueue_many(given))

    async def _enqueue_on(self, requests: Iterable[JobRequest], on: Any) -> list[Job]:
        app = self.home
        # nothing of leasehold's own is touched: neither a store nor a connection
        client = Client(_NO_STORE, app.env, app.settings, app.on_connection, app.client)
        return await client.enqueue_many(requests, on)

    def get(self, job: UUID | str) -> JobRecord:
        return self.call(self.home.get(job))

    def jobs(self, **filters: Any) -> list[JobRecord]:
        return self.call(self.home.jobs(**filters))

    def cancel(self, job: UUID | str, reason: str = "cancelled") -> bool:
        return self.call(self.home.cancel(job, reason))

    def retry(self, job: UUID | str) -> bool:
        return self.call(self.home.retry(job))

    def deadline(self, name: str, **options: Any) -> SyncStandingDeadline:
        """As ``App.deadline``; with ``on=`` a connection of a sync driver."""
        return SyncStandingDeadline(self._over(self.home.deadline, options)(name), self._over)

    def _over(self, call: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
        """``call`` with these options: here, over the user's connection, or in our loop."""
        on = options.get("on")

        def run(*arguments: Any) -> Any:
            if on is None:
                return self.call(call(*arguments, **options))
            self.home.on_connection.need_sync(on)
            return without_loop(call(*arguments, **options))

        return run

    def wait(self, job: UUID | str, timeout: float | None = None) -> Any:
        """Wait until a job has finished; its result. See :meth:`Job.wait`."""

        async def wait() -> Any:
            return await (await self.home.client()).wait(job, timeout)

        return self.call(wait())

    def advisory_lock(self, target: Any, **options: Any) -> SyncAdvisoryLock:
        """As :meth:`App.advisory_lock`, for ``with``; nothing is cancelled when it is lost."""
        return SyncAdvisoryLock(self, self.home.advisory_lock(target, cancel=False, **options))

    def here(self, work: Coroutine[Any, Any, T]) -> T:
        """In this thread, on a connection of the caller's."""
        return without_loop(work)

    def leader(self, name: str, **options: Any) -> SyncLeader:
        """As :meth:`App.leader`, for threads: ``with app.sync.leader("engine") as lead:``."""
        return SyncLeader(self.home, name, **options)

    def lock(self, name: str, **options: Any) -> SyncLock:
        """As :meth:`App.lock`, for threads: ``with app.sync.lock("nightly") as lock:``."""
        return SyncLock(self.home, name, **options)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._need_no_loop()
        except ConfigError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self.background()).result()

    def close(self) -> None:
        """Close what these calls have opened. The app can be used again."""
        if self._loop is not None and self._pid == os.getpid():
            self.call(self.home.close())

    def background(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop = (LOOP_FACTORY or asyncio.new_event_loop)()
                self._pid = os.getpid()
                thread = threading.Thread(
                    target=self._run, args=[self._loop], name="leasehold-sync", daemon=True
                )
                thread.start()
            return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self._thread = threading.get_ident()
        loop.run_forever()

    def _need_no_loop(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if loop is self._loop and self._thread != threading.get_ident():
            return  # gevent runs it in this thread, but in a greenlet of its own
        raise ConfigError(
            "app.sync was called inside an event loop, which would stand still",
            do="Use `await app.enqueue(...)` there",
        )


_NO_STORE: Any = None
