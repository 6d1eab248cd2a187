"""``app.lock(name)``: a lease with a token, for anything."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from leasehold.app.held import VERIFY_IDLE_SECONDS, Held, Scope
from leasehold.app.home import Home
from leasehold.config import LOCK_PREFIX
from leasehold.errors import ConfigError, LeaseholdError, LockNotAcquired, LostLease
from leasehold.lease.bids import Patience


def check_timeout(timeout: float | None) -> None:
    if timeout is not None and not 0 <= timeout < 1e9:
        raise ConfigError("timeout must be a number of seconds, or None to wait", got=timeout)


def patience_of(timeout: float | None) -> tuple[Patience, float | None]:
    """Without time to wait it is one try, which takes the time that it needs."""
    return (Patience.TRY, None) if timeout == 0 else (Patience.WAIT, timeout)


class Lock(Held):
    """One use of a lock; make another one for each use. One process holds it at a time, among all
    that use the schema.

    ``timeout``: how many seconds ``async with`` waits (None: without limit, 0: one try), before it
    raises LockNotAcquired. When the lock is lost, the block's task is cancelled and the block
    raises LostLease. With ``cancel=False`` the block goes on: look at ``lost``; it raises LostLease
    at its end. Processes take turns in the order in which they asked. A process may pass the lock
    on inside itself up to 10 times in a row. After a crash the lock is free when the lease ends.
    """

    def __init__(
        self, app: Home, name: str, *, timeout: float | None = None, cancel: bool = True
    ) -> None:
        super().__init__(app, LOCK_PREFIX, name)
        check_timeout(timeout)
        self._timeout = timeout
        self._cancel = cancel
        self._scope: Scope | None = None

    @property
    def token(self) -> int:
        """Grows with each acquisition of the lock: pass it to systems that refuse a lower one.
        Raises LostLease when the lock is not held at this moment."""
        token = self._token()
        if token is None:
            raise self._is_lost()
        return token

    @property
    def held(self) -> bool:
        """Whether it is held at this moment."""
        return self._now() is not None

    async def verify(self, connection: Any, *, idle_timeout: float = VERIFY_IDLE_SECONDS) -> None:
        """Inside your transaction, on any connection that ``on=`` takes: from here to its end
        nobody else can have the lock. Raises LostLease, and the transaction has failed then.

        The server ends the transaction when it is idle for ``idle_timeout`` seconds."""
        await self._verify(connection, idle_timeout)

    async def acquire(self, timeout: float | None = None) -> None:
        """Wait for it; ``timeout`` in seconds, 0: one try. Raises LockNotAcquired."""
        check_timeout(timeout)
        if not await self._win(*patience_of(timeout)):
            raise LockNotAcquired(f"the lock {self.name!r} was not free within {timeout:g} s")

    async def try_acquire(self, *, sure: bool = False) -> bool:
        """Have it now or not at all. ``sure``: False only if its holder was seen alive, which
        takes up to an interval of the lease; the lock of a dead one is waited for."""
        return await self._win(Patience.SURE if sure else Patience.TRY, None)

    async def _win(self, patience: Patience, timeout: float | None) -> bool:
        if self._bid:
            raise ConfigError(
                f"this lock object of {self.name!r} is in use",
                do="Make another one for each use",
            )
        bid = self._bid = self._new_bid(patience, has_body=True)
        try:
            async with asyncio.timeout(timeout):
                self._guard = await self._app.desk.take(leader=False)
                self._guard.ask(bid)
                token = await asyncio.wrap_future(bid.answer)
        except BaseException as error:
            await self._let_go()
            if isinstance(error, TimeoutError):
                return False
            raise
        if token is None:
            await self._let_go()
        return token is not None

    async def release(self) -> None:
        """Give it up; whoever waits gets it at once."""
        await self._let_go()

    async def _let_go(self) -> None:
        bid, guard = self._bid, self._guard
        self._bid = self._guard = None
        if bid is None or guard is None:
            return
        try:
            with suppress(LeaseholdError, TimeoutError):  # its lease expires then
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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lost = self._is_lost() if self._bid and not self._now() else None
        ours = self._scope.leave(kind) if self._scope else False
        self._scope = None
        await self._let_go()
        if lost and (error is None or ours):
            raise LostLease(f"the lock {self.name!r} was lost while it was held", got=lost.got)
