"""An asyncio event loop in virtual time: it sleeps for nobody and runs the same way each time.

When nothing is ready, time jumps to the next timer. Each callback belongs to a :class:`Place`
(part of a process, by context variable); what belongs to a paused place waits until it goes on,
as in a process that was stopped, and its clocks run on meanwhile.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import Handle, TimerHandle
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any

from leasehold.errors import LeaseholdError

_ROUND_SECONDS = 1e-6
"""What a round takes: without it, whoever waits for a clock that runs a little slower spins."""
_STUCK = 200_000
"""So many rounds without a pause: somebody spins."""


@dataclass(eq=False, slots=True)
class Place:
    """Whose a callback is. ``owner`` is for those who ask where they run."""

    name: str
    owner: Any = None
    paused: bool = False
    parked: list[Handle] = field(default_factory=list)


PLACE: ContextVar[Place | None] = ContextVar("PLACE", default=None)


def context_of(place: Place) -> Context:
    """A context whose tasks and callbacks belong to the place."""
    context = copy_context()
    context.run(PLACE.set, place)
    return context


class VirtualLoop(asyncio.BaseEventLoop):
    """Only what tasks, futures and timers need: no sockets, no threads."""

    _ready: deque[Handle]
    _scheduled: list[TimerHandle]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._rounds = 0

    def time(self) -> float:
        """Seconds of true time since the beginning."""
        return self._now

    def resume(self, place: Place) -> None:
        """What waited while the place was paused runs now, in the order in which it came."""
        place.paused = False
        parked, place.parked = place.parked, []
        self._ready.extend(parked)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """At once: there are no threads here. What gives a future waits for it."""
        result = func(*args)
        if isinstance(result, asyncio.Future):
            return result
        future = self.create_future()
        future.set_result(result)
        return future

    # -- what BaseEventLoop asks of a loop -------------------------------------------------------
    def _write_to_self(self) -> None:
        """call_soon_threadsafe: everybody is in this thread."""

    def _process_events(self, event_list: list[Any]) -> None:
        """No selector."""

    def _run_once(self) -> None:
        self._advance()
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            place = handle._context.get(PLACE)  # type: ignore[attr-defined]
            if place is not None and place.paused:
                place.parked.append(handle)
            else:
                handle._run()

    def _advance(self) -> None:
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]
        self._rounds += 1
        self._now += _ROUND_SECONDS
        if not self._ready and not self._stopping:
            if not scheduled:
                raise LeaseholdError("the simulation stands still: nobody waits for a timer")
            self._now = max(self._now, scheduled[0].when())
            self._rounds = 0
        if self._rounds > _STUCK:
            self._rounds = 0
            raise LeaseholdError("the simulation spins without a pause", got=self._now)
        while scheduled and scheduled[0].when() <= self._now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            if handle._cancelled:
                self._timer_cancelled_count -= 1
            self._ready.append(handle)
