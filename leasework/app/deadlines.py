"""Standing deadlines: promised times without a job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from leasework.app.home import Home
from leasework.errors import DeadlineNotFound, Unavailable
from leasework.model.deadline import AnyTask, Deadline, check_name
from leasework.model.moments import Duration
from leasework.tuning import Tuning

T = TypeVar("T")
Due = datetime | Duration | None
"""When a standing deadline is due: see :meth:`App.deadline`."""
OnBreach = AnyTask | str | None
"""The task, or its name, to enqueue on a breach."""


@dataclass(frozen=True)
class StandingDeadline:
    """A deadline without a job, armed by ``app.deadline(...)`` in this process or another."""

    id: UUID
    """The id that the callback of a breach gets as ``breach["deadline"]``."""
    name: str
    """The name under which it was armed."""
    created: bool
    """False: the deadline already existed."""
    _app: Home

    async def met(self, *, on: Any = None) -> bool:
        """Record that the promise is kept. Return False if the deadline was already breached, so
        that its callback runs, or cancelled. ``on`` is your connection or session: the deadline
        is then met if its transaction commits. Raises DeadlineNotFound, WrongConnection, or
        Unavailable."""
        return await self._end("met", on) == "met"

    async def cancel(self, *, on: Any = None) -> bool:
        """Cancel the deadline. Return False if it was already met or breached. ``on`` and errors:
        see :meth:`met`."""
        return await self._end("cancelled", on) == "cancelled"

    async def _end(self, verdict: str, on: Any) -> str:
        app = self._app
        if on is not None:
            state = await app.on_connection.end_deadline(on, self.id, verdict)
        else:
            store = await app.store()
            state = await _patiently(
                app, lambda: store.end_deadline(self.id, verdict, app.env.due_now())
            )
        if state is None:
            raise DeadlineNotFound(
                "this deadline was deleted after its retention",
                got=self.name,
                do="Arm a new one, or raise Retention(ticks_days=…)",
            )
        return state


async def standing_deadline(
    app: Home, name: str, *, due: Due = None, on_breach: OnBreach = None, on: Any = None
) -> StandingDeadline:
    """See ``App.deadline``."""
    check_name(name)
    if due is None:
        if on is not None:
            found = await app.on_connection.find_deadline(on, name)
        else:
            found = await (await app.store()).find_deadline(name)
        if found is None:
            raise DeadlineNotFound(
                "no deadline without a job has this name",
                got=name,
                do="Arm one with due=… and on_breach=…",
            )
        return StandingDeadline(found, name, False, app)
    given: Any = {"at" if isinstance(due, datetime) else "seconds": due, "on_breach": on_breach}
    resolved = app.registry.promise(Deadline(**given))
    assert resolved
    promise = resolved.as_json()
    new_id = app.env.new_id()
    if on is not None:
        armed, created = await app.on_connection.arm_deadline(on, new_id, name, promise)
        return StandingDeadline(armed, name, created, app)
    store = await app.store()
    armed, _ = await _patiently(
        app, lambda: store.arm_deadline(new_id, name, promise, app.env.due_now())
    )
    # compare the ids: a retry returns created=False for what the first attempt armed
    return StandingDeadline(armed, name, armed == new_id, app)


async def _patiently(app: Home, call: Callable[[], Awaitable[T]]) -> T:
    """Retry while the database is briefly unavailable. Each of these calls may be repeated."""
    for attempt in range(Tuning.enqueue_tries - 1):
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(app.env.jitter(Tuning.enqueue_first_pause * 3**attempt, 0.25))
    return await call()
