"""Ends a call that the database does not answer, without an event of the socket."""

from __future__ import annotations

import asyncio

from leasework import errors
from leasework.pg.connection.fast.link import Link
from leasework.pg.connection.faults import translate
from leasework.tuning import Tuning

_SHORTEST = 0.001


class Timer:
    """The time limit of a connection's calls, one after the other. Most calls end long before the
    first check. So all share one timer of the loop: when it fires, it is set again for the call
    that runs then."""

    __slots__ = ("_handle", "_late", "_link", "_loop", "_seconds", "_until", "_wakes_at")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._until: float | None = None
        self._seconds = 0.0
        self._late = False

    def start(self, seconds: float) -> None:
        """Give the call ``seconds`` from now."""
        self._seconds, self._late = seconds, False
        now = self._loop.time()
        until = self._until = now + max(seconds, _SHORTEST)
        if self._handle is None or self._wakes_at > until:
            self.close()
            self._set(min(until, now + Tuning.socket_look_seconds))

    def extend(self, seconds: float) -> None:
        """Give the call ``seconds`` more."""
        self._seconds += seconds
        if self._until is not None:
            self._until += seconds

    def stop(self) -> None:
        """The call has ended."""
        self._until = None

    def close(self) -> None:
        """End the timer. There is no further call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def explained(self, error: Exception, *, sent: bool = True) -> errors.LeaseworkError:
        """Return the error to raise for the call's error."""
        if self._late:
            text = f"the database did not answer within {self._seconds:.3g} s"
            return errors.Unavailable(text, sent=sent)
        return translate(error, sent=sent)

    def _set(self, moment: float) -> None:
        self._wakes_at = moment
        self._handle = self._loop.call_at(moment, self._look)

    def _look(self) -> None:
        self._handle = None
        if self._until is None:
            return
        now = self._loop.time()
        if self._until > now:
            self._set(min(self._until, now + Tuning.socket_look_seconds))
            self._link.look()
        else:
            self._late = True
            self._link.give_up("the call took too long")
