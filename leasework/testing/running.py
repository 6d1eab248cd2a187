"""Runs the jobs of a test's database here and now, or at a later moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from leasework.app import App, Task
from leasework.duties.leading import term_of
from leasework.duties.syncer import Planned
from leasework.env import Env
from leasework.errors import BadSchedule, ConfigError, JobNotFound, WaitTimeout, suggest
from leasework.model.job import JobRecord
from leasework.model.moments import Duration, checked_timeout
from leasework.model.schedule import Spec
from leasework.node import Node
from leasework.pg.schema.scratch import check_for_tests
from leasework.store.rows import StoredSchedule
from leasework.testing.databases import refuse_uncommitted_async

_LOOK_SECONDS = 0.01


@dataclass(frozen=True)
class _MovedEnv(Env):
    """The clocks of this process, and a time for the database that a test moves on."""

    def due_now(self) -> datetime | None:
        return vars(self).get("moment")

    def move_to(self, moment: datetime) -> None:
        object.__setattr__(self, "moment", moment)


async def drain(
    app: App,
    *,
    queues: Mapping[str, int] | None = None,
    timeout: Duration = 30.0,
    until: datetime | timedelta | None = None,
) -> list[JobRecord]:
    """Run all available jobs, and the jobs that they enqueue, until none is left.

    It runs in this process and does all that a worker does, except schedules. Returns the records
    of the jobs that ran, in the order of their claims. A job without history has none. Delayed
    jobs, failed jobs whose next attempt is not due, and jobs of a throttled limit stay. ``queues``
    is as for ``App.node``.

    With ``until``, a moment with a time zone or a time from now, leasework's clock moves on to that
    moment, from one due time to the next, without waiting. Delayed jobs, retries and deadlines that
    are due by then have their turn, and throttled limits open::

        await drain(app, until=timedelta(hours=1))

    After ``timeout``, in seconds, it cancels the running jobs, gives them back, and raises
    WaitTimeout.
    The name of the database must contain the word ``test``. Raises ConfigError if it does not, or
    for an ``until`` in the past, and WrongDsn.
    """
    await refuse_uncommitted_async(app, "drain")
    check_for_tests((await app.located()).dsn, "drain")
    before, env = app.env, _MovedEnv()
    app.env = env
    try:
        node = await app.make_node(queues, schedules=False)
        await node._duties["periodic"].stop()
        if until is not None:
            await node._duties["stager"].stop()  # this is done here, at each moment
        ran: dict[UUID, None] = {}
        _note_claims(node, ran)
        passing = _Passing(app, node, env, ran)
        async with app.state_for(node):
            await _drain(passing, until, checked_timeout(timeout))
    finally:
        app.env = before
    records = []
    for job in ran:
        with suppress(JobNotFound):
            records.append(await app.get(job))
    return records


async def _drain(
    passing: _Passing, until: datetime | timedelta | None, timeout: float | None
) -> None:
    node = passing.node
    await node.start()
    try:
        async with asyncio.timeout(timeout):
            await passing.until_idle()
            if until is not None:
                await passing.until(until)
    except TimeoutError:
        left = [claim.job.task for claim in node.running.snapshot()]
        node.executor.end_all("stopping")
        raise WaitTimeout(
            f"jobs were left after {timeout or 0:g} s",
            got=left,
            do="Raise timeout=, or see what these tasks wait for. With until=, no other node of "
            "the application may run",
        ) from None
    finally:
        await asyncio.shield(node.stop())


@dataclass(eq=False)
class _Passing:
    """Runs jobs and lets time pass. It does itself what the leader's duties do when something is
    due, so that each thing happens at its moment."""

    _app: App
    node: Node
    _env: _MovedEnv
    _ran: dict[UUID, None]
    _opens_in: float | None = None
    """Seconds until the first throttled limit opens."""

    async def until(self, end: datetime | timedelta) -> None:
        """Raises ConfigError for a moment in the past."""
        app = self._app
        store = self._store = (await app.stores()).work
        self._term = term_of(self.node.guard)
        following: datetime | None = await store.database_now(None)
        assert following
        end = _end(end, following)
        while not self.node.leads():  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(_LOOK_SECONDS)
        await self.node._loops["deadlines"].stop()
        while following is not None and following <= end:
            following = await self._moment(following)

    async def until_idle(self) -> None:
        """Return when no job is available or runs."""
        reports = await self._app.reports()
        node, ran = self.node, self._ran
        quiet = 0
        while quiet < 2:  # the first time, a claim may be under way
            before = len(ran), len(node.running)
            queues = {row.queue for row in await reports.queues(None) if row.available}
            if self._app.registry.has_limits:
                store = (await self._app.stores()).work
                self._opens_in, limited = await store.open_limits(self._env.due_now())
                queues |= set(limited)
            waiting = node.executor.queues.keys() & queues
            changed = before != (len(ran), len(node.running))
            quiet = 0 if waiting or changed or len(node.running) else quiet + 1
            await asyncio.sleep(_LOOK_SECONDS)

    async def _moment(self, moment: datetime) -> datetime | None:
        """Do what is due at that moment. Return the next one; the same if there may be more."""
        store, rows = self._store, self._app.settings.limits.batch_rows
        self._env.move_to(moment)
        before = len(self._ran)
        staged = await store.stage(self._term(), rows, moment)
        swept = await store.sweep(rows, moment)
        waits = [staged.next_in, swept.next_in]
        await self.until_idle()
        if staged.count or swept.breaches or len(self._ran) > before:
            return moment
        ahead = [wait for wait in (*waits, self._opens_in) if wait is not None]
        return moment + timedelta(seconds=max(min(ahead), 0)) if ahead else None


def _note_claims(node: Node, ran: dict[UUID, None]) -> None:
    for name in ("submit", "submit_limited"):
        submit = getattr(node.executor, name)

        def noting(queue: Any, claims: Any, submit: Any = submit) -> None:
            ran.update((claim.job.id, None) for claim in claims)
            submit(queue, claims)

        setattr(node.executor, name, noting)


def _end(until: datetime | timedelta, now: datetime) -> datetime:
    end = now + until if isinstance(until, timedelta) else until
    if not isinstance(end, datetime) or end.utcoffset() is None:
        raise ConfigError(
            "until is a datetime with a time zone, or a timedelta from now",
            got=until,
            do="Say until=timedelta(hours=1)",
        )
    if end < now:
        raise ConfigError("until is in the past", got=end.isoformat(), do="Time only moves on")
    return end


def _planned(app: App, name: str) -> Planned:
    found = app._planned.get(name)
    if found is None:
        raise BadSchedule(f"no schedule is named {name!r}", do=suggest(name, app._planned))
    return found


def next_runs(
    app: App,
    schedule: Task[Any, Any] | StoredSchedule | str,
    *,
    after: datetime | None = None,
    count: int = 1,
) -> list[datetime]:
    """Return the next ``count`` moments of a schedule, after the moment ``after`` (default: now).
    It needs no database. ``schedule`` is the name of a schedule of the code, or the task if the
    schedule has no name of its own, or what ``app.schedules.get`` returned. A schedule that ends
    has fewer moments. Raises BadSchedule::

        [monday] = next_runs(app, "report", after=datetime(2030, 1, 4, 12, tzinfo=UTC))
        assert monday == datetime(2030, 1, 7, 7, tzinfo=UTC)

        next_runs(app, await app.schedules.get("report-42"))
    """
    if isinstance(schedule, StoredSchedule):
        spec = Spec.from_json(schedule.spec)
    else:
        spec = _planned(app, schedule if isinstance(schedule, str) else schedule.name).spec
    moments = spec.after(app.env.wall_now() if after is None else after)
    return list(islice(moments, max(0, count)))
