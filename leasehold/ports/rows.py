"""Rows that people and their tools read. Seconds are by the database's clock."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID


class NodeView(NamedTuple):
    """A process that takes part."""

    worker_id: str
    id: UUID
    app: str
    release: str
    version: str
    executes: bool
    """It claims jobs: it has slots, and no person has halted it."""
    queues: dict[str, int]
    """Queue → how many jobs at once."""
    tasks: list[str]
    started_at: datetime
    heartbeat: datetime
    """Its last renewal."""
    age_seconds: float
    """Since the last renewal."""
    lease_seconds: float
    info: dict[str, Any] | None
    """What the process says of itself; of another version, in other words or none."""
    halted: bool


class LeaderView(NamedTuple):
    """An election and who holds it."""

    name: str
    holder: str | None
    """The worker_id; None: nobody holds it, or nothing is known of the node any more."""
    term: int
    heartbeat: datetime | None
    """The last renewal; None: nobody has held it yet."""
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
    """Jobs that were freed."""
