"""Store operations with which people act and read jobs, and housekeeping, in memory."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from leasework.errors import Conflict
from leasework.model.history import WIDTH
from leasework.model.job import JobRecord
from leasework.model.states import State
from leasework.store.operation import Now
from leasework.store.operator import OperatorStore
from leasework.store.rows import EventView
from leasework_lab.sim.enqueue import LATE
from leasework_lab.sim.rows import DoneRow, JobRow, SimDatabase, StackRow, TickRow
from leasework_lab.sim.store_schedules import insert_scheduled

_FAILED = ("retryable", "crashed", "requeued", "discarded")
_MINUTE = timedelta(minutes=1)
_NAME_KEPT = timedelta(days=30)
K = TypeVar("K")
Key = tuple[datetime, str, str]


class SimOperators(OperatorStore):
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

    async def retry(self, job: UUID, now: Now, keep_steps: bool = False) -> str | None:
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
            "state": row.state,
            "scheduled_for": row.tick_at or row.run_at,
            "started_at": (row.started_at or row.claimed_at) if row.node else None,
            "completed_at": None,
            "worker_id": self.db.worker_id(row.node),
            "batch": None,
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

    async def discard_many(self, jobs: Sequence[UUID], reason: str, now: Now) -> dict[UUID, str]:
        return await self._each(jobs, lambda job: self.discard(job, reason, now))

    async def cancel_many(self, jobs: Sequence[UUID], reason: str, now: Now) -> dict[UUID, str]:
        return await self._each(jobs, lambda job: self.cancel(job, reason, now))

    async def retry_many(
        self,
        jobs: Sequence[UUID],
        now: Now,
        state: str | None = None,
        keep_steps: bool = False,
    ) -> dict[UUID, str]:
        return await self._each(jobs, lambda job: self._retry(job, now, state))

    async def reprioritize_many(self, jobs: Sequence[UUID], priority: int) -> dict[UUID, str]:
        return await self._each(jobs, lambda job: self.reprioritize(job, priority))

    async def _each(
        self, jobs: Sequence[UUID], act: Callable[[UUID], Awaitable[str | None]]
    ) -> dict[UUID, str]:
        found = {}
        for job in jobs:
            try:
                found[job] = await act(job)
            except Conflict:
                found[job] = "locked"
        return {job: where for job, where in found.items() if where}

    async def ask_stack(self, job: UUID, request: UUID, now: Now) -> bool:
        row = self.db.jobs.get(job)
        if row is None or row.node is None or row.claim_token is None:
            return False
        self.db.stacks[job] = StackRow(request, row.node, row.claim_token, self.db.at(now))
        self.db.signals[row.node, request, "stack"] = row.claim_token
        self.db.notify(f"c:{row.node}")
        return True

    async def answer_stack(self, node: UUID, request: UUID, says: str, now: Now) -> bool:
        for row in self.db.stacks.values():
            if (row.request, row.node) == (request, node):
                row.answered_at, row.says = self.db.at(now), says
                return True
        return False

    async def run_schedule(self, app: str, name: str, job: UUID, now: Now) -> bool:
        db, row = self.db, self.db.schedules.get((app, name))
        if row is None:
            return False
        moment = db.at(now)
        if job not in db.jobs:
            made = insert_scheduled(db, row, job, moment)
            db.wake([made.queue])
            at = moment.replace(microsecond=moment.microsecond // 1000 * 1000 + 1)
            db.ticks.setdefault((app, name, at), TickRow(None, "manual", job, None, moment))
        return True

    async def note_lock(self, kind: str, key: int, name: str, now: Now) -> str:
        names, moment = self.db.lock_names, self.db.at(now)
        noted, _ = names.get((kind, key), (name, moment))
        for other, (_, used_at) in list(names.items()):
            if moment - used_at > _NAME_KEPT and other != (kind, key):
                del names[other]
        names[kind, key] = (noted, moment)
        return noted

    async def record(self, events: Sequence[dict[str, Any]], now: Now) -> None:
        moment = self.db.at(now)
        self.db.tallies += len({event["kind"] for event in events})
        for event in events:
            self.db.last_event += 1
            self.db.events.append(
                EventView(
                    id=self.db.last_event,
                    at=moment - timedelta(seconds=event["age"]),
                    kind=event["kind"],
                    level=event["level"],
                    worker_id=event["worker_id"],
                    fields=event["fields"],
                )
            )

    async def prune_days(self, keep_days: int, now: Now) -> int:
        """Counts each day of finished jobs as one, like a partition."""
        db = self.db
        first_day = _day(db.at(now)) - timedelta(days=keep_days)
        old_days = {day for d in db.done.values() if (day := _day(d.finished_at)) < first_day}
        db.done = {job: d for job, d in db.done.items() if _day(d.finished_at) not in old_days}
        return len(old_days)

    async def prune(self, days: dict[str, int], limit: int, now: Now) -> int:
        db = self.db
        moment = db.at(now)

        def before(label: str) -> datetime:
            return moment - timedelta(days=days[label])

        events = [event for event in db.events if event.at < before("events")][:limit]
        gone = [event.id for event in events]
        db.events = [event for event in db.events if event.id not in gone]
        decided = {k: t.decided_at for k, t in db.ticks.items() if t.decided_at < before("ticks")}
        ticks = sorted(decided, key=lambda key: decided[key])[:limit]
        tries = [key for key, a in db.attempts.items() if a.ended_at < before("attempts")][:limit]
        deaths = [n for n, d in db.deaths.items() if d.settled and d.died_at < before("events")]
        held = [key for key, (_, until) in db.keys.items() if until is not None and until < moment]
        minutes = [key for key in db.history if key[0] < before("history")]
        signals = [key for key in db.signals if key[0] not in db.nodes]
        db.repeated |= {job: moment for job in db.repeated if job in db.jobs}  # still needed
        repeated = [job for job, at in db.repeated.items() if abs(at - moment) > LATE]
        looks = [j for j, s in db.stacks.items() if s.asked_at < moment - timedelta(hours=1)]
        removed = (
            _remove(db.ticks, ticks),
            _remove(db.attempts, tries),
            _remove(db.deaths, deaths[:limit]),
            _remove(db.keys, held[:limit]),
            _remove(db.history, minutes[:limit]),
            _remove(db.signals, signals),
            _remove(db.stacks, looks[:limit]),
            _remove(db.repeated, repeated[:limit]),
        )
        return len(gone) + sum(removed)

    async def roll_up(self, since: datetime | None, now: Now) -> datetime:
        db = self.db
        moment = db.at(now)
        newest = max((key[0] for key in db.history), default=None)
        start = since or newest or moment - timedelta(hours=1)
        low = max(_minute(start - _MINUTE), _minute(moment) - timedelta(days=1))
        high = min(_minute(moment - timedelta(seconds=10)), low + 6 * _MINUTE)
        if since and high <= since:
            return max(high, low)
        counted: dict[Key, dict[str, Any]] = {}
        for done in db.done.values():
            if low <= done.finished_at < high:
                key = (_minute(done.finished_at), done.job.queue, done.job.task)
                _count(counted.setdefault(key, _nothing()), done)
        for (job, _), tried in db.attempts.items():
            of = db.jobs.get(job) or (db.done[job].job if job in db.done else None)
            if of and low <= tried.ended_at < high and tried.outcome in _FAILED:
                key = (_minute(tried.ended_at), of.queue, of.task)
                counted.setdefault(key, _nothing())["failed"] += 1
        db.history.update(counted)
        return max(high, low)

    async def fold_counts(self, limit: int) -> int:
        """Only the tallies of events are kept here: one per batch and kind."""
        folded = min(self.db.tallies, limit)
        self.db.tallies -= folded
        return folded


def _remove(table: dict[K, Any], keys: Sequence[K]) -> int:
    for key in keys:
        del table[key]
    return len(keys)


def _day(moment: datetime) -> date:
    return moment.astimezone(UTC).date()


def class_of(seconds: float) -> int:
    """The class of a duration, as in sql/history/roll_up.sql."""
    return math.floor(math.log(max(seconds / 0.001, 1.0)) / math.log(WIDTH) + 1e-9)


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def _nothing() -> dict[str, Any]:
    states = ("completed", "cancelled", "discarded", "quarantined", "failed")
    return {**dict.fromkeys(states, 0), "wait": {}, "run": {}}


def _count(row: dict[str, Any], done: DoneRow) -> None:
    row[done.state] += 1
    if done.started_at is None:
        return
    waited = max((done.started_at - done.job.run_at).total_seconds(), 0.0)
    ran = (done.finished_at - done.started_at).total_seconds()
    for name, seconds in (("wait", waited), ("run", ran)):
        number = str(class_of(seconds))
        row[name][number] = row[name].get(number, 0) + 1
