"""Runs coroutines without a task of their own: in the current one, or without any loop.

A task per job would cost more than a short job does. A coroutine that never suspends runs to its
end inside its runner's task. If it suspends, the runner is notified, so that another runner can
take over the queue, and this one stays with the coroutine.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any, TypeVar

from leasework.errors import BadJob
from leasework.own_tasks import may_block

T = TypeVar("T")


def without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, because everything that it awaits blocks."""
    before = may_block.set(True)
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        may_block.reset(before)
    work.close()
    raise BadJob("a call outside an event loop needs a connection of a sync driver")


@coroutine
def drive(
    work: Coroutine[Any, Any, T], context: Context, on_suspend: Callable[[], None]
) -> Generator[Any, Any, T]:
    """Await ``work`` with ``context`` as its context. Call ``on_suspend`` once, when it first
    waits."""
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
