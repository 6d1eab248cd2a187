"""``app.sync``: the same interface for code without an event loop."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import wraps
from itertools import islice
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack
from uuid import UUID

from leasework.app.advisory import AdvisoryGiven, AdvisoryLock, not_acquired, note_name
from leasework.app.deadlines import Due, OnBreach, StandingDeadline, standing_deadline
from leasework.app.held import VERIFY_IDLE_SECONDS, Held
from leasework.app.home import Follows, Home
from leasework.app.leader import Leader
from leasework.app.lock import Lock
from leasework.app.schedules import StoredSchedules
from leasework.env import LOOP_FACTORY
from leasework.errors import ConfigError, LeaseworkError
from leasework.jobs.client import Batch, Job
from leasework.lease.bids import Lost
from leasework.model.job import JobRequest, R
from leasework.model.moments import Duration
from leasework.own_tasks import without_loop

A = TypeVar("A")
H = TypeVar("H", bound="Lock | Leader")
P = ParamSpec("P")
T = TypeVar("T")


class Twin(Generic[A]):
    """An object whose methods call those of an asyncio object and wait for them."""

    __slots__ = ("_async", "_sync")

    def __init__(self, sync: SyncApp, twin: A) -> None:
        self._sync = sync
        self._async = twin

    def _take(self, work: Coroutine[Any, Any, T]) -> T:
        held: Any = self._async
        try:
            return self._sync.call(work)
        except LeaseworkError:
            raise
        except BaseException:  # Ctrl-C: the caller would not know that it is held
            with suppress(LeaseworkError):
                self._sync.call(held.__aexit__(None, None, None))
            raise


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Twin[Any], P], T]:
    """Return a method of a :class:`Twin` that calls ``method`` and waits for its result."""
    begin = inspect.unwrap(method)  # without its check for an event loop
    takes_on = "on" in inspect.signature(begin).parameters

    @wraps(begin)
    def call(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        on = None
        if takes_on:
            kwargs["on"] = on = self._sync.joined(kwargs.get("on"))
        result: T = self._sync._over(on, begin(self._async, *args, **kwargs))
        return result

    call.__doc__ = f"See :meth:`{begin.__qualname__.replace('Home.', 'App.')}`."
    return call


_enqueue_many, _batch = inspect.unwrap(Home.enqueue_many), inspect.unwrap(Home.batch)


def reading(attribute: Any) -> Any:
    """Return a property of a :class:`Twin` that reads this ``attribute``, a property of its
    asyncio object."""
    name = attribute.fget.__name__

    def read(self: Twin[Any]) -> Any:
        return getattr(self._async, name)

    read.__annotations__["return"] = attribute.fget.__annotations__["return"]
    read.__doc__ = f"See :attr:`{attribute.fget.__qualname__}`."
    return property(read)


class SyncJob(Twin[Job[R]]):
    """An enqueued job, as :class:`Job`, whose calls wait for their answer here."""

    __slots__ = ()
    __match_args__ = ("id", "created")

    id: UUID = reading(Job.id)
    get = blocking(Job.get)
    cancel = blocking(Job.cancel)

    @property
    def created(self) -> bool:
        """False if its unique key matched an existing job, which this is then."""
        return self._async.created

    def wait(self, timeout: Duration | None = None) -> R:
        """See :meth:`Job.wait`."""
        return self._sync.call(self._async.wait(timeout))

    def __eq__(self, other: object) -> bool:
        return self._async == other._async if isinstance(other, SyncJob) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._async)

    def __repr__(self) -> str:
        return repr(self._async)


class SyncApp(Twin[Home]):
    """The calls of :class:`App` for code without an event loop, safe from any thread::

        job = app.sync.enqueue(send.job(user_id=42))
        result = job.wait(timeout=10)

    They run in one background event loop of the process. With ``on=``, the statement runs in the
    calling thread, on the caller's connection. All others raise ConfigError inside an event loop.
    """

    def __init__(self, app: Home, schedules: StoredSchedules) -> None:
        super().__init__(self, app)
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._thread: int | None = None
        """The loop's thread. With gevent, it is a greenlet."""
        self._starting: dict[int, threading.Lock] = {}
        self.schedules = SyncSchedules(self, schedules)

    def enqueue(self, request: JobRequest[R], *, on: Any = None) -> SyncJob[R]:
        """See :meth:`App.enqueue`. ``on`` is a connection or session of a sync driver."""
        return self.enqueue_many([request], on=on)[0]

    def enqueue_many(
        self, requests: Iterable[JobRequest[R]], *, on: Any = None
    ) -> list[SyncJob[R]]:
        """See :meth:`App.enqueue_many`. A generator runs in the calling thread."""
        on, given = self.joined(on), self._read(requests)
        jobs = self._over(on, _enqueue_many(self._app, given, on=on))
        return [SyncJob(self, job) for job in jobs]

    def _read(self, requests: Iterable[JobRequest[R]]) -> list[JobRequest[R]]:
        return list(islice(requests, self._app.settings.limits.enqueue_rows + 1))

    def batch(
        self,
        requests: Iterable[JobRequest[R]],
        *,
        on_done: Follows = None,
        on_success: Follows = None,
        on_failure: Follows = None,
        on: Any = None,
    ) -> Batch[SyncJob[R]]:
        """See :meth:`App.batch`. ``on`` is a connection or session of a sync driver. A generator
        runs in the calling thread."""
        on, given = self.joined(on), self._read(requests)
        calls = {"on_done": on_done, "on_success": on_success, "on_failure": on_failure}
        made = self._over(on, _batch(self._app, given, on=on, **calls))
        return Batch(made.id, [SyncJob(self, job) for job in made.jobs])

    signal = blocking(Home.signal)
    get_batch = blocking(Home.get_batch)
    batch_results = blocking(Home.batch_results)
    get = blocking(Home.get)
    jobs = blocking(Home.jobs)
    cancel = blocking(Home.cancel)
    retry = blocking(Home.retry)
    dsn = blocking(Home.dsn)

    def wait(self, job: UUID | str, timeout: Duration | None = None) -> Any:
        """Wait at most ``timeout`` seconds until a job has finished, and return its result as plain
        JSON. Errors: see :meth:`Job.wait`."""

        async def wait() -> Any:
            return await (await self._app.client()).wait(job, timeout)

        return self.call(wait())

    def deadline(
        self, name: str, *, due: Due = None, on_breach: OnBreach = None, on: Any = None
    ) -> SyncStandingDeadline:
        """See :meth:`App.deadline`. ``on`` is a connection or session of a sync driver."""
        on = self.joined(on)
        work = standing_deadline(self._app, name, due=due, on_breach=on_breach, on=on)
        return SyncStandingDeadline(self, self._over(on, work))

    def advisory_lock(
        self, target: str | int | tuple[str | int, int], **options: Unpack[AdvisoryGiven]
    ) -> SyncAdvisoryLock:
        """See :meth:`App.advisory_lock`. Use it with ``with``. A loss cancels nothing."""
        return SyncAdvisoryLock(self, AdvisoryLock(self._app, target, cancel=False, **options))

    def leader(
        self,
        name: str,
        *,
        also_advisory_key: str | int | tuple[str | int, int] | None = None,
    ) -> SyncLeader:
        """See :meth:`App.leader`. In threads: ``with app.sync.leader("engine") as lead:``."""
        lead = InBackground(self._app, name, also_advisory_key=also_advisory_key)
        return SyncLeader(self, lead)

    def lock(self, name: str, *, timeout: Duration | None = None) -> SyncLock:
        """See :meth:`App.lock`. In threads: ``with app.sync.lock("nightly") as lock:``."""
        return SyncLock(self, Lock(self._app, name, timeout=timeout, cancel=False))

    def close(self) -> None:
        """Close the connections of these calls. The app opens new ones when it needs them. Raises
        ConfigError inside an event loop."""
        if self._loop is not None and self._pid == os.getpid():
            self.call(self._app.close())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the background loop and wait for its result. An interruption of the
        wait, such as Ctrl-C, cancels it. Raises ConfigError inside an event loop."""
        try:
            self._need_no_loop()
        except ConfigError:
            work.close()
            raise
        running = asyncio.run_coroutine_threadsafe(work, self.background())
        try:
            return running.result()
        finally:
            running.cancel()  # does nothing if it has ended

    def joined(self, on: Any) -> Any:
        """The connection whose transaction a call is part of: ``on``, for all but Django."""
        return on

    def _here(self, on: Any, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this thread, on the caller's connection."""
        try:
            self._app.on_connection.need_sync(on)
        except LeaseworkError:
            work.close()
            raise
        return without_loop(work)

    def _over(self, on: Any, work: Coroutine[Any, Any, T]) -> T:
        return self.call(work) if on is None else self._here(on, work)

    def background(self) -> asyncio.AbstractEventLoop:
        """Return the process's loop. Start it if there is none."""
        if self._loop is None or self._pid != os.getpid():
            # a lock of this process, made now: gevent may have patched locks since the app was made
            with self._starting.setdefault(os.getpid(), threading.Lock()):
                if self._loop is None or self._pid != os.getpid():
                    self._start_loop()
        assert self._loop
        return self._loop

    def _start_loop(self) -> None:
        loop = (LOOP_FACTORY or asyncio.new_event_loop)()
        thread = threading.Thread(target=loop.run_forever, name="leasework-sync", daemon=True)
        try:
            thread.start()
        except BaseException:
            loop.close()
            raise
        self._loop, self._pid, self._thread = loop, os.getpid(), thread.ident

    def _need_no_loop(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if loop is self._loop and self._thread != threading.get_ident():
            return  # gevent: the loop runs in this thread, but in its own greenlet
        raise ConfigError(
            "app.sync was called inside an event loop, and would block it",
            do="Leave out .sync there: `await app.enqueue(...)`, `async with app.lock(...)`",
        )


class SyncHeld(Twin[H]):
    """The base of SyncLock and SyncLeader."""

    def __init__(self, sync: SyncApp, held: H) -> None:
        super().__init__(sync, held)
        self.name: str = held.name
        """The name, without a prefix."""

    lost: Lost = reading(Held.lost)
    found_vacant: bool = reading(Held.found_vacant)

    def verify(self, connection: Any, *, idle_timeout: Duration = VERIFY_IDLE_SECONDS) -> None:
        """See :meth:`Held.verify`. ``connection`` is of a sync driver."""
        self._sync._here(connection, self._async.verify(connection, idle_timeout=idle_timeout))

    def __enter__(self) -> Self:
        self._take(self._async.__aenter__())
        return self

    def __exit__(self, *raised: Any) -> None:
        self._sync.call(self._async.__aexit__(*raised))


class SyncLock(SyncHeld[Lock]):
    """A :class:`leasework.app.lock.Lock` for threads. Its block cannot be cancelled. It runs to its
    end, and then raises LostLease if the lock was lost."""

    token: int = reading(Lock.token)
    held: bool = reading(Lock.held)
    release = blocking(Lock.release)

    def acquire(self, timeout: Duration | None = None) -> None:
        """See :meth:`Lock.acquire`."""
        self._take(self._async.acquire(timeout))

    def try_acquire(self, *, sure: bool = False) -> bool:
        """See :meth:`Lock.try_acquire`."""
        return self._take(self._async.try_acquire(sure=sure))


class SyncLeader(SyncHeld[Leader]):
    """A :class:`leasework.app.leader.Leader` for threads. A thread cannot be cancelled: check
    ``is_leader`` before each step. At the end of the block, the lease is given up at once."""

    is_leader: bool = reading(Leader.is_leader)
    term: int | None = reading(Leader.term)

    def wait(self, timeout: Duration | None = None) -> int | None:
        """Wait until this process leads, and return the term, or None after ``timeout`` seconds.
        Raises LostLease when the block has ended."""

        async def wait() -> int | None:
            with suppress(TimeoutError):
                return await self._async.wait(timeout)
            return None

        return self._sync.call(wait())


class InBackground(Leader):
    """The part of a SyncLeader in the background loop."""

    def _body_loop(self) -> None:
        """None: the work runs in threads, which a blocked loop does not stop."""


class SyncAdvisoryLock(Twin[AdvisoryLock]):
    """An :class:`AdvisoryLock` for threads: use ``with``, or :meth:`acquire` and :meth:`release`.

    A thread cannot be cancelled. Check :attr:`held` before each important step, or wait on
    :attr:`lost`. leasework verifies the lock in its own thread.
    """

    def __init__(self, sync: SyncApp, lock: AdvisoryLock) -> None:
        super().__init__(sync, lock)
        self.lost: threading.Event = threading.Event()
        """Set when the database no longer shows the lock, or does not answer."""
        lock.on_lost(lambda why: self.lost.set())

    held: bool = reading(AdvisoryLock.held)
    pid: int | None = reading(AdvisoryLock.pid)

    @property
    def why_lost(self) -> str | None:
        """See :attr:`AdvisoryLock.why_lost`."""
        return self._async.why_lost

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """When the lock is lost, call ``callback(why)`` in leasework's own thread."""
        self._async.on_lost(callback)

    def acquire(self) -> bool:
        """See :meth:`AdvisoryLock.acquire`."""
        lock, sync = self._async, self._sync
        if lock.pid is None:
            self.lost.clear()
        if lock.on is None:
            return self._take(lock.acquire())
        # the lock: in this thread, on the caller's connection; the name: on one of leasework's
        sync._app.on_connection.need_sync(lock.on)
        sync.call(note_name(sync._app, lock.key))
        return sync._here(lock.on, lock.acquire_on())

    release = blocking(AdvisoryLock.release)
    verify = blocking(AdvisoryLock.verify)

    def __enter__(self) -> Self:
        """Raises LockNotAcquired."""
        if not self.acquire():
            raise not_acquired(self._async)
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._async.on is None:
            self._sync.call(self._async.__aexit__(*raised))


class SyncStandingDeadline(Twin[StandingDeadline]):
    """A :class:`StandingDeadline` for code without an event loop. ``on`` is a connection or session
    of a sync driver."""

    def __init__(self, sync: SyncApp, deadline: StandingDeadline) -> None:
        self.id: UUID = deadline.id
        """See :class:`StandingDeadline`."""
        self.name: str = deadline.name
        """The name under which it was armed."""
        self.created: bool = deadline.created
        """False: the deadline already existed."""
        super().__init__(sync, deadline)

    met = blocking(StandingDeadline.met)
    cancel = blocking(StandingDeadline.cancel)


class SyncSchedules(Twin[StoredSchedules]):
    """``app.sync.schedules``: :class:`StoredSchedules` for code without an event loop. ``on`` is a
    connection or session of a sync driver."""

    put = blocking(StoredSchedules.put)
    get = blocking(StoredSchedules.get)
    list = blocking(StoredSchedules.list)
    pause = blocking(StoredSchedules.pause)
    resume = blocking(StoredSchedules.resume)
    run_now = blocking(StoredSchedules.run_now)
    delete = blocking(StoredSchedules.delete)
