"""The base of every service: it sleeps, wakes, retries and stops.

A service has one method, ``tick``: it does one bounded batch, and returns the seconds until the
next. The loop around it exists only here.
"""

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
from leasework.loops.waiting import Bell
from leasework.ports import Store
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


class Service(ABC):
    """``name`` appears in events. ``pause``: seconds after a round that another process won."""

    name: ClassVar[str]
    pause: ClassVar[float] = 1.0

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
        self._wake = Bell()
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

    def wake(self) -> None:
        """Tick now. Call it only in the loop's own thread."""
        self._wake.ring()

    def wake_from_any_thread(self) -> None:
        """Tick now, from any thread. Does nothing if the loop is not running."""
        if self._task:
            with suppress(RuntimeError):  # the event loop is closed: the process is exiting
                self._task.get_loop().call_soon_threadsafe(self.wake)

    async def stop(self) -> None:
        """Let the current tick end, and start no other."""
        self._stopping = True
        self._wake.ring()
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            if self._gate is None or self._gate():
                delay = await self._round()
            else:
                delay = max(self.service.pause, Tuning.service_gate_seconds)
            if delay > 0 and not self._stopping:
                await self._wake.wait(delay)
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
