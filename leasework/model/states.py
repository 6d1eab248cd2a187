"""The states of a job, and the only table of transitions between them.

``tests/arch`` checks the SQL against this table: each statement that changes a job's state declares
its edges, and each edge here has a statement.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class State(StrEnum):
    """The state of a job."""

    NEW = "new"
    """The state before the row exists. Never stored."""
    SCHEDULED = "scheduled"
    """Waits for its time: delayed, snoozed, or held back until a worker knows its task or can start
    a process for it."""
    AVAILABLE = "available"
    """Due, and waits for a free slot."""
    RUNNING = "running"
    """Claimed by a node, which has started it or is about to."""
    RETRYABLE = "retryable"
    """Failed, and waits for its next attempt."""
    COMPLETED = "completed"
    """Its handler returned."""
    CANCELLED = "cancelled"
    """By a person, or by its handler."""
    DISCARDED = "discarded"
    """Out of attempts, or discarded by its handler or a person."""
    QUARANTINED = "quarantined"
    """Killed its node too often. A person decides what happens next."""


StateName = Literal[
    "scheduled", "available", "running", "retryable",
    "completed", "cancelled", "discarded", "quarantined",
]  # fmt: skip
"""A state as text, which a type checker checks."""
WAITING = frozenset({State.SCHEDULED, State.AVAILABLE, State.RETRYABLE})
FINISHED = frozenset({State.COMPLETED, State.CANCELLED, State.DISCARDED, State.QUARANTINED})

TRANSITIONS: frozenset[tuple[State, State]] = frozenset(
    {
        # enqueue
        (State.NEW, State.AVAILABLE),
        (State.NEW, State.SCHEDULED),
        # stager
        (State.SCHEDULED, State.AVAILABLE),
        (State.RETRYABLE, State.AVAILABLE),
        # producer
        (State.AVAILABLE, State.RUNNING),
        (State.RUNNING, State.AVAILABLE),  # given back unused, or rescued
        # acker
        (State.RUNNING, State.COMPLETED),
        (State.RUNNING, State.CANCELLED),
        (State.RUNNING, State.DISCARDED),
        (State.RUNNING, State.RETRYABLE),
        (State.RUNNING, State.SCHEDULED),  # snoozed, or it cannot start here
        # rescuer
        (State.RUNNING, State.QUARANTINED),
        # a person, through the client
        (State.SCHEDULED, State.CANCELLED),
        (State.AVAILABLE, State.CANCELLED),
        (State.RETRYABLE, State.CANCELLED),
        (State.COMPLETED, State.AVAILABLE),  # retry
        (State.CANCELLED, State.AVAILABLE),
        (State.DISCARDED, State.AVAILABLE),
        (State.QUARANTINED, State.AVAILABLE),
        (State.SCHEDULED, State.DISCARDED),
        (State.AVAILABLE, State.DISCARDED),
        (State.RETRYABLE, State.DISCARDED),
        (State.QUARANTINED, State.DISCARDED),
    }
)
