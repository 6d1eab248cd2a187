"""``leasework.enqueue`` of the simulated database: unique keys, conflicts, retries."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from leasework.errors import BadPayload, LeaseworkError, UniqueConflict
from leasework.model.job import JobRequest, OnConflict, plain_first_try
from leasework_lab.sim.promises import move, set_deadline
from leasework_lab.sim.rows import JobRow, SimDatabase

LATE = timedelta(hours=2)
"""How far back a first try looks for its own id."""


def new_row(job_id: UUID, job: JobRequest[Any], due: datetime, moment: datetime) -> JobRow:
    return JobRow(
        id=job_id,
        options=job.options,
        payload=json.loads(job.payload),
        run_at=due,
        created_at=moment,
        unique_key=None if job.unique is None else key_of(job.task, job.unique),
        ready=due <= moment,
        held_because=None if due <= moment else "scheduled",
        trace=job.trace,
    )


@lru_cache(1024)
def _size(payload: str) -> int:
    """The payload's size as stored, in bytes."""
    return len(json.dumps(json.loads(payload), ensure_ascii=False).encode())


def key_of(task: str, label: str) -> str:
    """A unique key; colons in the task's name are escaped."""
    marked = task.replace("\\", "\\\\").replace(":", "\\:")
    return f"{marked}:{label}"


class Enqueue:
    """One call, which enqueues all of its jobs or none."""

    def __init__(
        self, db: SimDatabase, payload_limit: int, retried: bool, moment: datetime
    ) -> None:
        self._db = db
        self._payload_limit = payload_limit
        self._retried = retried
        self._moment = moment
        self._plain = self._alone = False
        self._undo: list[Callable[[], object]] = []
        self._woken: list[str] = []

    def run(self, jobs: Sequence[tuple[UUID, JobRequest[Any]]]) -> list[tuple[UUID, bool]]:
        self._alone = len(jobs) == 1
        self._plain = bool(plain_first_try(jobs, self._payload_limit, self._retried))
        try:
            answers = [self._one(job_id, job) for job_id, job in jobs]
        except LeaseworkError:
            for undo in reversed(self._undo):
                undo()
            raise
        self._db.wake(self._woken)
        return answers

    def _one(self, job_id: UUID, job: JobRequest[Any]) -> tuple[UUID, bool]:
        size = _size(job.payload)
        if size > self._payload_limit:
            limit = self._payload_limit
            raise BadPayload(f"payload of {size} bytes is over the limit of {limit}", got=job.task)
        moment = self._moment
        due = job.run_at or moment + timedelta(seconds=job.run_in or 0.0)
        row = new_row(job_id, job, due, moment)
        if row.unique_key is not None:
            holder = self._take_key(row.unique_key, job_id, job)
            if holder is not None:
                if job.on_conflict == OnConflict.REPLACE:
                    self._replace(holder, row)
                return holder, False
        created = job_id not in self._db.jobs
        if created and self._is_over(job_id):
            if row.unique_key is not None:
                self._undo.pop()()  # the key that was just taken
            return job_id, False
        if created:
            self._db.insert(row)
            self._undo.append(lambda: self._db.jobs.pop(job_id))
            if self._retried and row.unique_key is None and self._alone:
                self._note(job_id)
            if job.deadline:
                promise = job.deadline.as_json()
                self._undo.append(set_deadline(self._db, row, promise, moment))
            if row.ready:
                self._woken.append(row.queue)
        return job_id, created

    def _is_over(self, job_id: UUID) -> bool:
        """Did a repetition run first, or is this the repetition of a job that has run?"""
        if self._plain:
            return job_id in self._db.repeated
        done = self._db.done.get(job_id)
        return done is not None and (self._retried or abs(done.finished_at - self._moment) <= LATE)

    def _note(self, job_id: UUID) -> None:
        """Note the repetition, for a first try that may come late."""
        before = self._db.repeated.copy()
        self._undo.append(lambda: setattr(self._db, "repeated", before))
        self._db.repeated[job_id] = self._moment

    def _take_key(self, key: str, job_id: UUID, job: JobRequest[Any]) -> UUID | None:
        """None if the key is taken for this job; else the job that has it."""
        keys = self._db.keys
        until = None
        if job.unique_for is not None:
            until = self._moment + timedelta(seconds=job.unique_for)
        held = keys.get(key)
        if held is None or (held[1] is not None and held[1] <= self._moment):
            keys[key] = (job_id, until)
            self._undo.append(lambda: keys.update({key: held}) if held else keys.pop(key))
            return None
        holder = held[0]
        if job.on_conflict == OnConflict.RAISE and holder != job_id:
            raise UniqueConflict(f"another job holds the unique key {key}", job=holder)
        return holder

    def _replace(self, holder: UUID, new: JobRow) -> None:
        """Give the waiting job the new arguments and time. A running one does not change."""
        old = self._db.jobs.get(holder)
        if old is None:
            return
        if old.node is None and holder != new.id:
            self._db.jobs[holder] = replace(
                old,
                payload=new.payload,
                run_at=new.run_at,
                ready=new.ready,
                options=replace(old.options, priority=new.priority, version=new.version),
                held_because=new.held_because,
                fresh=True,
                seat=self._db.new_seat(),
            )
            self._undo.append(lambda: self._db.jobs.update({holder: old}))
            move(self._db, self._db.jobs[holder])
        row = self._db.jobs[holder]
        if row.ready and row.node is None:
            self._woken.append(row.queue)
