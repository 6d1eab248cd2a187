"""Store operations for events, housekeeping and operators, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

from leasehold.model.job import needs
from leasehold.ports import (
    EventView,
    FailingSchedule,
    LeaderView,
    NodeView,
    Now,
    OperatorStore,
    ScheduleLag,
    Summary,
    TaskFailures,
    TermView,
    TickView,
    TransactionView,
)
from leasehold_lab.sim.enqueue import LATE
from leasehold_lab.sim.rows import UNKNOWN, NodeRow, SimDatabase, TickRow

K = TypeVar("K")
_CAP, _NAMES_CAP = 10_000, 1000
_ENDED = ("completed", "cancelled", "discarded", "quarantined")
_FAILED = {"discarded": "discarded", "retryable": "failed"}


class SimOperators(OperatorStore):
    db: SimDatabase

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
        if ticks:
            last = decided[ticks[-1]]
            db.ledger_begin = max(last, db.ledger_begin or last)
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

    async def summary(self, now: Now) -> Summary:
        jobs = self.db.jobs.values()
        waiting = [row for row in jobs if not row.ready]
        unknown = [row for row in waiting if row.held_because in UNKNOWN]
        available = [row for row in jobs if row.ready and row.node is None][:_CAP]
        bad = [d for d in self.db.done.values() if d.state == "quarantined"]
        oldest: dict[str, float] = {}
        for row in available:
            waited = (self.db.at(now) - row.run_at).total_seconds()
            oldest[row.queue] = max(waited, oldest.get(row.queue, waited))
        return Summary(
            ready=min(len(jobs) - len(waiting), _CAP),
            waiting=min(len(waiting), _CAP),
            unknown=min(len(unknown), _CAP),
            quarantined=min(len(bad), _CAP),
            unknown_tasks=sorted({needs(row.task, row.version) for row in unknown[:_NAMES_CAP]}),
            oldest=oldest,
        )

    async def failures(
        self, outcome: str, seconds: float, now: Now, limit: int = 2000
    ) -> list[TaskFailures]:
        db, since = self.db, self.db.at(now) - timedelta(seconds=seconds)
        found: dict[str, dict[str, Any]] = {}
        tries = sorted(db.attempts.items(), key=lambda item: item[1].ended_at, reverse=True)
        for (job, _), tried in tries:
            done = db.done.get(job)
            row = db.jobs.get(job) or (done.job if done else None)
            if row is None or tried.ended_at <= since or tried.outcome != outcome:
                continue
            counts = {"task": row.task, "discarded": 0, "failed": 0, "error": tried.error}
            counts = found.setdefault(row.task, counts)
            if tried.outcome == "retryable" or (done and done.state == "discarded"):
                counts[_FAILED[tried.outcome]] += 1
        for task, counts in found.items():
            minutes = [m for (at, _, name), m in db.history.items() if name == task and at >= since]
            counts["finished"] = sum(m[state] for m in minutes for state in _ENDED)
            newest = max((at for at, _, _ in db.history), default=since)
            counts["counted_until"] = max(since, newest + timedelta(minutes=1))
        rows = [TaskFailures(**counts) for counts in found.values()]
        return sorted(rows, key=lambda row: (-row.discarded, -row.failed, row.task))

    async def finished(self, since: datetime, most: int = 20_000) -> dict[str, int]:
        ended = [d.job.task for d in self.db.done.values() if d.finished_at >= since]
        return {task: ended.count(task) for task in ended}

    async def schedule_lags(self, limit: int, now: Now) -> list[ScheduleLag]:
        at = self.db.at(now)

        def past(moment: datetime | None, since: datetime) -> float:
            return max(0.0, (moment - since).total_seconds()) if moment else 0.0

        rows = [
            ScheduleLag(app, name, row.paused, late, past(row.high_water, at))
            for (app, name), row in self.db.schedules.items()
            for late in [0.0 if row.paused or not row.next_at else past(at, row.next_at)]
        ]
        rows.sort(key=lambda row: (-row.late_seconds, -row.ahead_seconds, not row.paused, row[:2]))
        return rows[:limit]

    async def failing_schedules(
        self, seconds: float, limit: int, now: Now
    ) -> list[FailingSchedule]:
        db, since = self.db, self.db.at(now) - timedelta(seconds=seconds)
        found: list[FailingSchedule] = []
        bad = {
            done.job.schedule
            for state in ("discarded", "quarantined")
            for done in sorted(
                (d for d in db.done.values() if d.state == state), key=lambda d: d.job.id
            )[-limit:]
        }
        for (app, name), schedule in sorted(db.schedules.items()):
            if schedule.paused or name not in bad:
                continue
            ticks = [t for (a, s, _), t in sorted(db.ticks.items()) if (a, s) == (app, name)]
            jobs = [db.done[t.job] for t in ticks[-5:] if t.job in db.done]
            newest = max(jobs, key=lambda d: d.finished_at, default=None)
            works = any(d.state == "completed" and d.finished_at > since for d in jobs)
            if newest and newest.state in ("discarded", "quarantined") and not works:
                found.append(
                    FailingSchedule(
                        app=app,
                        name=name,
                        task_name=schedule.task_name,
                        job_id=newest.job.id,
                        state=newest.state,
                        finished_at=newest.finished_at,
                        error=newest.last_error,
                    )
                )
        return found

    async def nodes(self, limit: int) -> list[NodeView]:
        rows = sorted(self.db.nodes.values(), key=lambda row: row.started_at)
        return [self._node(row) for row in rows[:limit]]

    def _node(self, row: NodeRow) -> NodeView:
        me = row.identity
        return NodeView(
            worker_id=me.worker_id,
            id=me.id,
            app=me.app,
            release=me.release,
            version=me.version,
            executes=me.executes and not row.halted,
            queues=me.queues,
            tasks=list(me.tasks),
            started_at=row.started_at,
            heartbeat=row.renewed_at,
            age_seconds=self._age(row.renewed_at),
            lease_seconds=row.lease_seconds,
            info=row.info,
            halted=row.halted,
        )

    def _age(self, moment: datetime) -> float:
        return (self.db.clock() - moment).total_seconds()

    async def leaders(self, limit: int) -> list[LeaderView]:
        return [
            LeaderView(
                name=name,
                holder=self.db.worker_id(row.node),
                term=row.token,
                heartbeat=row.renewed_at,
                age_seconds=self._age(row.renewed_at) if row.renewed_at else None,
                lease_seconds=row.lease_seconds,
                acquired_at=row.acquired_at,
                node=row.node,
            )
            for name, row in sorted(self.db.leaders.items())[:limit]
            if not name.startswith("lock:")
        ]

    async def terms(self, name: str | None, limit: int) -> list[TermView]:
        rows = [row for row in self.db.terms.values() if name is None or row.name == name]
        rows.sort(key=lambda row: row.acquired_at, reverse=True)
        return [TermView(r.name, r.token, r.worker_id, r.acquired_at) for r in rows[:limit]]

    async def ticks(self, schedule: str | None, limit: int, now: Now = None) -> list[TickView]:
        keys = [key for key in self.db.ticks if schedule is None or key[1] == schedule]
        keys.sort(key=lambda key: key[2], reverse=True)
        return [self._tick(key, self.db.at(now)) for key in keys[:limit]]

    def _tick(self, key: tuple[str, str, datetime], now: datetime) -> TickView:
        app, schedule, fire_at = key
        row = self.db.ticks[key]
        outcome, started, ended = self._outcome(row, now)
        return TickView(
            app=app,
            schedule=schedule,
            fire_at=fire_at,
            until=row.until,
            state=row.state,
            job_id=row.job,
            term=row.term,
            decided_at=row.decided_at,
            lateness_seconds=(row.decided_at - fire_at).total_seconds(),
            outcome=outcome,
            ran_seconds=(ended - started).total_seconds() if started and ended else None,
        )

    def _outcome(
        self, tick: TickRow, now: datetime
    ) -> tuple[str, datetime | None, datetime | None]:
        if tick.job is None:
            return tick.state, None, None
        if job := self.db.jobs.get(tick.job):
            if job.node is None:
                return "waiting", None, None
            return "running", job.started_at or job.claimed_at, now
        if done := self.db.done.get(tick.job):
            return done.state, done.started_at, done.finished_at
        return "unknown", None, None

    async def events(self, kind: str | None, after: int | None, limit: int) -> list[EventView]:
        found = [
            event
            for event in reversed(self.db.events)
            if (kind is None or event.kind == kind) and (after is None or event.id > after)
        ]
        return found[:limit]

    async def lately(
        self, kinds: Sequence[str], seconds: float, limit: int, now: Now
    ) -> list[EventView]:
        since = self.db.at(now) - timedelta(seconds=seconds)
        found = [e for e in self.db.events if e.kind in kinds and e.at > since]
        newest = sorted(found, key=lambda e: (e.at, e.id), reverse=True)
        places: Counter[str] = Counter()
        return [e for e in newest if places.update([e.kind]) or places[e.kind] <= limit]

    async def transactions(self, limit: int, now: Now = None) -> list[TransactionView]:
        return []  # transactions end at once

    async def check_schema(self) -> None:
        """There is only one version."""


def _remove(table: dict[K, Any], keys: Sequence[K]) -> int:
    for key in keys:
        del table[key]
    return len(keys)


def _day(moment: datetime) -> date:
    return moment.astimezone(UTC).date()
