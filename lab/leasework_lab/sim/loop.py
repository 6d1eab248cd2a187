"""An asyncio event loop in virtual time: it never sleeps, and runs the same way each time.

When nothing is ready, time jumps to the next timer. Each callback belongs to a :class:`Place` (part
of a process, by context variable). Callbacks of a paused place wait until it resumes, as in a
stopped process, while its clocks keep running.
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

from leasework.errors import LeaseworkError

_STEP_SECONDS = 1e-6
"""The duration of a callback. Without it, a wait for a slightly slower clock would spin."""
_SPIN_SECONDS = 0.2
"""If time has not jumped for this long, counted in callbacks' durations, somebody spins."""


@dataclass(eq=False, slots=True)
class Place:
    """Where a callback belongs. ``owner`` is for code that asks where it runs."""

    name: str
    owner: Any = None
    paused: bool = False
    parked: list[Any] = field(default_factory=list)


PLACE: ContextVar[Place | None] = ContextVar("PLACE", default=None)


def here() -> Any:
    """The owner of the current place, or None."""
    place = PLACE.get()
    return place.owner if place else None


def context_of(place: Place) -> Context:
    """A context whose tasks and callbacks belong to the place."""
    context = copy_context()
    context.run(PLACE.set, place)
    return context


_Entry = tuple[float, int, Callable[..., Any] | None, tuple[Any, ...], Context]
"""A scheduled callback: its time, a running number, the callback, its arguments, its context."""


class _Timer(list[Any]):
    """An :data:`_Entry` that can be cancelled. There are a thousand per virtual second, and a list
    is created and compared without running Python code."""

    __slots__ = ()

    def cancel(self) -> None:
        self[2] = None

    def cancelled(self) -> bool:
        return self[2] is None

    def when(self) -> float:
        return float(self[0])


_NEVER = _Timer((float("inf"), 0, print, (), Context()))
"""The last entry of each loop's timers, so that there is always one."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Supports only tasks, futures and timers: no sockets, no threads. ``now``: like ``time()``."""

    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._due: deque[_Entry | _Timer] = deque()
        self._timers = [_NEVER]
        self._made = 0
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]

    def time(self) -> float:
        """Seconds of true time since the start."""
        return self.now

    def resume(self, place: Place) -> None:
        """Run what waited while the place was paused, in the order in which it came."""
        place.paused = False
        parked, place.parked = place.parked, []
        self._due.extend(parked)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call it at once: there are no threads here. If it returns a future, wait for that."""
        result = func(*args)
        if isinstance(result, asyncio.Future):
            return result
        future = self.create_future()
        future.set_result(result)
        return future

    # -- callbacks: shorter than BaseEventLoop's, which would take half of a simulation's time ----
    get_debug = staticmethod(bool)  # False; called by each future

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> None:
        """Returns no handle: the services never cancel an immediate callback."""
        if context is None:  # an empty one is falsy
            context = copy_context()
        self._due.append((0.0, 0, callback, args, context))

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is only this thread

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
        """The unfinished tasks, in a reproducible order."""
        return sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())

    # -- what BaseEventLoop asks of a loop -------------------------------------------------------
    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def _process_events(self, event_list: list[Any]) -> None:
        """There is no selector."""

    def _run_once(self) -> None:
        """Run one callback after the other until the loop is stopped. Each takes a moment of
        virtual time; when nothing is due, time jumps to the next timer."""
        due, timers, next_due, now = self._due, self._timers, self._due.popleft, self.now
        entry: _Entry | _Timer
        step, spin, place_of = _STEP_SECONDS, _SPIN_SECONDS, PLACE
        spins_at = now + spin
        while not self._stopping:
            self.now = now = now + step
            if due:
                if now > spins_at:
                    raise LeaseworkError("the simulation spins without a pause", got=now)
                while timers[0][0] <= now:
                    due.append(heappop(timers))
                entry = next_due()
            else:
                entry = heappop(timers)
                while entry[2] is None:
                    entry = heappop(timers)
                if entry is _NEVER:
                    heappush(timers, _NEVER)
                    raise LeaseworkError("the simulation stands still: nobody waits for a timer")
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
