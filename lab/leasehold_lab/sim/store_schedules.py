"""Store operations on schedules, in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID
from zlib import crc32

from leasehold.errors import QueryFailed
from leasehold.model.job import JobOptions
from leasehold.ports import (
    DueSchedule,
    LeftOut,
    Now,
    ScheduleDefinition,
    ScheduleStore,
    Synced,
    Term,
    TickDecision,
    TickPlan,
)
from leasehold_lab.sim.promises import set_deadlines
from leasehold_lab.sim.rows import JobRow, ScheduleRow, SimDatabase, TickRow

_COMPARED = ("spec", "task_name", "job", "missed", "grace_seconds")


def _mark(row: ScheduleRow) -> int:
    return crc32(json.dumps(row.spec, sort_keys=True).encode())


class SimSchedules(ScheduleStore):
    db: SimDatabase

    async def due_schedules(
        self, app: str, limit: int, now: Now, without: Sequence[LeftOut] = ()
    ) -> list[DueSchedule]:
        moment = self.db.at(now)
        found = [
            DueSchedule(
                row.name,
                row.spec,
                row.missed,
                row.grace_seconds,
                row.release,
                row.high_water,
                row.next_at,
                moment,
                _mark(row),
                row.former,
            )
            for row in self._going(app, without)
            if row.next_at is not None and row.next_at <= moment
        ]
        return sorted(found, key=lambda due: due.next_at)[:limit]

    async def next_schedule(
        self, app: str, now: Now, without: Sequence[LeftOut] = ()
    ) -> tuple[float | None, float]:
        moment = self.db.at(now)
        going = [row for row in self._going(app, without) if row.next_at is not None]
        if not going:
            return None, 0.0
        next_at = min(row.next_at for row in going if row.next_at is not None)
        marks = [row.high_water for row in going if row.high_water is not None]
        ahead = (max(marks) - moment).total_seconds() if marks else 0.0
        return (next_at - moment).total_seconds(), ahead

    def _going(self, app: str, without: Sequence[LeftOut]) -> list[ScheduleRow]:
        left_out = [(given.name, given.mark, given.missed) for given in without]
        return [
            row
            for row in self.db.schedules.values()
            if row.app == app
            and not row.paused
            and not (left_out and (row.name, _mark(row), row.missed) in left_out)
        ]

    async def fire(
        self, term: Term, app: str, plans: Sequence[TickPlan], now: Now
    ) -> list[tuple[str, datetime, str]]:
        if not self.db.fenced(term.leader, term.token):
            return []
        moment = self.db.at(now)
        written: list[tuple[str, datetime, str]] = []
        queues: list[str] = []
        for decided in plans:
            row = self.db.schedules.get((app, decided.name))
            if row is None or row.paused:
                continue
            if (row.release, row.high_water) != (decided.release, decided.seen):
                continue
            marks = [mark for mark in (row.high_water, decided.high_water) if mark is not None]
            row.high_water, row.next_at = max(marks, default=None), decided.next_at
            if row.former and not _undecided(row.former, decided.next_at):
                row.former = None
            for tick in decided.ticks:
                if self._decide(row, tick, term, moment):
                    written.append((row.name, tick.at, tick.state))
                    if tick.state == "fired":
                        queues.append(row.job.get("queue", "default"))
        self.db.wake(queues)
        return written

    def _decide(self, row: ScheduleRow, tick: TickDecision, term: Term, moment: datetime) -> bool:
        key = (row.app, row.name, tick.at)
        if key in self.db.ticks:
            return False
        self.db.ticks[key] = TickRow(tick.until, tick.state, tick.job, term.token, moment)
        if tick.state == "fired":
            if tick.job is None or tick.job in self.db.jobs:
                raise QueryFailed("a tick needs a new job", got=str(tick.job))
            insert_scheduled(self.db, row, tick.job, moment, tick.at)
        return True

    async def database_now(self, now: Now) -> datetime:
        return self.db.at(now)

    async def sync_schedules(
        self, app: str, release: str, schedules: Sequence[ScheduleDefinition], now: Now
    ) -> Synced:
        db = self.db
        mine = db.releases.get((app, release))
        living = [
            db.releases[app, row.identity.release]
            for row in db.nodes.values()
            if row.identity.app == app
        ]
        if mine is not None and max(living, default=0) > mine:
            return Synced(False, [], [])
        moment = db.at(now)
        kept = [
            given.name
            for given in sorted(schedules, key=lambda given: given.name)
            if self._keep(app, release, given, moment)
        ]
        names = {given.name for given in schedules}
        dropped = [key for key in db.schedules if key[0] == app and key[1] not in names]
        for key in dropped:
            del db.schedules[key]
        return Synced(True, kept, [name for _, name in dropped])

    def _keep(self, app: str, release: str, given: ScheduleDefinition, moment: datetime) -> bool:
        old = self.db.schedules.get((app, given.name))
        if old is None:
            self.db.schedules[app, given.name] = ScheduleRow(
                app=app, release=release, updated_at=moment, **asdict(given)
            )
            return True
        same = all(getattr(old, name) == getattr(given, name) for name in _COMPARED)
        if same and old.release == release:
            return False
        if old.spec != given.spec:
            _redefine(old, given, moment)
        for name in (*_COMPARED, "described"):
            setattr(old, name, getattr(given, name))
        old.release, old.updated_at = release, moment
        return True

    async def pause_schedule(self, app: str, name: str, paused: bool) -> bool:
        row = self.db.schedules.get((app, name))
        if row:
            row.paused = paused
        return row is not None


def _redefine(old: ScheduleRow, given: ScheduleDefinition, moment: datetime) -> None:
    """Redefine a schedule; moments that are due and undecided stay due."""
    if old.next_at is None or old.next_at > moment:
        old.next_at, old.former = given.next_at, None
        return
    before = old.former or {"stretches": [], "first": old.next_at.isoformat()}
    stretch = {"spec": old.spec, "first": before["first"], "until": moment.isoformat()}
    old.former = {
        "stretches": [*before["stretches"], stretch],
        "first": given.next_at.isoformat() if given.next_at else None,
    }
    old.next_at = min(old.next_at, given.next_at) if given.next_at else old.next_at


def _undecided(former: dict[str, Any], next_at: datetime | None) -> bool:
    untils = [datetime.fromisoformat(stretch["until"]) for stretch in former["stretches"]]
    return next_at is not None and any(until >= next_at for until in untils)


def insert_scheduled(
    db: SimDatabase, row: ScheduleRow, job: UUID, moment: datetime, tick: datetime | None = None
) -> JobRow:
    """Insert a schedule's job. Without ``tick`` it was started by hand, with now as its tick."""
    apart = ("task", "payload", "deadline")
    options = {name: value for name, value in row.job.items() if name not in apart}
    made = JobRow(
        id=job,
        options=JobOptions(row.task_name, **options),
        payload=row.job["payload"],
        run_at=tick or moment,
        created_at=moment,
        schedule=row.name,
        tick_at=tick,
    )
    db.insert(made)
    if "deadline" in row.job:
        set_deadlines(db, made, row.job["deadline"], moment, tick or moment)
    return made
