"""The base of every service: it sleeps, wakes, retries and stops. A service has one method,
``tick``: it does one bounded batch, and returns the seconds until the next."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import ClassVar

from msgspec import Struct

from leasework import errors, own_tasks
from leasework.config import Settings
from leasework.env import Env
from leasework.store.store import Store
from leasework.telemetry import Emit, Repeats
from leasework.tuning import Tuning


class ServiceContext(Struct, frozen=True):
    """What all services of one node have in common."""

    settings: Settings
    env: Env
    emit: Emit
    store: Store
    users: Store
    """For operations that may wait for a user's transaction."""


class BatchSize:
    """A batch's limit, in rows or bytes. It halves after a call without an answer in time, as on a
    slow link, and doubles, up to ``most``, after a quick call of more than half its size."""

    def __init__(self, most: int) -> None:
        self.most = self.now = most

    def unanswered(self, size: int) -> None:
        """A call of that size got no answer."""
        self.now = max(1, min(size, self.now) // 2)

    def answered(self, size: int, seconds: float) -> None:
        """A call was answered. A small one says nothing about bigger ones."""
        if size * 2 > self.now and seconds < Tuning.quick_batch_seconds:
            self.now = min(self.most, self.now * 2)


class Wakeup:
    """An event that wakes the one task that waits for it, within a time limit. Each wait takes one
    future and one timer, a third of the cost of asyncio.Event under asyncio.timeout."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def set(self) -> None:
        """Wake the waiter; no wait blocks until ``clear``. Call it only in the waiter's loop."""
        self._is_set = True
        self._end_wait()

    def clear(self) -> None:
        self._is_set = False

    async def wait(self, seconds: float) -> None:
        """Wait until it is set, at most ``seconds``."""
        if self._is_set:
            return
        loop = self._loop
        if loop is None:  # kept, because asking costs a system call
            loop = self._loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self._end_wait)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _end_wait(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


class Service(ABC):
    """``name`` appears in events. ``pause``: seconds after a round that another process won."""

    name: ClassVar[str]
    pause: ClassVar[float] = 1.0
    wake: Callable[[], None] = staticmethod(lambda: None)
    """Runs ``tick`` now. The service's loop sets it."""

    def __init__(self, context: ServiceContext) -> None:
        self._settings, self._limits = context.settings, context.settings.limits
        self._env, self._emit, self._store = context.env, context.emit, context.store

    @abstractmethod
    async def tick(self, now: datetime | None) -> float:
        """Do one bounded batch. The database takes ``now`` as its time (None: its own clock).
        Return the seconds until the next tick; 0 means at once."""


class Outage:
    """An outage of the database, shared by the loops of one process, so that it is reported once.
    ``probe`` asks the database for any answer, because a round that sent it nothing does not prove
    that it is back."""

    def __init__(self, probe: Callable[[], Awaitable[object]] | None = None) -> None:
        self.probe = probe
        self._began_at: float | None = None

    def began(self, now: float) -> bool:
        """Note a failure. Return True if the outage was not known yet."""
        new = self._began_at is None
        self._began_at = now if self._began_at is None else self._began_at
        return new

    def ended(self, now: float) -> float | None:
        """Return the length of the outage in seconds; None if another loop has reported it."""
        began, self._began_at = self._began_at, None
        return None if began is None else now - began


class Loop:
    """Runs one service until it is stopped. ``gate`` says whether it may work now: a leader's duty
    may work only while its term is valid."""

    def __init__(
        self, service: Service, env: Env, emit: Emit, gate: Callable[[], bool] | None = None
    ) -> None:
        self.service = service
        self._env = env
        self._emit = emit
        self._gate = gate
        self._wakeup = Wakeup()
        self.wake = service.wake = self._wakeup.set
        """Tick now. Call it only in the loop's own thread."""
        self._stopping = False
        self._troubles = 0
        self._conflicts = 0
        """In a row, since the database last was away."""
        self._repeats = Repeats(env.boot_now)
        self.lost = False
        """It backs off because the database did not answer."""
        self.outage = Outage()
        """Shared by the loops of one process."""
        self.on_back: Callable[[], None] = lambda: None
        """Called when the database answers again, so that other services need not wait."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = own_tasks.start(self._run(), name=f"leasework-{self.service.name}")

    def wake_from_any_thread(self) -> None:
        """Tick now, from any thread. Does nothing if the loop is not running."""
        if self._task:
            with suppress(RuntimeError):  # the event loop is closed: the process is exiting
                self._task.get_loop().call_soon_threadsafe(self.wake)

    async def stop(self) -> None:
        """Let the current tick end, and start no other."""
        self._stopping = True
        self._wakeup.set()
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not self._stopping:
            self._wakeup.clear()
            if self._gate is None or self._gate():
                delay = await self._round()
            else:
                delay = max(self.service.pause, Tuning.service_gate_seconds)
            if delay > 0 and not self._stopping:
                await self._wakeup.wait(delay)
            else:
                await asyncio.sleep(0)

    async def _round(self) -> float:
        try:
            delay = await self.service.tick(self._env.due_now())
            if self.lost and self.outage.probe:
                await self.outage.probe()
        except errors.LostLease:
            return self.service.pause  # lost after the gate; the new leader does the work
        except errors.Conflict as error:
            self._conflicts += 1
            if self._conflicts > Tuning.service_conflicts:
                self._failed(error)
            return self._back_off()
        except errors.Unavailable as error:
            self._conflicts = 0
            if self.outage.began(self._env.boot_now()):
                self._emit("database_lost", service=self.service.name, error=str(error))
            self.lost = True
            return self._back_off()
        except asyncio.CancelledError as error:
            if self._task is None or self._task.cancelling():
                raise
            self._failed(error)  # what it waits for was cancelled, not this task
            return self._back_off()
        except Exception as error:
            self._failed(error)
            return self._back_off()
        self._troubles = self._conflicts = 0
        if self.lost:
            self.lost = False
            seconds = self.outage.ended(self._env.boot_now())
            if seconds is not None:
                self._emit("database_back", service=self.service.name, seconds=round(seconds, 1))
                self.on_back()
        return delay

    def _failed(self, error: BaseException) -> None:
        text = errors.told(error)
        if self._repeats.due(text):
            self._emit("service_failed", service=self.service.name, error=text)

    def _back_off(self) -> float:
        self._troubles += 1
        seconds = min(
            Tuning.service_first_pause * 2 ** min(self._troubles, 10), Tuning.service_longest_pause
        )
        return self._env.jitter(seconds, 0.25)
