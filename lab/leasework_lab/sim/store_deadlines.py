"""Store operations on deadlines, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from leasework.errors import BadDeadline
from leasework.model.deadline import Breach, DueLevel, Level
from leasework.model.job import JobOptions
from leasework.ports import DeadlineStore, Now, Swept
from leasework_lab.sim.promises import FEW_RUNS, RUNS_KEPT, iso, tell, tell_late
from leasework_lab.sim.rows import DeadlineRow, JobRow, SimDatabase
from leasework_lab.sim.store_control import state_of

_KEY_HELD = timedelta(days=366)


class SimDeadlines(DeadlineStore):
    db: SimDatabase

    async def sweep(self, limit: int, now: Now) -> Swept:
        db = self.db
        moment = db.at(now)
        armed = [row for row in db.deadlines.values() if row.state == "armed"]
        due = [row for row in armed if _due(row) <= moment and row.id not in db.locked]
        due.sort(key=_due)
        breaches = tuple(self._breach(row, moment) for row in due[:limit])
        ahead = [_due(row) for row in armed if _due(row) > moment]
        db.wake(db.jobs[b.callback_job].queue for b in breaches if b.callback_job in db.jobs)
        return Swept(breaches, (min(ahead) - moment).total_seconds() if ahead else None)

    def _breach(self, row: DeadlineRow, moment: datetime) -> Breach:
        db = self.db
        row.state, row.closed_at = "breached", moment
        row.callback_job = db.new_id(moment)
        job = db.jobs.get(row.id)
        done = db.done.get(row.id)
        row.job_state = str(state_of(job)) if job else done.state if done else None
        told = {"callback": row.callback["task"], "callback_job": str(row.callback_job)}
        tell(db, row, "deadline_breached", "error", **told)
        key = f":deadline:{row.id}:{row.level}"
        if key not in db.keys:
            db.keys[key] = (row.callback_job, moment + _KEY_HELD)
            db.insert(_callback(row, key, moment))
        late = (moment - _due(row)).total_seconds()
        job_id = row.id if row.of_job else None
        callback = row.callback["task"]
        return Breach(
            row.id, row.level, row.name, job_id, _due(row), late, callback, row.callback_job
        )

    async def start_deadlines(
        self, node: UUID, job: UUID, token: int, now: Now
    ) -> tuple[DueLevel, ...]:
        db = self.db
        mine = db.claimed(job, token, node)
        if mine is None:
            return ()
        moment = db.at(now)
        rows = [row for row in db.deadlines.values() if row.id == job]
        for row in rows:
            if row.state == "waiting" and (seconds := self._after_start(row, mine)) is not None:
                row.state, row.due_at = "armed", moment + timedelta(seconds=seconds)
        rows.sort(key=lambda row: row.level)
        return tuple(DueLevel(r.id, r.level, r.name, r.due_at, r.state) for r in rows)

    def _after_start(self, row: DeadlineRow, job: JobRow) -> float | None:
        if row.since == "started":
            return row.seconds
        runs = sorted(self.db.run_times.get(job.task, []), reverse=True)[: row.runs]
        if len(runs) < min(FEW_RUNS, row.runs or 0):
            return None
        return row.seconds + sum(seconds for _, _, seconds in runs) / len(runs) * row.factor

    async def arm_deadline(
        self, deadline: UUID, name: str, levels: Sequence[Level], now: Now
    ) -> tuple[UUID, bool]:
        db = self.db
        moment = db.at(now)
        there = [
            row
            for row in db.deadlines.values()
            if row.name == name
            and not row.of_job
            and (row.state == "armed" or (row.level == 1 and row.due_at == levels[0].at))
        ]
        if there:
            return max(there, key=lambda row: row.made_at).id, False
        dues = [level.at or moment + timedelta(seconds=level.seconds) for level in levels]
        if min(dues) <= moment:
            raise BadDeadline("the deadline lies in the past", got=min(dues))
        for place, (level, due) in enumerate(zip(levels, dues, strict=True), 1):
            since = "fixed" if level.at else "enqueued"
            db.deadlines[deadline, place] = DeadlineRow(
                deadline, place, False, name, since, level.seconds, "success", "cancel",
                level.callback.as_json(), moment, "armed", due,
            )  # fmt: skip
        return deadline, True

    async def end_deadline(self, deadline: UUID, verdict: str, now: Now) -> str | None:
        rows = [r for r in self.db.deadlines.values() if r.id == deadline and not r.of_job]
        for row in rows:
            if row.state == "armed":
                row.state, row.closed_at = verdict, self.db.at(now)
                tell_late(self.db, row)
        return max(rows, key=lambda row: (row.due_at, row.level)).state if rows else None

    async def find_deadline(self, name: str) -> UUID | None:
        rows = [r for r in self.db.deadlines.values() if r.name == name and not r.of_job]
        found = max(rows, key=lambda row: (row.state == "armed", row.made_at), default=None)
        return found.id if found else None

    async def prune_deadlines(self, days: int, limit: int, now: Now) -> int:
        db = self.db
        before = db.at(now) - timedelta(days=days)
        open_ids = {row.id for row in db.deadlines.values() if row.closed_at is None}
        old = [
            key
            for key, row in db.deadlines.items()
            if row.closed_at is not None and row.closed_at < before and row.id not in open_ids
        ][:limit]
        for key in old:
            del db.deadlines[key]
        gone = len(old)
        for task, runs in db.run_times.items():
            kept = sorted(runs, reverse=True)[:RUNS_KEPT]
            gone += len(runs) - len(kept)
            db.run_times[task] = kept
        return gone


def _due(row: DeadlineRow) -> datetime:
    assert row.due_at is not None
    return row.due_at


def _callback(row: DeadlineRow, key: str, moment: datetime) -> JobRow:
    assert row.callback_job is not None
    breach: dict[str, Any] = {
        "deadline": str(row.id),
        "level": row.level,
        "key": f"{row.id}:{row.level}",
        "name": row.name,
        "due": iso(row.due_at),
        "late_seconds": (moment - _due(row)).total_seconds(),
        "job": str(row.id) if row.of_job else None,
        "state": (row.job_state or "gone") if row.of_job else None,
        "schedule": row.schedule,
        "tick": iso(row.tick_at),
        "since": row.since,
        "until": row.until,
    }
    return JobRow(
        id=row.callback_job,
        options=JobOptions(**row.callback),
        payload={"breach": breach},
        run_at=moment,
        created_at=moment,
        unique_key=key,
    )
