"""Store operations on schedules, in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID
from zlib import crc32

from msgspec import structs

from leasework.errors import QueryFailed
from leasework.model.job import JobOptions
from leasework.store.operation import Now, Term
from leasework.store.schedules import (
    DueSchedule,
    LeftOut,
    ScheduleDefinition,
    ScheduleStore,
    Synced,
    TickDecision,
    TickPlan,
)
from leasework_lab.sim.promises import set_deadline
from leasework_lab.sim.rows import JobRow, ScheduleRow, SimDatabase, TickRow

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
                row.paused_at,
                row.resumed_at,
            )
            for row in self._going(app, without)
            if row.next_at is not None and row.next_at <= moment
        ]
        found.sort(key=lambda due: due.next_at)
        if len(found) > limit:  # half of them the oldest, half of them the newest
            del found[(limit + 1) // 2 : len(found) - limit // 2]
        return found

    async def next_schedule(
        self, app: str, now: Now, without: Sequence[LeftOut] = ()
    ) -> tuple[float | None, float]:
        moment = self.db.at(now)
        going = [row.next_at for row in self._going(app, without) if row.next_at is not None]
        next_in = (min(going) - moment).total_seconds() if going else None
        newest = max((tick.decided_at for tick in self.db.ticks.values()), default=moment)
        return next_in, (newest - moment).total_seconds()

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
            if decided.mark not in (None, _mark(row)):
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
            if row.identity.app == app and row.identity.defines
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
        dropped = [
            key
            for key, row in db.schedules.items()
            if key[0] == app and row.in_code and not row.paused and key[1] not in names
        ]
        for key in dropped:
            del db.schedules[key]
        for (owner, name), row in db.schedules.items():
            if owner == app and row.paused and name not in names:
                row.in_code = False
        return Synced(True, kept, [name for _, name in dropped])

    def _keep(self, app: str, release: str, given: ScheduleDefinition, moment: datetime) -> bool:
        old = self.db.schedules.get((app, given.name))
        if old is None:
            decided = [
                tick.until or at
                for (owner, name, at), tick in self.db.ticks.items()
                if (owner, name) == (app, given.name) and tick.state != "manual"
            ]
            self.db.schedules[app, given.name] = ScheduleRow(
                app=app, release=release, updated_at=moment, **structs.asdict(given),
                high_water=max(decided, default=None),
            )  # fmt: skip
            return True
        same = all(getattr(old, name) == getattr(given, name) for name in _COMPARED)
        first, mark = given.next_at, old.high_water
        undecided = first is not None and (mark is None or mark < first)
        skips = undecided and (old.next_at is None or (first and old.next_at > first))
        if same and old.in_code and old.release == release and not skips:
            return False
        if old.spec != given.spec:
            _redefine(old, given, moment)
        elif skips:
            old.next_at = first
        for name in (*_COMPARED, "described"):
            setattr(old, name, getattr(given, name))
        old.release, old.updated_at, old.in_code = release, moment, True
        return True

    async def put_schedule(self, app: str, definition: dict[str, Any], now: Now) -> bool:
        db, moment = self.db, self.db.at(now)
        first = definition["next_at"]
        given = ScheduleDefinition(
            **{**definition, "next_at": first and datetime.fromisoformat(first)}
        )
        old = db.schedules.get((app, given.name))
        if old is not None and old.in_code:
            return False
        self._keep(app, f"put {db.new_id(moment)}", given, moment)
        db.schedules[app, given.name].in_code = False
        db.notify(f"s:{app}")
        return True

    async def delete_schedule(self, app: str, name: str, in_code: bool = False) -> bool:
        row = self.db.schedules.get((app, name))
        if row is None or (row.in_code and not in_code):
            return False
        del self.db.schedules[app, name]
        return True

    async def pause_schedule(self, app: str, name: str, paused: bool, now: Now = None) -> bool:
        row = self.db.schedules.get((app, name))
        if row:
            if row.paused and not paused:
                row.resumed_at = self.db.at(now)
            elif paused and not row.paused:
                row.paused_at = self.db.at(now)
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
    db: SimDatabase,
    row: ScheduleRow,
    job: UUID,
    moment: datetime,
    tick: datetime | None = None,
) -> JobRow:
    """Insert a schedule's job. Without ``tick`` it was started by hand, with now as its tick."""
    apart = ("task", "payload", "deadline")
    options = {name: value for name, value in row.job.items() if name not in apart}
    made = JobRow(
        id=job,
        options=JobOptions(row.task_name, **options),
        payload=row.job["payload"],
        run_at=moment if tick is None else tick,
        created_at=moment,
        schedule=row.name,
        tick_at=tick,
    )
    db.insert(made)
    if "deadline" in row.job:
        wanted = row.job["deadline"]
        set_deadline(db, made, wanted, moment, tick or moment)
    return made
