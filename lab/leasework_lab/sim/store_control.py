"""Store operations with which people control and read jobs, in memory."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any
from uuid import UUID

from leasework.errors import Conflict
from leasework.model.job import JobRecord
from leasework.model.states import State
from leasework.store.operation import Now
from leasework_lab.sim.rows import DoneRow, JobRow, SimDatabase


class ControlOperations:
    db: SimDatabase

    async def cancel(self, job: UUID, reason: str, now: Now) -> str | None:
        db = self.db
        row = db.jobs.get(job)
        if row is None:
            return "finished" if job in db.done else None
        self._unlocked(job)
        if row.node is not None and row.claim_token is not None:
            row.cancel_requested, row.last_error = True, reason
            db.signals[row.node, job, "cancel"] = row.claim_token
            db.notify(f"c:{row.node}")
            return "running"
        db.finish(row, "cancelled", db.at(now), error=reason)
        return "waiting"

    async def discard(self, job: UUID, reason: str, now: Now) -> str | None:
        db = self.db
        row, done = db.jobs.get(job), db.done.get(job)
        if row is not None and row.node is None:
            self._unlocked(job)
            db.finish(row, "discarded", db.at(now), error=reason)
            return "waiting"
        if done is not None and done.state == "quarantined":
            done.state = "discarded"
            done.last_error = "; ".join(filter(None, (done.last_error, reason)))
            return "quarantined"
        return "running" if row is not None else "finished" if done is not None else None

    async def reprioritize(self, job: UUID, priority: int) -> str | None:
        db, row = self.db, self.db.jobs.get(job)
        if row is None:
            return "finished" if job in db.done else None
        if row.node is not None:
            return "running"
        self._unlocked(job)
        if row.ready and row.priority != priority:
            row.seat = db.new_seat()
        row.options = replace(row.options, priority=priority)
        if row.ready:
            db.wake([row.queue])
        return "waiting"

    async def retry(self, job: UUID, now: Now) -> str | None:
        return await self._retry(job, now, None)

    async def _retry(self, job: UUID, now: Now, state: str | None) -> str | None:
        db = self.db
        moment = db.at(now)
        row = db.jobs.get(job)
        if row is not None:
            if row.node is not None:
                return "running"
            self._unlocked(job)
            if not row.ready:
                row.fresh, row.seat = True, db.new_seat()
            row.ready, row.held_because, row.run_at = True, None, min(row.run_at, moment)
            db.wake([row.queue])
            return "waiting"
        done = db.done.get(job)
        if done is None:
            return None
        if state is not None and done.state != state:
            return "unchanged"
        del db.done[job]
        db.jobs[job] = replace(
            done.job,
            options=replace(done.job.options, requeue_after=None, history=True),
            run_at=moment,
            unique_key=None,
            ready=True,
            held_because=None,
            last_error=None if done.state in ("cancelled", "completed") else done.last_error,
            progress=None,
            progress_note=None,
            started_at=None,
            crashes=0,
            cancel_requested=False,
            attempt=0,
            node=None,
            claim_token=None,
            claimed_at=None,
            fresh=True,
            seat=db.new_seat(),
            deadlines=job in db.deadlines and db.deadlines[job].state == "armed",
        )
        db.wake([done.job.queue])
        return "finished"

    def _unlocked(self, job: UUID) -> None:
        if job in self.db.locked:
            raise Conflict("a transaction holds the job's row", got=str(job))

    async def get(self, job: UUID) -> JobRecord | None:
        if job in self.db.jobs:
            return self._record(self.db.jobs[job])
        return self._finished(self.db.done[job]) if job in self.db.done else None

    def _record(self, row: JobRow, **told: Any) -> JobRecord:
        known = {
            "task_name": row.task,
            "state": state_of(row),
            "scheduled_for": row.tick_at or row.run_at,
            "started_at": (row.started_at or row.claimed_at) if row.node else None,
            "completed_at": None,
            "worker_id": self.db.worker_id(row.node),
            "result": None,
            "last_error": row.last_error,
            **told,
        }
        is_reason = row.cancel_requested or known["state"] in (State.CANCELLED, State.COMPLETED)
        known["reason"] = known["last_error"] if is_reason else None
        known["last_error"] = None if is_reason else known["last_error"]
        tried = [(token, a) for (of, token), a in self.db.attempts.items() if of == row.id]
        error = known["last_error"]
        raised = [(t, a.traceback) for t, a in tried if error is not None and a.error == error]
        known["traceback"] = max(raised, default=(0, None))[1]
        names = [field.name for field in fields(JobRecord)]
        return JobRecord(**{n: known[n] if n in known else getattr(row, n) for n in names})

    def _finished(self, done: DoneRow) -> JobRecord:
        return self._record(
            done.job,
            state=State(done.state),
            started_at=done.started_at,
            completed_at=done.finished_at,
            claim_token=done.claim_token,
            worker_id=self.db.worker_id(done.node),
            last_error=done.last_error,
            result=done.result,
            cancel_requested=False,
            crashes=done.crashes,
            held_because=None,
        )


def state_of(row: JobRow) -> State:
    """The state as the view ``leasework.jobs`` derives it."""
    if row.ready:
        return State.AVAILABLE if row.node is None else State.RUNNING
    return State.RETRYABLE if row.held_because == "retryable" else State.SCHEDULED
