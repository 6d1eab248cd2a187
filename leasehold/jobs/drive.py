"""Running a coroutine inside the present task, in a context of its own.

A task for each job costs more than a short job does. A coroutine that never suspends needs none:
it is run through inside the task of its runner. When it does suspend, the runner is told, so that
another can go on, and this one stays with it to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@coroutine
def drive(
    work: Coroutine[Any, Any, T], context: Context, on_suspend: Callable[[], None]
) -> Generator[Any, Any, T]:
    """Await ``work`` so that what it sets in its contextvars stays in ``context``. ``on_suspend``
    is called once, when it first waits for something."""
    value: T
    try:
        awaited = context.run(work.send, None)
    except StopIteration as done:
        value = done.value
        return value
    on_suspend()
    while True:
        try:
            try:
                sent = yield awaited
            except BaseException as error:
                awaited = context.run(work.throw, error)
            else:
                awaited = context.run(work.send, sent)
        except StopIteration as done:
            value = done.value
            return value
