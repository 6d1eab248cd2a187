"""What the contract tests read of a simulated database. The simulation itself needs no reports."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from leasework_lab.sim.rows import DeadlineRow, NodeRow, ScheduleRow, SimDatabase, TickRow
from leasework_lab.sim.store import SimStore

from leasework.config import LOCK_PREFIX
from leasework.model.filter import JobFilter
from leasework.model.job import JobRecord
from leasework.store.operation import Now
from leasework.store.reports import Reports
from leasework.store.rows import (
    AttemptView,
    DeadlineView,
    DeathView,
    EventView,
    LeaderView,
    LockView,
    MinuteView,
    NodeView,
    StackView,
    StoredSchedule,
    TermView,
    TickView,
)


class SimReports(Reports):
    """The reports that show what an operation of the Store has done."""

    def __init__(self, db: SimDatabase) -> None:
        self.db = db

    async def jobs(self, wanted: JobFilter, limit: int) -> list[JobRecord]:
        """Understands ``task`` alone."""
        store, db = SimStore(self.db), self.db
        found = [await store.get(job) for job in sorted({*db.jobs, *db.done}, reverse=True)]
        return [job for job in found if job and wanted.task in (None, job.task_name)][:limit]

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
                traceback=row.traceback,
            )
            for token, row in rows[:limit]
        ]

    async def stack(self, job: UUID) -> StackView | None:
        row = self.db.stacks.get(job)
        if row is None:
            return None
        return StackView(row.request, row.claim_token, row.asked_at, row.answered_at, row.says)

    async def history(self, since: datetime, queue: str | None, limit: int) -> list[MinuteView]:
        found = sorted(
            key for key in self.db.history if key[0] >= since and queue in (None, key[1])
        )
        return [MinuteView(*key, **self.db.history[key]) for key in found[-limit:]]

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

    async def died(self, seconds: float, limit: int, now: Now) -> list[DeathView]:
        db = self.db
        since = db.at(now) - timedelta(seconds=seconds)
        unseen = [(node, d) for node, d in db.deaths.items() if d.how == "died" and not d.seen_at]
        unseen.sort(key=lambda pair: pair[0])
        unseen.sort(key=lambda pair: pair[1].died_at, reverse=True)
        return [
            DeathView(
                node=node,
                worker_id=d.worker_id,
                app=d.app,
                died_at=d.died_at,
                rescued=sum(
                    a.node == node and a.outcome == "crashed"
                    and timedelta(0) <= a.ended_at - d.died_at < timedelta(minutes=1)
                    for a in db.attempts.values()
                ),
            )
            for node, d in unseen
            if d.died_at > since
        ][:limit]  # fmt: skip

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

    async def locks(self, limit: int) -> list[LockView]:
        db = self.db
        held = [
            _lease(name)._replace(
                client=db.worker_id(row.node), since=row.acquired_at, token=row.token
            )
            for name, row in sorted(db.leaders.items())
            if row.node is not None
        ]
        waiting = [
            _lease(name)._replace(granted=False, client=db.worker_id(node))
            for name, node in db.bids
        ]
        return [*held, *waiting][:limit]

    async def schedules(
        self,
        limit: int,
        *,
        app: str | None = None,
        name: str | None = None,
        **_: Any,
    ) -> list[StoredSchedule]:
        found = [
            row
            for _, row in sorted(self.db.schedules.items())
            if app in (None, row.app) and name in (None, row.name)
        ]
        return [self._stored(row) for row in found[:limit]]

    def _stored(self, row: ScheduleRow) -> StoredSchedule:
        key, job = (row.app, row.name), row.job
        last_at = max((at for *of, at in self.db.ticks if (*of,) == key), default=None)
        last = self.db.ticks[*key, last_at].state if last_at else None
        return StoredSchedule(
            *key, row.described, row.task_name, row.missed, row.paused, row.next_at, last_at, last,
            row.release, row.high_water, row.in_code, row.spec, job, row.grace_seconds,
        )  # fmt: skip

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

    async def deadlines(
        self, state: str | None, name: str | None, limit: int
    ) -> list[DeadlineView]:
        rows = [
            row
            for row in self.db.deadlines.values()
            if state in (None, row.state) and name in (None, row.name)
        ]
        far = datetime.max.replace(tzinfo=UTC)
        rows.sort(key=lambda row: (row.due_at or far, row.id))
        rows.sort(key=lambda row: row.closed_at or far, reverse=True)
        return [_listed(row) for row in rows[:limit]]

    async def events(self, kind: str | None, after: int | None, limit: int) -> list[EventView]:
        found = [
            event
            for event in reversed(self.db.events)
            if (kind is None or event.kind == kind) and (after is None or event.id > after)
        ]
        return found[:limit]


def _listed(row: DeadlineRow) -> DeadlineView:
    judged = row.state in ("met", "breached") and row.closed_at and row.due_at
    late = (row.closed_at - row.due_at).total_seconds() if judged else None
    return DeadlineView(
        id=row.id,
        name=row.name,
        state=row.state,
        due_at=row.due_at,
        closed_at=row.closed_at,
        late_seconds=late,
        job_id=row.id if row.of_job else None,
        schedule=row.schedule,
        since=row.since,
        until=row.until,
        job_state=row.job_state,
        on_breach=row.callback["task"],
        callback_job=row.callback_job,
    )


def _lease(name: str) -> LockView:
    given: dict[str, Any] = dict.fromkeys(LockView._fields)
    mode = "lock" if name.startswith(LOCK_PREFIX) else "leader"
    given |= {"locktype": "lease", "name": name.removeprefix(LOCK_PREFIX), "mode": mode}
    return LockView(**given | {"granted": True})
