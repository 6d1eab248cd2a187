"""Leaders and locks for code without an event loop. Nothing here can cancel a thread: look at
``lost`` and ``is_leader``, and use ``verify`` where it matters."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from leasehold.app.held import VERIFY_IDLE_SECONDS, Held, without_loop
from leasehold.app.lock import check_timeout, patience_of
from leasehold.config import LEADER_PREFIX, LOCK_PREFIX
from leasehold.errors import (
    ConfigError,
    LeaseholdError,
    LockNotAcquired,
    LostLease,
    Unavailable,
    told,
)
from leasehold.lease.bids import Bid, Patience

if TYPE_CHECKING:
    from leasehold.app.advisory_sync import SyncAdvisoryLock
    from leasehold.app.home import Home
    from leasehold.lease.guard import Guard

_RETRY_SECONDS = 0.5


class SyncLock(Held):
    """As :class:`leasehold.app.lock.Lock`; its block cannot be cancelled, and raises LostLease at
    its end when the lock was lost meanwhile."""

    def __init__(self, app: Home, name: str, *, timeout: float | None = None) -> None:
        super().__init__(app, LOCK_PREFIX, name)
        check_timeout(timeout)
        self._timeout = timeout

    @property
    def token(self) -> int:
        """Raises LostLease when the lock is not held at this moment."""
        token = self._token()
        if token is None:
            raise self._is_lost()
        return token

    @property
    def held(self) -> bool:
        """At this very moment."""
        return self._valid()

    def verify(self, connection: Any, *, idle_timeout: float = VERIFY_IDLE_SECONDS) -> None:
        """Inside your transaction on a connection of a sync driver. Raises LostLease."""
        self._app.on_connection.need_sync(connection)
        without_loop(self._verify(connection, idle_timeout))

    def acquire(self, timeout: float | None = None) -> None:
        """Wait for it; ``timeout`` in seconds, 0: one try. Raises LockNotAcquired."""
        check_timeout(timeout)
        if not self._win(*patience_of(timeout)):
            raise LockNotAcquired(f"the lock {self.name!r} was not free within {timeout:g} s")

    def try_acquire(self, *, sure: bool = False) -> bool:
        """Have it now or not at all; ``sure``: False only if its holder was seen alive."""
        return self._win(Patience.SURE if sure else Patience.TRY, None)

    def _win(self, patience: Patience, timeout: float | None) -> bool:
        if self._bid:
            raise ConfigError(f"this lock object of {self.name!r} is in use")
        bid = self._bid = self._new_bid(patience, has_body=True)
        try:
            self._guard = self._app.desk.take_in_thread(leader=False)
            self._guard.ask(bid)
            won = bid.answer.result(timeout) is not None
        except TimeoutError:
            won = False
        except BaseException:
            self.release()
            raise
        if not won:
            self.release()
        return won

    def release(self) -> None:
        """Give it up; who waits has it at once."""
        bid, guard = self._bid, self._guard
        self._bid = self._guard = None
        if bid is None or guard is None:
            return
        with suppress(LeaseholdError, TimeoutError):  # its lease expires then
            guard.done(bid)
            bid.released.result(self._app.settings.call_timeout)
        self._app.desk.give_back(guard)

    def __enter__(self) -> Self:
        self.acquire(self._timeout)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lost = None if self._valid() or self._bid is None else self._is_lost()
        self.release()
        if lost and error is None:
            raise LostLease(f"the lock {self.name!r} was lost while it was held", got=lost.got)


class SyncLeader(Held):
    """As :class:`leasehold.app.leader.Leader`, ``also_advisory_key`` too. ``on_gain(lead)`` and
    ``on_loss(lead)`` are called in a thread of leasehold's, one after the other."""

    def __init__(
        self,
        app: Home,
        name: str,
        *,
        on_gain: Callable[[SyncLeader], Any] | None = None,
        on_loss: Callable[[SyncLeader], Any] | None = None,
        also_advisory_key: str | int | tuple[str | int, int] | None = None,
    ) -> None:
        super().__init__(app, LEADER_PREFIX, name)
        self._also: SyncAdvisoryLock | None = None
        if also_advisory_key is not None:
            self._also = app.sync.advisory_lock(also_advisory_key, scope="session")
            self._also.on_lost(self._also_lost)
        self._refused = False
        self._on_gain = on_gain
        self._on_loss = on_loss
        self._changed = threading.Condition()
        self._left = threading.Event()
        self._thread: threading.Thread | None = None
        self._standing: Bid | None = None

    def _valid(self) -> bool:
        return super()._valid() and (self._also is None or self._also.held)

    def _also_lost(self, why: str) -> None:
        if self._standing:
            self._standing.lost.set(f"the advisory lock: {why}")

    @property
    def is_leader(self) -> bool:
        """At this very moment: it asks the clock, each time."""
        return self._valid()

    @property
    def term(self) -> int | None:
        """The number of this tenure, a token that only grows; None while others lead."""
        return self._token()

    def wait(self, timeout: float | None = None) -> int | None:
        """Until this process leads; the term, or None after ``timeout`` seconds."""
        check_timeout(timeout)
        with self._changed:
            self._changed.wait_for(lambda: self.term is not None, timeout)
        return self.term

    def verify(self, connection: Any, *, idle_timeout: float = VERIFY_IDLE_SECONDS) -> None:
        """Inside your transaction on a connection of a sync driver. Raises LostLease."""
        self._app.on_connection.need_sync(connection)
        without_loop(self._verify(connection, idle_timeout))

    def __enter__(self) -> Self:
        if self._thread:
            raise ConfigError(f"this leader object of {self.name!r} is in use")
        guard = self._app.desk.take_in_thread(leader=True)
        self._left.clear()
        self._thread = threading.Thread(
            target=self._stand, args=(guard,), name=f"leasehold-{self._full_name}", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        thread, self._thread = self._thread, None
        self._left.set()
        if self._standing:
            self._standing.answer.cancel()
            self._standing.lost.set("left")
        if thread:
            thread.join()

    def _stand(self, guard: Guard | None) -> None:
        while not self._left.is_set():
            try:
                guard = guard or self._app.desk.take_in_thread(leader=True)
                try:
                    while not self._left.is_set():
                        self._tenure(guard)
                finally:
                    self._app.desk.give_back(guard)
            except LeaseholdError as error:
                # its node has stopped, or the database refuses us: another node, a while later
                if guard and not isinstance(error, Unavailable) and not self._refused:
                    self._refused = True
                    guard.emit("service_failed", service=self._full_name, error=str(error))
                guard = None
                self._left.wait(_RETRY_SECONDS)

    def _tenure(self, guard: Guard) -> None:
        bid = self._standing = self._new_bid(
            Patience.WAIT, has_body=bool(self._on_gain or self._on_loss)
        )
        try:
            guard.ask(bid)
            if self._left.is_set():
                return
            with suppress(CancelledError):  # we leave
                bid.answer.result()
                if self._also and not self._lock_too(self._also, bid):
                    return
                with self._changed:
                    self._bid, self._guard = bid, guard
                    self._changed.notify_all()
                self._call(self._on_gain, guard)
                bid.lost.wait_in_thread()
                self._call(self._on_loss, guard)
        finally:
            if self._also:
                with suppress(LeaseholdError):  # lost before, or with its connection
                    self._also.release()
            guard.done(bid)
            with suppress(TimeoutError):
                bid.released.result(self._app.settings.call_timeout)

    def _lock_too(self, also: SyncAdvisoryLock, bid: Bid) -> bool:
        """See :meth:`leasehold.app.leader.Leader._lock_too`."""
        while not also.acquire():
            if bid.lost.wait_in_thread(_RETRY_SECONDS):
                return False
        return not bid.lost.is_set()

    def _call(self, callback: Callable[[SyncLeader], Any] | None, guard: Guard) -> None:
        if callback is None:
            return
        try:
            callback(self)
        except Exception as error:
            guard.emit("callback_failed", name=self._full_name, error=told(error))
