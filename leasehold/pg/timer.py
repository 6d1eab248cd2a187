"""What ends a call that the database does not answer: its socket is shut down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from leasehold import errors
from leasehold.pg.faults import translate

_SHORTEST = 0.001


class Timer:
    """Of one call after the other on a connection. Most end long before their time, so that one
    timer of the loop looks after all of them: it comes due for some call, and is set again for
    the one that is under way then."""

    __slots__ = ("_handle", "_late", "_loop", "_seconds", "_shut", "_until", "_wakes_at")

    def __init__(self, shut: Callable[[], None]) -> None:
        self._shut = shut
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._until: float | None = None
        self._seconds = 0.0
        self._late = False

    def start(self, seconds: float) -> None:
        """The call has so many seconds from now."""
        self._seconds, self._late = seconds, False
        until = self._until = self._loop.time() + max(seconds, _SHORTEST)
        if self._handle is None or self._wakes_at > until:
            self.close()
            self._set(until)

    def extend(self, seconds: float) -> None:
        """The call has so many seconds more."""
        self._seconds += seconds
        if self._until is not None:
            self._until += seconds

    def stop(self) -> None:
        """The call has ended."""
        self._until = None

    def close(self) -> None:
        """There is no further call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def explained(self, error: Exception) -> errors.LeaseholdError:
        """What the call's error is to our callers."""
        if self._late:
            text = f"the database did not answer within {self._seconds:.3g} s"
            return errors.Unavailable(text, sent=True)
        return translate(error, sent=True)

    def _set(self, moment: float) -> None:
        self._wakes_at = moment
        self._handle = self._loop.call_at(moment, self._look)

    def _look(self) -> None:
        self._handle = None
        if self._until is None:
            return
        if self._until > self._loop.time():
            self._set(self._until)
        else:
            self._late = True
            self._shut()
