"""Rows that people and their tools read. Times in seconds are by the database's clock."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID


class NodeView(NamedTuple):
    """A node."""

    worker_id: str
    id: UUID
    app: str
    release: str
    version: str
    executes: bool
    """It claims jobs: it has slots, and is not halted."""
    queues: dict[str, int]
    """Queue → its slots."""
    tasks: list[str]
    started_at: datetime
    heartbeat: datetime
    """Its last renewal."""
    age_seconds: float
    """Since the last renewal."""
    lease_seconds: float
    info: dict[str, Any] | None
    """What the process reports about itself. Its fields depend on the process's version."""
    halted: bool


class LeaderView(NamedTuple):
    """An election and its holder."""

    name: str
    holder: str | None
    """The worker_id. None: nobody holds it, or the node is no longer known."""
    term: int
    heartbeat: datetime | None
    """The last renewal. None: nobody has held it yet."""
    age_seconds: float | None
    """Since the last renewal."""
    lease_seconds: float
    acquired_at: datetime | None
    node: UUID | None
    """None: nobody holds it."""


class TermView(NamedTuple):
    """A term of a leader."""

    name: str
    term: int
    holder: str
    """The worker_id."""
    acquired_at: datetime


class DeathView(NamedTuple):
    """A dead node that no person has seen yet."""

    node: UUID
    worker_id: str
    app: str
    died_at: datetime
    rescued: int
    """The number of jobs that were freed."""


class StoredSchedule(NamedTuple):
    """A schedule as it is stored, with its last tick."""

    app: str
    name: str
    described: str
    """The moments in words."""
    task_name: str
    missed: str
    """The policy for missed moments."""
    paused: bool
    next_at: datetime | None
    """The first undecided moment. None: never again."""
    last_fire_at: datetime | None
    last_state: str | None
    """``fired``, ``missed`` or ``manual``."""
    release: str
    high_water: datetime | None
    """The newest decided moment."""
    in_code: bool
    """False: it was put at run time."""
    spec: dict[str, Any]
    """The moments as JSON."""
    job: dict[str, Any]
    """The options of its jobs, and ``payload``, their arguments."""
    grace_seconds: float
    """A moment that is later than this is missed."""


class TickView(NamedTuple):
    """An entry of the ledger: what happened to a due moment."""

    app: str
    schedule: str
    fire_at: datetime
    until: datetime | None
    """In an entry for many missed moments, the last of them."""
    state: str
    """``fired``, ``missed`` or ``manual``."""
    job_id: UUID | None
    term: int | None
    decided_at: datetime
    lateness_seconds: float
    outcome: str
    """The job's state, ``missed``, or ``unknown`` if nothing is kept of the job."""
    ran_seconds: float | None
    """Until now, if the job runs."""


class EventView(NamedTuple):
    """Something that happened."""

    id: int
    at: datetime
    kind: str
    level: str
    """``info``, ``warning`` or ``error``."""
    worker_id: str | None
    fields: dict[str, Any]


class FailingSchedule(NamedTuple):
    """A schedule whose newest job failed for good."""

    app: str
    name: str
    task_name: str
    job_id: UUID
    state: str
    finished_at: datetime
    error: str | None


class AttemptView(NamedTuple):
    """An attempt of a job that did not just complete."""

    attempt: int
    token: int
    worker_id: str | None
    started_at: datetime | None
    """None if its handler did not start."""
    ended_at: datetime
    outcome: str
    error: str | None
