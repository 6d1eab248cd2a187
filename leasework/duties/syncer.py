"""The syncer: brings the stored schedules in line with the code.

Two releases may run at once. The one that was first seen later wins; when its last node is gone,
the definitions of the newest release still alive come back (ADR 6).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from leasework.errors import Conflict, Unavailable
from leasework.lease.guard import Guard
from leasework.loops.service import Service, ServiceContext
from leasework.model.job import JobRequest
from leasework.model.missed import Missed
from leasework.model.schedule import Spec
from leasework.store.schedules import ScheduleDefinition
from leasework.tuning import Tuning


class Planned(Struct, frozen=True):
    """A schedule as the application's code defines it."""

    name: str
    spec: Spec
    job: JobRequest[Any]
    missed: Missed
    grace_seconds: float

    def job_options(self) -> dict[str, Any]:
        """The options and arguments of its jobs, as ``leasework.enqueue`` takes them."""
        waits = self.job.waits or {}
        return {**self.job.options.as_json, **waits, "payload": json.loads(self.job.payload)}

    def definition(self, now: datetime) -> ScheduleDefinition:
        return ScheduleDefinition(
            name=self.name,
            spec=self.spec.to_json(),
            described=self.spec.describe(),
            task_name=self.job.task,
            job=self.job_options(),
            missed=str(self.missed),
            grace_seconds=self.grace_seconds,
            next_at=self.spec.first_at(now),
        )


class Syncer(Service):
    """Runs on every node: at its start, when nodes of its application come or go, and at intervals.
    It writes only what differs."""

    name = "syncer"

    def __init__(
        self,
        context: ServiceContext,
        release: str,
        planned: Sequence[Planned],
        guard: Guard,
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(context)
        self._users = context.users
        """For a sync that may write: a user's transaction may hold a schedule's row."""
        self._release = release
        self._planned = planned
        self._guard = guard
        self._on_change = on_change
        self._stands: int | None = None
        """The newest other release at the last sync. If it changes, sync again."""
        self._look_at = 0.0
        """When to sync again in any case (boot clock)."""
        self._looked_at: datetime | None = None
        """The database's time of the last sync."""

    async def tick(self, now: datetime | None) -> float:
        if not self._guard.membership.token:
            return 1.0  # the node wakes it after joining
        newest = self._guard.newest_release()
        boot_now = self._env.boot_now()
        if newest == self._stands and boot_now < self._look_at:
            return self._look_at - boot_now
        moment = await self._store.database_now(now)
        again = newest == self._stands
        # what is missing now was deleted since the last look, and its moments since then are due
        since = self._looked_at if again and self._looked_at else moment
        definitions = [planned.definition(since) for planned in self._planned]
        app, release = self._settings.name, self._release
        # a look that changes nothing waits for nobody, and needs no further connection
        store = self._store if again else self._users
        self._look_at = 0.0
        try:
            synced = await store.sync_schedules(app, release, definitions, now)
        except Unavailable as error:  # perhaps this login may open no further connection
            if error.sent or isinstance(error, Conflict) or store is self._store:
                raise
            synced = await self._store.sync_schedules(app, release, definitions, now)
        self._stands, self._look_at = newest, boot_now + Tuning.sync_seconds
        self._looked_at = moment
        if synced.kept or synced.dropped:
            self._emit(
                "schedules_synced",
                kept=list(synced.kept),
                dropped=list(synced.dropped),
                release=release,
                app=app,
            )
            self._on_change()
        return Tuning.sync_seconds
