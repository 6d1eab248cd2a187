"""``app.schedules``: schedules that are data, made and changed while the application runs."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime, timedelta
from typing import Any, Unpack
from uuid import UUID

from leasework.app.definitions import ScheduleOptions, StoredGiven, Task, without_moment
from leasework.app.home import Home, in_loop
from leasework.config import check_text
from leasework.duties.syncer import Planned
from leasework.errors import BadSchedule
from leasework.model.moments import Duration, duration, in_seconds
from leasework.model.schedule import Spec, cron, every as every_spec, once
from leasework.store.rows import StoredSchedule
from leasework.watch.refusals import code_defines, no_such_schedule


class StoredSchedules:
    """``app.schedules``: schedules that are data, one for each report or customer::

        await app.schedules.put(
            "report-42", report, cron="0 7 * * *", timezone="Asia/Seoul",
            arguments={"customer": 42}, on=session,
        )

    They keep the promises of schedules in code: each moment is decided once, by the leader, and is
    in the ledger. A deployment leaves them as they are. A schedule in code takes over one of the
    same name.
    """

    def __init__(self, app: Home, in_code: Container[str]) -> None:
        """``in_code``: the names of the schedules that the code defines."""
        self._app = app
        self._in_code = in_code

    @in_loop("app.sync.schedules.put(…)")
    async def put(
        self,
        name: str,
        task: Task[Any, Any] | str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        at: datetime | None = None,
        timezone: str = "UTC",
        anchor: datetime | None = None,
        on: Any = None,
        **options: Unpack[StoredGiven],
    ) -> None:
        """Make a schedule, or replace the one of this name.

        Give one of ``cron`` (an expression, in ``timezone``), ``every`` (seconds or a timedelta,
        counted from ``anchor``) and ``at`` (one moment). ``options`` are those of
        :meth:`App.periodic`, such as ``arguments`` and ``missed``. With ``on``, a connection or
        session, the change is part of your transaction.

        Moments that were due before the change are decided first, by the new ``missed``. Raises
        BadSchedule for a name that the code defines, for a new ``at`` that is so long ago that it
        never fires, and for what ``App.periodic`` refuses; BadJob, BadDeadline, BadPayload,
        ConfigError, UnknownTask, Unavailable.
        """
        check_text("a schedule's name", name, self._app.settings.limits.text_chars)
        if name in self._in_code:
            raise code_defines(name)
        spec = spec_of(cron, every, at, timezone, anchor)
        planned = self._planned(name, task, spec, {**options})
        users, now = self._app.on_connection, self._app.env.due_now()
        store = None if on is not None else await self._app.store()
        moment = await (store.database_now(now) if store else users.database_now(on))
        await self._refuse_if_over(on, name, at, spec, moment)
        stored = planned.definition(moment).as_json()
        if store:
            put = await store.put_schedule(self._name, stored, now)
        else:
            put = await users.put_schedule(on, self._name, stored)
        if not put:
            raise code_defines(name)

    async def _refuse_if_over(
        self, on: Any, name: str, at: datetime | None, spec: Spec, now: datetime
    ) -> None:
        """Raises BadSchedule for a single moment that is too late to fire, unless it is stored."""
        catch_up = in_seconds(self._app.settings.retention.catch_up_seconds)
        if at is None or at >= now - timedelta(seconds=catch_up):
            return
        if on is not None:
            stored = await self._app.on_connection.spec_of(on, self._name, name)
        else:
            found = await self._stored(name)
            stored = found and found.spec
        if stored != spec.to_json():
            raise BadSchedule(
                f"at is more than {duration(catch_up)} ago, so it would never fire",
                got=at.isoformat(),
                do="To run the task now, enqueue it",
            )

    async def get(self, name: str) -> StoredSchedule:
        """Return a schedule of this application, also one that the code defines. Raises
        BadSchedule if no schedule has this name::

            print((await app.schedules.get("report-42")).next_at)
        """
        found = await self._stored(name)
        if found is None:
            raise no_such_schedule(name)
        return found

    async def _stored(self, name: str) -> StoredSchedule | None:
        return await (await self._app.reports()).get_schedule(self._name, name)

    async def list(
        self, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[StoredSchedule]:
        """Return at most ``limit`` schedules of this application, by name, also those that the
        code defines. ``prefix``: how their names begin. ``after``: the last name of the
        list before, to continue there."""
        app = self._name
        return await (await self._app.reports()).schedules(
            limit, app=app, prefix=prefix, after_app=app, after=after
        )

    @in_loop("app.sync.schedules.pause(…)")
    async def pause(self, name: str, *, on: Any = None) -> None:
        """Stop deciding the moments of a schedule, also of one that the code defines. With ``on``,
        a connection or session, the change is part of your transaction. Raises BadSchedule if no
        schedule has this name."""
        await self._pause(name, True, on)

    @in_loop("app.sync.schedules.resume(…)")
    async def resume(self, name: str, *, on: Any = None) -> None:
        """Decide the moments of a paused schedule again. ``missed`` says what happens to those
        since the pause. ``on`` and errors: see :meth:`pause`."""
        await self._pause(name, False, on)

    async def _pause(self, name: str, paused: bool, on: Any) -> None:
        if on is not None:
            found = await self._app.on_connection.pause_schedule(on, self._name, name, paused)
        else:
            found = await (await self._app.store()).pause_schedule(self._name, name, paused)
        if not found:
            raise no_such_schedule(name)

    @in_loop("app.sync.schedules.run_now(…)")
    async def run_now(self, name: str) -> UUID:
        """Enqueue a job of a schedule now, outside its moments. Return the job's id. Raises
        BadSchedule if no schedule has this name."""
        store, job = await self._app.store(), self._app.env.new_id()
        if not await store.run_schedule(self._name, name, job, self._app.env.due_now()):
            raise no_such_schedule(name)
        return job

    @in_loop("app.sync.schedules.delete(…)")
    async def delete(self, name: str, *, on: Any = None) -> None:
        """Delete a schedule that was put. Its ledger and its jobs stay. With ``on``, a connection
        or session, the change is part of your transaction. Raises BadSchedule, also for a schedule
        that the code defines."""
        if on is not None:
            gone = await self._app.on_connection.delete_schedule(on, self._name, name)
        else:
            gone = await (await self._app.store()).delete_schedule(self._name, name)
        if not gone:
            raise BadSchedule(
                f"no schedule was put under the name {name!r}",
                do="See app.schedules.list(). If the code defines it, remove it there",
            )

    @property
    def _name(self) -> str:
        return self._app.settings.name

    def _planned(
        self, name: str, task: Task[Any, Any] | str, spec: Spec, given: dict[str, Any]
    ) -> Planned:
        check_text("a schedule's name", name, self._app.settings.limits.text_chars)
        if isinstance(task, Task):
            function, usual = task.function, task.standing_options("a schedule")
        else:
            function = self._app.registry.get(task)
            usual = function.job_options
        options = ScheduleOptions.read(spec, given)
        without_moment(self._app.registry, given.get("deadline"), "a schedule")
        chosen = function.with_options(usual, dict(options.job))
        job = function.scheduled_job(options.arguments, chosen)
        return Planned(name, spec, job, options.missed, options.grace)


def spec_of(
    expression: str | None,
    seconds: Duration | None,
    at: datetime | None,
    timezone: str,
    anchor: datetime | None,
) -> Spec:
    """Return the moments of the one that is given. Raises BadSchedule, also for what the given one
    does not use."""
    if sum(given is not None for given in (expression, seconds, at)) != 1:
        raise BadSchedule(
            "give exactly one of cron, every and at",
            got={"cron": expression, "every": seconds, "at": at},
            do='For example cron="0 7 * * *" or every=60',
        )
    if anchor is not None and seconds is None:
        raise BadSchedule("anchor is only for every", got=anchor, do="Leave it out")
    if timezone != "UTC" and expression is None:
        raise BadSchedule(
            "timezone is only for cron", got=timezone, do="Put the time zone into anchor or at"
        )
    if expression is not None:
        return cron(expression, timezone)
    return once(at=at) if at is not None else every_spec(seconds=seconds or 0, anchor=anchor)
