"""The states of a job. ``tests/support/transitions.py`` has the only moves between them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class State(StrEnum):
    """The state of a job."""

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
