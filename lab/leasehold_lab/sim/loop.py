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
from functools import partial
from heapq import heappop, heappush
from typing import Any

from leasehold.errors import LeaseholdError

_STEP_SECONDS = 1e-6
"""What a callback takes: without it, whoever waits for a clock that runs a little slower spins."""
_SPIN_SECONDS = 0.2
"""So long without a jump, by the moments that callbacks take: somebody spins."""


@dataclass(eq=False, slots=True)
class Place:
    """Whose a callback is. ``owner`` is for those who ask where they run."""

    name: str
    owner: Any = None
    paused: bool = False
    parked: list[Any] = field(default_factory=list)


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


_Entry = tuple[float, int, Callable[..., Any] | None, tuple[Any, ...], Context]
"""What waits: from when on, the how manieth it was, the callback, its arguments, its context."""


class _Timer(list[Any]):
    """An :data:`_Entry` that can be cancelled. Made a thousand times a virtual second: a list is
    made and compared without one line of Python."""

    __slots__ = ()

    def cancel(self) -> None:
        self[2] = None

    def cancelled(self) -> bool:
        return self[2] is None

    def when(self) -> float:
        return float(self[0])


_NEVER = _Timer((float("inf"), 0, print, (), Context()))
"""At the end of each loop's timers, so that there always is one."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Only what tasks, futures and timers need: no sockets, no threads. ``now``: as ``time()``."""

    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._due: deque[_Entry | _Timer] = deque()
        self._timers = [_NEVER]
        self._made = 0
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]

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
    get_debug = staticmethod(bool)  # no: asked by each future

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> None:
        """There is no handle: nobody in the services calls off what comes at once."""
        if context is None:  # an empty one is falsy
            context = copy_context()
        self._due.append((0.0, 0, callback, args, context))

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # everybody is in this thread

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Timer:
        if context is None:
            context = copy_context()
        self._made = made = self._made + 1
        timer = _Timer((self.now + delay, made, callback, args, context))
        heappush(self._timers, timer)
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Timer:
        if context is None:
            context = copy_context()
        self._made = made = self._made + 1
        timer = _Timer((when, made, callback, args, context))
        heappush(self._timers, timer)
        return timer

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """Of its tasks, in an order that comes again."""
        return sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())

    # -- what BaseEventLoop asks of a loop -------------------------------------------------------
    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""

    def _process_events(self, event_list: list[Any]) -> None:
        """No selector."""

    def _run_once(self) -> None:
        """One callback after the other until somebody stops the loop. Each takes a moment of
        virtual time; when nothing is due, time jumps to the next timer."""
        due, timers, next_due, now = self._due, self._timers, self._due.popleft, self.now
        entry: _Entry | _Timer
        step, spin, place_of = _STEP_SECONDS, _SPIN_SECONDS, PLACE
        spins_at = now + spin
        while not self._stopping:
            self.now = now = now + step
            if due:
                if now > spins_at:
                    raise LeaseholdError("the simulation spins without a pause", got=now)
                while timers[0][0] <= now:
                    due.append(heappop(timers))
                entry = next_due()
            else:
                entry = heappop(timers)
                while entry[2] is None:
                    entry = heappop(timers)
                if entry is _NEVER:
                    heappush(timers, _NEVER)
                    raise LeaseholdError("the simulation stands still: nobody waits for a timer")
                if entry[0] > now:
                    self.now = now = entry[0]
                spins_at = now + spin
            _, _, callback, args, context = entry
            if callback is None:
                continue
            place = context.get(place_of)
            if place is not None and place.paused:
                place.parked.append(entry)
                continue
            try:
                context.run(callback, *args)
            except Exception as error:
                text = f"a callback failed: {callback}"
                self.call_exception_handler({"message": text, "exception": error})
