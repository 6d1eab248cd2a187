"""Store operations on schedules, events and what operators read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from leasehold.pg.pool import Pool, check_numbers
from leasehold.pg.rows import named
from leasehold.pg.words import fetch_told
from leasehold.ports import (
    DueSchedule,
    Now,
    Rows,
    ScheduleDefinition,
    Summary,
    Synced,
    Term,
    TickPlan,
)

FAILURES = 2000
"""How many failed attempts one look counts at most."""
FINISHED_ROWS = 20_000
"""How many finished jobs one look counts at most, of those that the history does not have yet."""


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _definitions(given: Sequence[DueSchedule]) -> Jsonb:
    return Jsonb([{"name": s.name, "mark": s.mark, "missed": s.missed} for s in given])


class ScheduleOperations:
    _pool: Pool

    async def due_schedules(
        self, app: str, limit: int, now: Now, without: Sequence[DueSchedule] = ()
    ) -> list[DueSchedule]:
        params = {"app": app, "limit": limit, "now": now, "without": _definitions(without)}
        return [DueSchedule(*row) for row in await self._pool.fetch("schedule/due", params)]

    async def next_schedule(
        self, app: str, now: Now, without: Sequence[DueSchedule] = ()
    ) -> tuple[float | None, float]:
        params = {"app": app, "now": now, "without": _definitions(without)}
        next_in, ahead = (await self._pool.fetch("schedule/next", params))[0]
        return next_in, ahead

    async def fire(
        self, term: Term, app: str, plans: Sequence[TickPlan], now: Now
    ) -> list[tuple[str, datetime, str]]:
        objects = [
            {
                "name": plan.name,
                "release": plan.release,
                "seen": _iso(plan.seen),
                "high_water": _iso(plan.high_water),
                "next_at": _iso(plan.next_at),
                "ticks": [
                    {
                        "fire_at": _iso(tick.at),
                        "until": _iso(tick.until),
                        "state": tick.state,
                        "job_id": str(tick.job) if tick.job else None,
                    }
                    for tick in plan.ticks
                ],
            }
            for plan in plans
        ]
        params = {
            "leader": term.leader,
            "term": term.token,
            "app": app,
            "plans": Jsonb(objects),
            "now": now,
        }
        return [(n, at, s) for n, at, s in await self._pool.fetch("schedule/fire", params)]

    async def database_now(self, app: str, now: Now) -> datetime:
        rows = await self._pool.fetch("schedule/clock", {"now": now})
        moment: datetime = rows[0][0]
        return moment

    async def sync_schedules(
        self, app: str, release: str, schedules: Sequence[ScheduleDefinition], now: Now
    ) -> Synced:
        objects = [
            {
                "name": s.name,
                "spec": s.spec,
                "described": s.described,
                "task_name": s.task_name,
                "job": s.job,
                "missed": s.missed,
                "grace_seconds": s.grace_seconds,
                "next_at": _iso(s.next_at),
            }
            for s in schedules
        ]
        params = {"app": app, "release": release, "schedules": Jsonb(objects), "now": now}
        newest, kept, dropped = (await self._pool.fetch("schedule/sync", params))[0]
        return Synced(newest, tuple(kept), tuple(dropped))

    async def pause_schedule(self, app: str, name: str, paused: bool) -> bool:
        params = {"app": app, "name": name, "paused": paused}
        return bool(await self._pool.fetch("schedule/pause", params))


class OperatorOperations:
    _pool: Pool

    async def record(self, events: Sequence[dict[str, Any]], now: Now) -> None:
        await fetch_told(self._pool, "event/record", {"events": Jsonb(list(events)), "now": now})

    async def prune_days(self, keep_days: int, now: Now) -> int:
        params = {"ahead_days": 7, "keep_days": keep_days, "now": now}
        return int((await self._pool.fetch("prune/partitions", params))[0][1])

    async def prune(self, days: dict[str, int], limit: int, now: Now) -> int:
        params = {
            "events_days": days["events"],
            "ticks_days": days["ticks"],
            "attempts_days": days["attempts"],
            "history_days": days["history"],
            "limit": limit,
            "now": now,
        }
        return int((await self._pool.fetch("prune/rows", params))[0][0])

    async def summary(self, now: Now) -> Summary:
        row = (await self._pool.fetch("status/summary", {"now": now}))[0]
        ready, waiting, unknown, quarantined, tasks, oldest = row
        return Summary(ready, waiting, unknown, quarantined, tuple(tasks), oldest)

    async def nodes(self, limit: int) -> Rows:
        names = (
            "worker_id id app release version executes queues tasks started_at heartbeat "
            "age_seconds lease_seconds info halted"
        )
        return named(names, await self._pool.fetch("node/list", {"limit": limit}))

    async def leaders(self, limit: int) -> Rows:
        names = "name holder term heartbeat age_seconds lease_seconds acquired_at node"
        return named(names, await self._pool.fetch("leader/list", {"limit": limit}))

    async def terms(self, name: str | None, limit: int) -> Rows:
        rows = await self._pool.fetch("leader/terms", {"name": name, "limit": limit})
        return named("name term holder acquired_at", rows)

    async def schedules(self, limit: int) -> Rows:
        names = (
            "app name described task_name missed paused next_at last_fire_at last_state release "
            "high_water"
        )
        return named(names, await self._pool.fetch("schedule/list", {"limit": limit}))

    async def ticks(self, schedule: str | None, limit: int, now: Now = None) -> Rows:
        params = {"schedule": schedule, "limit": limit, "now": now}
        names = (
            "app schedule fire_at until state job_id term decided_at lateness_seconds outcome "
            "ran_seconds"
        )
        return named(names, await self._pool.fetch("schedule/ticks", params))

    async def events(self, kind: str | None, after: int | None, limit: int) -> Rows:
        params = {"kind": kind, "after": after, "limit": limit}
        rows = await self._pool.fetch("event/list", params)
        return named("id at kind level worker_id fields", rows)

    async def lately(self, kinds: Sequence[str], seconds: float, limit: int, now: Now) -> Rows:
        params = {"kinds": list(kinds), "seconds": seconds, "limit": limit, "now": now}
        rows = await self._pool.fetch("event/lately", params)
        return named("id at kind level worker_id fields", rows)

    async def pins(self, seconds: float, limit: int, now: Now) -> Rows:
        params = {"seconds": seconds, "limit": limit, "now": now}
        names = "pid what role application state seconds"
        return named(names, await self._pool.fetch("status/pins", params))

    async def failures(self, seconds: float, now: Now) -> Rows:
        params = {"seconds": seconds, "limit": FAILURES, "now": now}
        rows = await self._pool.fetch("status/failures", params)
        return named("task discarded failed finished counted_until error", rows)

    async def finished(self, since: datetime) -> dict[str, int]:
        params = {"since": since, "most": FINISHED_ROWS}
        # the plan that reads job_done by ranges of pages is to be had there alone
        return dict(await self._pool.fetch("status/finished", params, aside=True))

    async def failing_schedules(self, seconds: float, limit: int, now: Now) -> Rows:
        params = {"seconds": seconds, "limit": limit, "now": now}
        rows = await self._pool.fetch("status/failing_schedules", params)
        return named("app name task_name job_id state finished_at error", rows)

    async def check_schema(self) -> None:
        number, min_known = (await self._pool.fetch("status/schema", {}))[0]
        check_numbers(number, min_known)
