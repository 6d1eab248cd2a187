"""An asyncio event loop in virtual time: it sleeps for nobody and runs the same way each time.

When nothing is ready, time jumps to the next timer. Each callback belongs to a :class:`Place`
(part of a process, by context variable); what belongs to a paused place waits until it goes on,
as in a process that was stopped, and its clocks run on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from leasehold.errors import LeaseholdError

_STEP_SECONDS = 1e-6
"""What a callback takes: without it, whoever waits for a clock that runs a little slower spins."""
_STUCK = 200_000
"""So many callbacks without a pause: somebody spins."""


@dataclass(eq=False, slots=True)
class Place:
    """Whose a callback is. ``owner`` is for those who ask where they run."""

    name: str
    owner: Any = None
    paused: bool = False
    parked: list[_Handle] = field(default_factory=list)


PLACE: ContextVar[Place | None] = ContextVar("PLACE", default=None)


def here() -> Any:
    """Whose code runs: the owner of the present place."""
    place = PLACE.get()
    return place.owner if place else None


def context_of(place: Place) -> Context:
    """A context whose tasks and callbacks belong to the place."""
    context = copy_context()
    context.run(PLACE.set, place)
    return context


class _Handle:
    """A callback that waits. It is made a thousand times a virtual second: nothing is in it that
    a simulation can do without."""

    __slots__ = ("args", "callback", "cancelled_", "context", "when_")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context, when: float
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.when_ = when
        self.cancelled_ = False

    def cancel(self) -> None:
        self.cancelled_ = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        return self.cancelled_

    def when(self) -> float:
        return self.when_


def _nothing() -> None:
    """What a cancelled handle holds on to."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Only what tasks, futures and timers need: no sockets, no threads. ``now``: as ``time()``."""

    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._due: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._made = 0

    def time(self) -> float:
        """Seconds of true time since the beginning."""
        return self.now

    def resume(self, place: Place) -> None:
        """What waited while the place was paused runs now, in the order in which it came."""
        place.paused = False
        parked, place.parked = place.parked, []
        self._due.extend(parked)

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

    # -- callbacks: shorter than BaseEventLoop's, whose costs would be half of a simulation -------
    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, copy_context() if context is None else context, self.now)
        self._due.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # everybody is in this thread

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        when = self.now + delay
        handle = _Handle(callback, args, copy_context() if context is None else context, when)
        self._made += 1
        heappush(self._timers, (when, self._made, handle))
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, copy_context() if context is None else context, when)
        self._made += 1
        heappush(self._timers, (when, self._made, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    # -- what BaseEventLoop asks of a loop -------------------------------------------------------
    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""

    def _process_events(self, event_list: list[Any]) -> None:
        """No selector."""

    def _run_once(self) -> None:
        """One callback after the other until somebody stops the loop. Each takes a moment of
        virtual time; when nothing is due, time jumps to the next timer."""
        due, timers = self._due, self._timers
        since_jump = 0
        while not self._stopping:
            now = self.now = self.now + _STEP_SECONDS
            since_jump += 1
            if not due:
                while timers and timers[0][2].cancelled_:
                    heappop(timers)
                if not timers:
                    raise LeaseholdError("the simulation stands still: nobody waits for a timer")
                now = self.now = max(now, timers[0][0])
                since_jump = 0
            elif since_jump > _STUCK:
                raise LeaseholdError("the simulation spins without a pause", got=now)
            while timers and timers[0][0] <= now:
                due.append(heappop(timers)[2])
            handle = due.popleft()
            if handle.cancelled_:
                continue
            context = handle.context
            place = context.get(PLACE)
            if place is not None and place.paused:
                place.parked.append(handle)
                continue
            try:
                context.run(handle.callback, *handle.args)
            except Exception as error:
                text = f"a callback failed: {handle.callback}"
                self.call_exception_handler({"message": text, "exception": error})
