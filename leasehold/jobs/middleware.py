"""Middleware: functions around every handler of an application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from leasehold.jobs.context import Context


class CallNext(Protocol):
    """What a middleware awaits to run the handler: ``await call_next()`` returns its result or
    raises its error."""

    def __call__(self) -> Awaitable[Any]: ...


Middleware = Callable[[Context, CallNext], Awaitable[Any]]
"""A function for :meth:`App.middleware`."""


async def around(middleware: Sequence[Middleware], context: Context, handler: CallNext) -> Any:
    """Run the handler inside the middleware, of which the first is the outermost."""
    for one in reversed(middleware):
        handler = partial(one, context, handler)
    return await handler()
