"""Store operations for people's actions, and the history, in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from leasehold.errors import Conflict
from leasehold.model.history import class_of
from leasehold.ports import AttemptView, MinuteView, Now, StackView
from leasehold_lab.sim.rows import DoneRow, SimDatabase, StackRow, TickRow
from leasehold_lab.sim.store_control import ControlOperations
from leasehold_lab.sim.store_schedules import insert_scheduled

_FAILED = ("retryable", "crashed", "requeued", "discarded")
_MINUTE = timedelta(minutes=1)
Key = tuple[datetime, str, str]


class SimDashboards(ControlOperations):
    db: SimDatabase

    async def discard(self, jobs: Sequence[UUID], reason: str, now: Now) -> set[UUID]:
        db, given_up = self.db, set[UUID]()
        for job in jobs:
            row, done = db.jobs.get(job), db.done.get(job)
            if row is not None and row.node is None and job not in db.locked:
                db.finish(row, "discarded", db.at(now), error=reason)
                given_up.add(job)
            elif done is not None and done.state == "quarantined":
                done.state = "discarded"
                done.last_error = "; ".join(filter(None, (done.last_error, reason)))
                given_up.add(job)
        return given_up

    async def cancel_many(self, jobs: Sequence[UUID], reason: str, now: Now) -> dict[UUID, str]:
        return await self._each(jobs, lambda job: self.cancel(job, reason, now))

    async def retry_many(self, jobs: Sequence[UUID], now: Now) -> dict[UUID, str]:
        return await self._each(jobs, lambda job: self.retry(job, now))

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

    async def attempts(self, job: UUID, limit: int) -> list[AttemptView]:
        rows = [(token, row) for (of, token), row in self.db.attempts.items() if of == job]
        rows.sort(key=lambda pair: pair[0], reverse=True)
        return [
            AttemptView(
                attempt=row.attempt,
                token=token,
                worker_id=self.db.worker_id(row.node),
                started_at=row.started_at,
                ended_at=row.ended_at,
                outcome=row.outcome,
                error=row.error,
            )
            for token, row in rows[:limit]
        ]

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

    async def stack(self, job: UUID) -> StackView | None:
        row = self.db.stacks.get(job)
        if row is None:
            return None
        return StackView(row.request, row.claim_token, row.asked_at, row.answered_at, row.says)

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

    async def history(self, since: datetime, queue: str | None, limit: int) -> list[MinuteView]:
        found = sorted(
            key for key in self.db.history if key[0] >= since and queue in (None, key[1])
        )
        return [MinuteView(*key, **self.db.history[key]) for key in found[-limit:]]


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
