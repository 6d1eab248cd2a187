"""``app.lock(name)``: a lock that is a lease with a token."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from leasework.app.held import Held, Scope
from leasework.app.home import Home
from leasework.config import LOCK_PREFIX
from leasework.errors import ConfigError, LeaseworkError, LockNotAcquired, LostLease
from leasework.lease.bids import Patience
from leasework.model.moments import Duration, checked_timeout


class Lock(Held):
    """One use of a lock. At most one process holds it, among all that use the schema::

        async with app.lock("nightly", timeout=5) as lock:
            await sync(lock.token)

    ``timeout`` is how many seconds ``async with`` waits before it raises LockNotAcquired: None
    waits without limit, 0 makes one attempt. If the lock is lost, the block is cancelled and
    raises LostLease. With ``cancel=False`` the block continues, and raises LostLease at its end:
    check ``lost``. Processes take turns in the order in which they asked. A process may pass the
    lock on inside itself up to 10 times in a row. If the holder crashes, the lock becomes free
    when the lease expires. Call ``app.lock(name)`` for each use.
    """

    def __init__(
        self, app: Home, name: str, *, timeout: Duration | None = None, cancel: bool = True
    ) -> None:
        super().__init__(app, LOCK_PREFIX, name)
        self._timeout = checked_timeout(timeout)
        self._cancel = cancel
        self._scope: Scope | None = None

    @property
    def token(self) -> int:
        """A number that grows with each acquisition of the lock. Pass it to systems that refuse a
        lower one. Raises LostLease if the lock is not held at this moment."""
        token = self._token()
        if token is None:
            raise self._is_lost()
        return token

    @property
    def held(self) -> bool:
        """Whether this process holds the lock at this moment."""
        return self._now() is not None

    async def acquire(self, timeout: Duration | None = None) -> None:
        """Acquire the lock. Wait at most ``timeout`` seconds (None: without limit, 0: one attempt),
        then raise LockNotAcquired. Also raises ConfigError, ServerError or Unavailable::

            lock = app.lock("nightly")
            await lock.acquire(timeout=5)
            try:
                await sync(lock.token)
            finally:
                await lock.release()
        """
        seconds = checked_timeout(timeout)
        # 0: one attempt, without a time limit
        patience = Patience.TRY if seconds == 0 else Patience.WAIT
        if not await self._win(patience, seconds or None):
            raise LockNotAcquired(
                f"the lock {self.name!r} was not free within {seconds:g} s",
                do="Try again later, or pass a longer timeout",
            )

    async def try_acquire(self, *, sure: bool = False) -> bool:
        """Make one attempt, and return whether it acquired the lock. With ``sure``, return False
        only if the holder was seen alive. If it lives, that usually takes one renewal interval, and
        at most two and a half; if it is dead, until its lease expires. Raises ConfigError if this
        object is in use, ServerError, or Unavailable."""
        return await self._win(Patience.SURE if sure else Patience.TRY, None)

    async def _win(self, patience: Patience, timeout: float | None) -> bool:
        if self._bid:
            raise ConfigError(
                f"this lock object of {self.name!r} is in use",
                do="Call app.lock(name) for each use",
            )
        bid = self._bid = self._new_bid(patience, has_body=True)
        try:
            async with asyncio.timeout(timeout):
                self._guard = await self._app.desk.take(leader=False)
                self._guard.ask(bid)
                token = await asyncio.wrap_future(bid.answer)
        except BaseException as error:
            await self.release()
            if isinstance(error, TimeoutError):
                return False
            raise
        if token is None:
            await self.release()
        return token is not None

    async def release(self) -> None:
        """Release the lock. The next process gets it at once."""
        bid, guard = self._bid, self._guard
        self._bid = self._guard = None
        if bid is None or guard is None or self._copied():
            return
        try:
            with suppress(LeaseworkError, TimeoutError):  # then the lease expires
                guard.done(bid)
                async with asyncio.timeout(self._app.settings.call_timeout):
                    await asyncio.shield(asyncio.wrap_future(bid.released))
        finally:
            self._app.desk.give_back(guard)

    async def __aenter__(self) -> Self:
        await self.acquire(self._timeout)
        assert self._bid
        if self._cancel:
            self._scope = Scope(self._bid)
            self._scope.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        lost = self._is_lost() if self._bid and not self._now() and not self._copied() else None
        ours = self._scope.leave(kind) if self._scope else False
        self._scope = None
        await self.release()
        if lost and (error is None or ours):
            raise LostLease(
                f"the lock {self.name!r} was lost while it was held",
                got=lost.got,
                do="Another process may hold it now: roll back what is not committed",
            )
