"""Store operations on jobs that workers and leaders call, in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from leasework.env import id_of
from leasework.errors import QueryFailed
from leasework.model.begins import Begins, Seen, Shared
from leasework.model.job import (
    BulkJob,
    ClaimedJob,
    JobRequest,
    needs,
)
from leasework.model.states import State
from leasework.store.jobs import Acked, AckItem, Completion, JobStore, Rescued, Staged
from leasework.store.operation import Now, Term
from leasework_lab.sim.enqueue import Enqueue, new_row
from leasework_lab.sim.rows import UNKNOWN, AttemptRow, DeathRow, JobRow, SimDatabase

_FINAL = ("completed", "cancelled", "discarded")


class SimJobs(JobStore):
    db: SimDatabase

    # -- in --------------------------------------------------------------------------------------
    async def enqueue(
        self,
        jobs: Sequence[tuple[UUID, JobRequest[Any]]],
        payload_limit: int,
        retried: bool,
        now: Now,
    ) -> list[tuple[UUID, bool]]:
        return Enqueue(self.db, payload_limit, retried, self.db.at(now)).run(jobs)

    async def copy(
        self, jobs: Iterable[BulkJob], most: int, most_bytes: int = 0, batch: Any = None
    ) -> None:
        made: list[tuple[UUID, JobRequest[Any]]] = [
            (id_of(n), JobRequest(options, text, trace)) for n, options, text, trace in jobs
        ]
        moment = self.db.clock()
        ids = {job_id for job_id, _ in made}
        if len(ids) < len(made) or ids & self.db.jobs.keys():
            raise QueryFailed("a job of this id is there")
        for job_id, job in made:
            self.db.insert(new_row(job_id, job, moment, moment))
        self.db.wake(job.queue for _, job in made)

    # -- for workers -----------------------------------------------------------------------------
    async def claim(
        self,
        node: UUID,
        epoch: int,
        limits: Mapping[str, int],
        not_tasks: Sequence[str],
        now: Now,
        begins: Begins | None = None,
    ) -> list[ClaimedJob]:
        begins = begins or Begins(lambda: 0.0)
        while limits:
            known = begins.server, len(begins.shared)
            jobs = self._claim(node, epoch, limits, not_tasks, self.db.at(now), begins)
            # if it was only told where others begin, it begins there now
            if jobs or known == (begins.server, len(begins.shared)):
                return jobs
        return []

    def _claim(
        self,
        node: UUID,
        epoch: int,
        limits: Mapping[str, int],
        not_tasks: Sequence[str],
        moment: datetime,
        begins: Begins,
    ) -> list[ClaimedJob]:
        """Do what ``leasework.claim`` does, with what it is told of ``begins``."""
        db, queues = self.db, sorted(limits)
        settled, asks, ranges = begins.settled, begins.asks(), begins.ranges(queues)
        if begins.server != db.server:
            settled, asks = 0, True
            ranges = [r._replace(begin=0, shared=0) for r in ranges]
        if asks:
            known = {r.shared for r in ranges}
            new = [each for each in db.shared(queues) if each[1] not in known]
            for (queue, level), sequence in new:
                begins.note(queue, Shared(level, sequence, db.server))
            if new:
                return []
        mine = db.nodes.get(node)
        if mine is None or mine.epoch != epoch:
            return []
        oldest, highest, xid = db.oldest_xid, db.seats, db.new_xid()
        claimed: list[ClaimedJob] = []
        wanted = dict(limits)
        available = [row for row in db.jobs.values() if row.node is None and row.ready]
        available.sort(key=claim_order)
        for number, level, until, begin, shared in ranges:
            queue = queues[number - 1]
            place = level, max(begin, db.sequences[shared])
            while wanted[queue]:
                there = [
                    row
                    for row in available
                    if row.queue == queue and row.level < until and claim_order(row) >= place
                    if row.task not in not_tasks
                ]
                if not there:
                    break
                found, first = claim_order(there[0])
                if found == level and there[0].fresh and settled:
                    shared = db.share((queue, found))
                    begins.note(queue, Shared(found, shared, db.server))
                    waiting = (r for r in available if (r.queue, r.level) == (queue, found))
                    passed = min(r.seat for r in waiting if r.seat >= db.sequences[shared])
                    db.publish(shared, passed, settled)
                free = [r for r in there if r.level == found and r.id not in db.locked]
                taken = free[: wanted[queue]]
                for row in taken:
                    db.claim(row, node, moment)
                if taken:
                    claimed += map(as_claimed, taken)
                    seen = Seen(found, first, highest, xid, oldest, db.server)
                    begins.note(queue, seen)
                wanted[queue] -= len(taken)
                place = found + 1, 0
        return claimed

    async def candidates(
        self, queue: str, not_tasks: Sequence[str], skip: int, limit: int
    ) -> list[UUID]:
        free = [
            row
            for row in self.db.jobs.values()
            if row.ready and row.node is None and row.queue == queue and row.task not in not_tasks
        ]
        free.sort(key=claim_order)
        return [row.id for row in free[skip : skip + limit]]

    async def claim_candidates(
        self, node: UUID, epoch: int, jobs: Sequence[UUID], limit: int, now: Now
    ) -> list[ClaimedJob]:
        # a statement is a single step here: two nodes never try a job at the same moment
        db, moment = self.db, self.db.at(now)
        mine = db.nodes.get(node)
        if mine is None or mine.epoch != epoch:
            return []
        rows = [db.jobs[job] for job in jobs[:limit] if job in db.jobs and job not in db.locked]
        free = [row for row in rows if row.ready and row.node is None]
        for row in free:
            db.claim(row, node, moment)
        return [as_claimed(row) for row in free]

    async def start(self, node: UUID, job: UUID, token: int, now: Now) -> bool:
        row = self.db.claimed(job, token, node)
        if row:
            row.started_at = self.db.at(now)
        return row is not None

    async def ack(self, node: UUID, items: Sequence[AckItem], now: Now) -> Acked:
        db = self.db
        moment = db.at(now)
        written, locked = set(), set()
        for item in items:
            row = db.claimed(item.job, item.token, node)
            if row is None:
                continue
            if row.id in db.locked:
                locked.add(item.job)
                continue
            written.add(item.job)
            self._ack(row, item, moment)
        return Acked(frozenset(written), frozenset(locked))

    def _ack(self, row: JobRow, item: AckItem, moment: datetime) -> None:
        decision = item.decision
        state = str(decision.state)
        over = state if state in _FINAL else "cancelled" if row.cancel_requested else None
        started_at = moment - timedelta(seconds=item.ran_seconds)
        if state != "completed":
            outcome = over or decision.held_because or state
            if outcome != "unknown_version":
                self.db.attempts.setdefault(
                    (row.id, item.token),
                    AttemptRow(
                        row.attempt,
                        row.node,
                        started_at,
                        moment,
                        outcome,
                        decision.error,
                        decision.traceback,
                    ),
                )
        if over:
            self.db.finish(
                row,
                over,
                moment,
                started_at=started_at,
                result=None if decision.result is None else json.loads(decision.result),
                error=decision.error,
                keep=row.history or over != "completed",
            )
            return
        row.ready, row.node, row.started_at = False, None, None
        row.progress = row.progress_note = None
        row.held_because = decision.held_because or state
        row.last_error = decision.error if decision.error is not None else row.last_error
        row.attempt -= 0 if decision.counts else 1
        row.run_at = moment + timedelta(seconds=decision.run_in)

    async def was_taken(self, ids: Sequence[UUID], tokens: Sequence[int]) -> set[UUID]:
        db = self.db
        rows = {job: db.jobs.get(job) or db.done.get(job) for job in ids}
        now = {job: row.claim_token for job, row in rows.items() if row}
        return {job for job, token in zip(ids, tokens, strict=True) if now.get(job, token) != token}

    async def completion(self, node: UUID, job: UUID, token: int) -> Completion:
        if self.db.claimed(job, token, node) is None:
            return Completion.OVER
        return Completion.OPEN if job in self.db.locked else Completion.ROLLED_BACK

    async def give_back(
        self, node: UUID, claims: Sequence[tuple[UUID, int]], now: Now = None
    ) -> int:
        rows = [row for job, token in claims if (row := self.db.claimed(job, token, node))]
        return self._give_back([row for row in rows if row.id not in self.db.locked], now)

    def _give_back(self, rows: Sequence[JobRow], now: Now) -> int:
        moment = self.db.at(now)
        for row in rows:
            self.db.free(row)
            row.attempt -= 1
            row.progress = row.progress_note = None
            if row.cancel_requested:
                error = "its worker gave it back"
                self.db.finish(row, "cancelled", moment, error=error)
        self.db.wake(row.queue for row in rows if not row.cancel_requested)
        return len(rows)

    async def give_back_unknown(
        self, node: UUID, epoch: int, known: Sequence[int], now: Now = None
    ) -> int:
        mine = self.db.nodes.get(node)
        if mine is None or mine.epoch != epoch:
            return 0
        rows = [
            row
            for row in self.db.held_by([node])
            if row.claim_token is not None and row.claim_token not in known
        ]
        return self._give_back(rows, now)

    async def progress(
        self, node: UUID, job: UUID, token: int, share: float, note: str | None
    ) -> bool | None:
        row = self.db.claimed(job, token, node)
        if row and row.id not in self.db.locked:
            row.progress, row.progress_note = share, note
        return row.cancel_requested if row else None

    async def requeue(self, job: UUID, token: int, now: Now = None) -> State | None:
        db, row = self.db, self.db.jobs.get(job)
        if row is None or row.claim_token != token or row.node is None:
            return None
        if job in db.locked:
            return State.RUNNING
        moment, began = db.at(now), row.started_at or row.claimed_at
        limit = row.requeue_after
        why = f"ran longer than its requeue_after of {limit:g} s" if limit else "was taken away"
        over = row.cancel_requested or row.attempt - row.crashes >= row.max_attempts
        state = State.CANCELLED if row.cancel_requested else State.DISCARDED
        outcome = state.value if over else "requeued"
        tried = AttemptRow(row.attempt, row.node, began, moment, outcome, why)
        db.attempts.setdefault((job, token), tried)
        if over:
            error = f"it {why}" if row.cancel_requested else why
            db.finish(row, state, moment, started_at=began, error=error)
            return state
        db.free(row)
        row.progress = row.progress_note = None
        row.last_error = why
        db.wake([row.queue])
        return State.AVAILABLE

    # -- for leaders -----------------------------------------------------------------------------
    async def rescue(
        self, nodes: Sequence[UUID], max_crashes: int, limit: int, now: Now
    ) -> list[Rescued]:
        db = self.db
        moment = db.at(now)
        lost = [
            row for row in db.held_by(nodes) if row.node not in db.nodes and row.id not in db.locked
        ]
        return [self._rescue(row, max_crashes, moment) for row in lost[:limit]]

    def _rescue(self, row: JobRow, max_crashes: int, moment: datetime) -> Rescued:
        assert row.node is not None and row.claim_token is not None
        dead, started_at = row.node, row.started_at or row.claimed_at
        blamed = row.crashes == 0 or row.started_at is not None
        poison = row.crashes + 1 >= max_crashes and row.started_at is not None
        if blamed:
            self.db.attempts.setdefault(
                (row.id, row.claim_token),
                AttemptRow(row.attempt, dead, started_at, moment, "crashed", "its worker died"),
            )
        if poison or row.cancel_requested:
            state = "quarantined" if poison else "cancelled"
            why = f"its worker died {row.crashes + 1} times while it ran"
            error = why if poison else "its worker died"
            self.db.finish(row, state, moment, started_at=started_at, error=error, crashed=True)
        else:
            self.db.free(row)
            row.progress = row.progress_note = None
            if blamed:
                row.crashes, row.last_error = row.crashes + 1, "its worker died"
            else:
                row.attempt -= 1
            self.db.wake([row.queue])
        return Rescued(row.id, dead, blamed, poison)

    async def note_stranded(self, page: int, pages: int) -> tuple[int, list[UUID]]:
        db, found = self.db, []
        for row in db.jobs.values():
            if row.node is None or row.node in db.nodes:
                continue
            death = db.deaths.get(row.node)
            if death is None or death.settled or row not in db.held_by([row.node]):
                db.note_claim(row.node, row)
                worker_id = f"?:0:{str(row.node)[-6:]}"
                death = db.deaths.setdefault(
                    row.node, DeathRow(worker_id, db.clock(), "", how="gone")
                )
                death.settled = False
                found.append(row.node)
        return 0, list(dict.fromkeys(found))

    async def stage(self, term: Term, limit: int, now: Now) -> Staged:
        db = self.db
        moment = db.at(now)
        waiting = [row for row in db.jobs.values() if not row.ready]
        ahead = [row.run_at for row in waiting if row.run_at > moment]
        next_in = (min(ahead) - moment).total_seconds() if ahead else None
        if not db.fenced(term.leader, term.token):
            return Staged(0, 0, next_in, *self._else_due(term.leader, moment))
        due = [row for row in waiting if row.run_at <= moment and row.id not in db.locked]
        due.sort(key=lambda row: row.run_at)
        known = {
            task
            for node in db.nodes.values()
            if node.identity.executes
            for task in node.identity.tasks
        }
        staged: list[JobRow] = []
        for row in due[:limit]:
            if row.held_because in UNKNOWN and needs(row.task, row.version) not in known:
                row.run_at = moment + timedelta(seconds=10)
            else:
                row.fresh, row.seat = row.held_because != "stopped", db.new_seat()
                row.ready, row.held_because = True, None
                staged.append(row)
        if staged:
            db.wake(row.queue for row in staged)
        held_on = len(due[:limit]) - len(staged)
        return Staged(len(staged), held_on, next_in, *self._else_due(term.leader, moment))

    def _else_due(self, app: str, moment: datetime) -> tuple[float | None, bool, bool]:
        """Seconds until the next deadline, whether dead nodes may hold jobs, and whether a schedule
        is due."""
        armed = [d.due_at for d in self.db.deadlines.values() if d.state == "armed" and d.due_at]
        dead = any(not death.settled for death in self.db.deaths.values())
        schedules = any(
            row.app == app and not row.paused and row.next_at and row.next_at <= moment
            for row in self.db.schedules.values()
        )
        return (min(armed) - moment).total_seconds() if armed else None, dead, schedules


def claim_order(row: JobRow) -> tuple[int, int]:
    return row.level, row.seat


def as_claimed(row: JobRow) -> ClaimedJob:
    assert row.claim_token is not None
    return ClaimedJob(
        row.id,
        row.task,
        row.queue,
        row.payload,
        row.priority,
        row.attempt,
        row.max_attempts,
        row.crashes,
        row.claim_token,
        row.timeout,
        row.requeue_after,
        row.tick_at or row.run_at,
        row.history,
        row.schedule,
        row.deadlines,
        row.trace,
        row.version,
    )
