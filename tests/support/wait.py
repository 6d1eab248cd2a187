"""Waits until something becomes true, with a time limit and a message that says what did not
happen.

Tests use these functions instead of a sleep of a guessed length.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
Errors = tuple[type[Exception], ...]

TIMEOUT_SECONDS = 10.0
BUSY_SECONDS = 10.0
"""How many seconds later than promised something may happen, because the machine is busy."""
EVERY_SECONDS = 0.02
SLOWER = 1.25
LONGEST_SECONDS = 0.15
"""Polls become slower up to this, because the tests beside them need the cores."""
REST, LONGEST_REST_SECONDS = 2, 1.0
"""The next poll waits so many times as long as the last one took, because some start a process."""


class NeverHappened(AssertionError):
    """The event that a test waited for did not happen."""


def _processes_per_core() -> float:
    """At least 1. On a busy machine everything takes about as many times longer."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class _Watch:
    """One wait: its deadline, and the last value. The limit is for a quiet machine, and grows with
    the load."""

    def __init__(self, predicate: object, timeout: float, what: str) -> None:
        self.what = what or getattr(predicate, "__name__", "the condition")
        self.timeout = timeout
        self.start = time.monotonic()
        self.seen = "nothing yet"
        self.error: Exception | None = None

    @property
    def left(self) -> float:
        return self.start + self.timeout * _processes_per_core() - time.monotonic()

    def saw(self, value: object) -> None:
        self.seen, self.error = f"last seen: {value!r}"[:500], None

    def failed(self, error: Exception) -> None:
        self.seen, self.error = f"last error: {error!r}"[:500], error

    def rest(self, every: float, asked: float) -> float:
        """The seconds until the next poll. The last one began at ``asked``."""
        return max(every, min(REST * (time.monotonic() - asked), LONGEST_REST_SECONDS))

    def check(self) -> None:
        if self.left <= 0:
            waited = time.monotonic() - self.start
            raise NeverHappened(
                f"waited {waited:.1f} s for {self.what}; {self.seen}"
            ) from self.error


def until(
    predicate: Callable[[], T],
    timeout: float = TIMEOUT_SECONDS,
    what: str = "",
    *,
    every: float = EVERY_SECONDS,
    ignoring: Errors = (),
) -> T:
    """Poll until ``predicate()`` is truthy, and return its value.

    An error in ``ignoring`` counts as "not yet". All other errors are raised.
    """
    watch = _Watch(predicate, timeout, what)
    while True:
        asked = time.monotonic()
        try:
            value = predicate()
        except ignoring as error:
            watch.failed(error)
        else:
            if value:
                return value
            watch.saw(value)
        watch.check()
        time.sleep(watch.rest(every, asked))
        every = max(every, min(every * SLOWER, LONGEST_SECONDS))


async def until_async(
    predicate: Callable[[], T | Awaitable[T]],
    timeout: float = TIMEOUT_SECONDS,
    what: str = "",
    *,
    every: float = EVERY_SECONDS,
    ignoring: Errors = (),
) -> T:
    """Like ``until``, without blocking the loop. ``predicate`` may be a plain or an async
    function."""
    watch = _Watch(predicate, timeout, what)
    loop = asyncio.get_running_loop()
    while True:
        asked = time.monotonic()
        try:
            async with asyncio.timeout_at(loop.time() + max(watch.left, every)):
                value = predicate()
                if inspect.isawaitable(value):
                    value = await value
        except ignoring as error:
            watch.failed(error)
        except TimeoutError as error:  # the predicate hangs; the wait has a limit nevertheless
            watch.failed(error)
        else:
            if value:
                return value
            watch.saw(value)
        watch.check()
        await asyncio.sleep(watch.rest(every, asked))
        every = max(every, min(every * SLOWER, LONGEST_SECONDS))


async def forever() -> None:
    """A handler that runs until it is cancelled."""
    await asyncio.Event().wait()


def stall(seconds: float) -> None:
    """Block this thread, and the loop that runs in it, on purpose."""
    time.sleep(seconds)
