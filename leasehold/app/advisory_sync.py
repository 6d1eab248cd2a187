"""Advisory locks for code without an event loop: ``app.sync.advisory_lock(...)``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from leasehold.app.advisory import AdvisoryLock, not_acquired
from leasehold.errors import LostLock

if TYPE_CHECKING:
    from leasehold.app.home import Calls


class SyncAdvisoryLock:
    """``with``, or :meth:`acquire` and :meth:`release`; from any thread.

    A thread cannot be cancelled: look at :attr:`held` before each step that matters, or wait on
    :attr:`lost`. The lock is verified in leasehold's own thread meanwhile.
    """

    def __init__(self, sync: Calls, lock: AdvisoryLock) -> None:
        self._sync = sync
        self._lock = lock
        self.lost = threading.Event()
        """Set once when the database does not show the lock any more, or does not answer."""
        lock.on_lost(lambda why: self.lost.set())

    @property
    def held(self) -> bool:
        """See :attr:`AdvisoryLock.held`."""
        return self._lock.held

    @property
    def pid(self) -> int | None:
        """The server's process that holds it."""
        return self._lock.pid

    @property
    def why_lost(self) -> str | None:
        return self._lock.why_lost

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """Call it with the reason, in leasehold's own thread, when the lock is lost."""
        self._lock.on_lost(callback)

    def acquire(self) -> bool:
        """Try; with a ``timeout``, wait. Whether it is ours. Errors as for
        :meth:`AdvisoryLock.acquire`."""
        lock = self._lock
        self.lost.clear()
        if lock.on is None:
            return self._sync.call(lock.acquire())
        # in this thread, on the caller's connection; only the name goes over one of ours
        self._sync.home.on_connection.need_sync(lock.on)
        self._sync.call(self._sync.home._note_lock(lock.key))
        return self._sync.here(lock.acquire_on())

    def release(self) -> None:
        """Raises LostLock when it was not ours any more. Nothing with ``on=``."""
        self._sync.call(self._lock.release())

    def verify(self) -> None:
        """Ask the database now. Raises LostLock."""
        self._sync.call(self._lock.verify())

    def __enter__(self) -> SyncAdvisoryLock:
        """Raises LockNotAcquired."""
        if not self.acquire():
            raise not_acquired(self._lock)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lock.on is not None:
            return
        try:
            self.release()
        except LostLock:
            if kind is None:
                raise
