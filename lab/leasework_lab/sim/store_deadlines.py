"""Store operations on deadlines, in memory."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from leasework.errors import BadDeadline
from leasework.model.deadline import Breach, DueDeadline
from leasework.model.job import JobOptions
from leasework.store.deadlines import DeadlineStore, Swept
from leasework.store.operation import Now
from leasework_lab.sim.promises import iso, tell, tell_late
from leasework_lab.sim.rows import DeadlineRow, JobRow, SimDatabase

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
        row.job_state = str(job.state) if job else done.state if done else None
        told = {"callback": row.callback["task"], "callback_job": str(row.callback_job)}
        tell(db, row, "deadline_breached", "error", **told)
        key = f":deadline:{row.id}"
        if key not in db.keys:
            db.keys[key] = (row.callback_job, moment + _KEY_HELD)
            db.insert(_callback(row, key, moment))
        late = (moment - _due(row)).total_seconds()
        job_id = row.id if row.of_job else None
        callback = row.callback["task"]
        return Breach(row.id, row.name, job_id, _due(row), late, callback, row.callback_job)

    async def start_deadline(
        self, node: UUID, job: UUID, token: int, now: Now
    ) -> tuple[bool, DueDeadline | None]:
        if self.db.claimed(job, token, node) is None:
            return False, None
        row = self.db.deadlines.get(job)
        if row is None:
            return True, None
        if row.state == "waiting":
            row.state = "armed"
            row.due_at = self.db.at(now) + timedelta(seconds=row.seconds)
        return True, DueDeadline(row.id, row.name, row.due_at, row.state)

    async def arm_deadline(
        self, deadline: UUID, name: str, promise: dict[str, Any], now: Now
    ) -> tuple[UUID, bool]:
        db = self.db
        moment = db.at(now)
        fixed = datetime.fromisoformat(promise["at"]) if "at" in promise else None
        there = [
            row
            for row in db.deadlines.values()
            if row.name == name and not row.of_job and (row.state == "armed" or row.due_at == fixed)
        ]
        if there:
            return max(there, key=lambda row: row.made_at).id, False
        seconds = float(promise["seconds"])
        due = fixed or moment + timedelta(seconds=seconds)
        if due <= moment:
            raise BadDeadline("the deadline lies in the past", got=due)
        db.deadlines[deadline] = DeadlineRow(
            deadline, False, name, "fixed" if fixed else "enqueued", seconds, "success",
            promise["on_breach"], moment, "armed", due,
        )  # fmt: skip
        return deadline, True

    async def end_deadline(self, deadline: UUID, verdict: str, now: Now) -> str | None:
        row = self.db.deadlines.get(deadline)
        if row is None or row.of_job:
            return None
        if row.state == "armed":
            row.state, row.closed_at = verdict, self.db.at(now)
            tell_late(self.db, row)
        return row.state

    async def find_deadline(self, name: str) -> UUID | None:
        rows = [r for r in self.db.deadlines.values() if r.name == name and not r.of_job]
        found = max(rows, key=lambda row: (row.state == "armed", row.made_at), default=None)
        return found.id if found else None

    async def prune_deadlines(self, days: int, limit: int, now: Now) -> int:
        db = self.db
        before = db.at(now) - timedelta(days=days)
        rows = db.deadlines.values()
        old = [row.id for row in rows if row.closed_at is not None and row.closed_at < before]
        for deadline in old[:limit]:
            del db.deadlines[deadline]
        return len(old[:limit])


def _due(row: DeadlineRow) -> datetime:
    assert row.due_at is not None
    return row.due_at


def _callback(row: DeadlineRow, key: str, moment: datetime) -> JobRow:
    assert row.callback_job is not None
    breach: dict[str, Any] = {
        "deadline": str(row.id),
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
