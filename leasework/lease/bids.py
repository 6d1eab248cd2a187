"""A user's request for a lease. The user's thread and the guard's thread share it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from enum import Enum

from leasework import own_tasks
from leasework.env import Env
from leasework.lease.membership import Membership
from leasework.model.lease import Lease, Seen
from leasework.model.moments import Duration, checked_timeout


class Patience(Enum):
    WAIT = "until the lease is ours"
    TRY = "now or not at all"
    SURE = "unless its holder was seen alive"


class Lost:
    """Set when a term is lost, before another process can get the next one."""

    def __init__(self, valid: Callable[[], bool]) -> None:
        self._valid = valid
        self._lock = threading.Lock()
        self._calls: list[Callable[[], None]] = []
        self.why: str = ""
        """The reason, or empty while it is not set."""

    def is_set(self) -> bool:
        """Return whether the term is lost. This also reads the clock: a process that was stopped
        finds out as soon as it asks."""
        return bool(self.why) or not self._valid()

    def set(self, why: str) -> None:
        with self._lock:
            if self.why:
                return
            self.why = why or "lost"
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    def call(self, callback: Callable[[], None]) -> None:
        """Call it in the guard's thread when the term is lost, or now if it was already lost."""
        with self._lock:
            if not self.why:
                self._calls.append(callback)
                return
        callback()

    def forget(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if callback in self._calls:
                self._calls.remove(callback)

    async def wait(self) -> None:
        """Wait until the term is lost."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(event.set)

        self.call(tell)
        try:
            await event.wait()
        finally:
            self.forget(tell)

    def wait_in_thread(self, timeout: Duration | None = None) -> bool:
        """``wait`` in a thread. Return False after ``timeout`` seconds. Raises ConfigError."""
        seconds = checked_timeout(timeout)
        event = threading.Event()
        self.call(event.set)
        try:
            return event.wait(seconds)
        finally:
            self.forget(event.set)


class Bid:
    """A request, and the one term that it gets. ``answer`` is the token, or None if the bid did not
    want to wait. ``released`` is done when the database knows that the lease was given up, or when
    it does not answer. ``has_body``: work runs under the term, and the user returns the bid when
    that ends; else the end of the work is unknown. ``loop`` is the event loop in which the work
    runs, if the work must not keep the lease while this loop is stuck."""

    def __init__(
        self,
        name: str,
        env: Env,
        patience: Patience,
        *,
        has_body: bool,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.name = name
        self.patience = patience
        self.has_body = has_body
        self.loop = loop
        self.first_seen: Seen | None = None
        """The first row that was read since the user asked."""
        self.token = 0
        self.vacant_since = 0.0
        """When the last holder gave the lease up or was last alive, by the boot clock."""
        self.found_vacant = False
        """Nobody held the lease when this process first checked."""
        self.answer: Future[int | None] = Future()
        self.released: Future[None] = Future()
        self.lost = Lost(self.valid)
        self._env = env
        self._lease: Lease | None = None
        self._membership: Membership | None = None
        self._process = own_tasks.generation

    def valid(self) -> bool:
        """Return whether this process holds the term at this moment."""
        lease, membership = self._lease, self._membership
        if lease is None or membership is None or self.lost.why:
            return False
        if self._process != own_tasks.generation:
            return False  # after a fork, the term is the parent's
        now = self._env.boot_now()
        # compare the token last: another thread may be replacing the term
        return lease.valid(now) and membership.valid(now) and lease.token == self.token

    def grant(self, token: int, lease: Lease, membership: Membership) -> bool:
        """Return False if the caller no longer waits."""
        if not self.answer.set_running_or_notify_cancel():
            return False
        self.token, self._lease, self._membership = token, lease, membership
        self.answer.set_result(token)
        return True

    def refuse(self, error: Exception | None = None) -> None:
        with suppress(InvalidStateError):
            if error:
                self.answer.set_exception(error)
            else:
                self.answer.set_result(None)

    def end(self) -> None:
        self.lost.set("released")
        with suppress(InvalidStateError):
            self.released.set_result(None)
