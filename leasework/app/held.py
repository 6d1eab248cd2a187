"""The base of leaders and locks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from leasework import own_tasks
from leasework.app.home import Home
from leasework.config import Limits, check_text
from leasework.errors import ConfigError, LostLease
from leasework.lease.bids import Bid, Lost
from leasework.lease.guard import Guard
from leasework.model.moments import Duration, checked_timeout

VERIFY_IDLE_SECONDS = 3.0


class Held:
    """A name, and this process's current or last term of it."""

    def __init__(self, app: Home, prefix: str, name: str) -> None:
        check_text("the name of a leader or a lock", name, Limits.text_chars)
        self._app = app
        self._prefix = prefix
        self._bid: Bid | None = None
        self._guard: Guard | None = None
        self._process = own_tasks.generation
        self.name: str = name
        """The name, without a prefix."""

    @property
    def _full_name(self) -> str:
        return self._prefix + self.name

    def _new_bid(self, *arguments: Any, **options: Any) -> Bid:
        self._process = own_tasks.generation
        return Bid(self._full_name, self._app.env, *arguments, **options)

    def _copied(self) -> bool:
        """Return whether this is the child of a fork inside the block: the parent holds it."""
        return self._process != own_tasks.generation

    def _now(self) -> Bid | None:
        """Return the bid if its term is valid at this moment."""
        bid = self._bid
        return bid if bid and bid.valid() else None

    @property
    def lost(self) -> Lost:
        """Set when the current term is lost, before another process can have the next one. Also set
        while there is no term. Use ``lost.is_set()``, ``await lost.wait()``, or in a thread
        ``lost.wait_in_thread()``."""
        bid = self._bid
        return bid.lost if bid and bid.token else _NEVER_HELD

    def _token(self) -> int | None:
        bid = self._now()
        return bid.token if bid else None

    def _vacant_ago(self) -> float:
        """Seconds since the previous holder released it, or was last heard of."""
        bid = self._bid
        return self._app.env.boot_now() - bid.vacant_since if bid else 0.0

    @property
    def found_vacant(self) -> bool:
        """Whether no process held it when this process first checked."""
        bid = self._bid
        return bid is not None and bid.found_vacant

    async def verify(
        self, connection: Any, *, idle_timeout: Duration = VERIFY_IDLE_SECONDS
    ) -> None:
        """Keep every other process from this lock or leadership until your transaction ends::

            async with connection.transaction():
                await held.verify(connection)  # held: the lock or the leader
                await connection.execute("update engine set …")

        ``connection`` is any that ``on=`` accepts. The server ends the transaction when it is idle
        for ``idle_timeout`` seconds. Raises LostLease, and the transaction has then failed.
        Raises ConfigError for an ``idle_timeout`` that is not from 0.001 to 3600 seconds.
        """
        idle_seconds = checked_timeout(idle_timeout)
        if idle_seconds is None or not 0.001 <= idle_seconds <= 3600:
            raise ConfigError("idle_timeout must be seconds from 0.001 to 3600", got=idle_timeout)
        token = self._token()
        if token is None:
            raise self._is_lost()
        on = self._app.on_connection
        await on.verify(connection, self._full_name, token, idle_seconds)

    def _is_lost(self) -> LostLease:
        bid = self._bid
        why = bid.lost.why if bid else "it was never held, or was released"
        return LostLease(
            f"this process does not hold {self._full_name} at this moment",
            got=why or "its lease has expired",
            do="Stop what needs it, and acquire it again",
        )


_NEVER_HELD = Lost(lambda: False)
_NEVER_HELD.set("it was never held")


@dataclass(eq=False)
class Scope:
    """Cancels the task that entered it, if the term is lost."""

    _bid: Bid
    _cancelled: bool = False
    _left: bool = False

    def enter(self) -> None:
        task = asyncio.current_task()
        assert task
        self._task, self._before = task, task.cancelling()
        self._loop = asyncio.get_running_loop()
        self._bid.lost.call(self._tell)

    def _tell(self) -> None:
        if not self._left and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if not self._left:
            self._cancelled = True
            self._task.cancel()

    def leave(self, kind: type[BaseException] | None) -> bool:
        """Return True if the task was cancelled by this scope alone."""
        self._left = True
        self._bid.lost.forget(self._tell)
        if not self._cancelled:
            return False
        others = self._task.uncancel() > self._before
        return not others and kind is not None and issubclass(kind, asyncio.CancelledError)
