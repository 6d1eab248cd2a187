"""The only moves between the states of a job.

``tests/arch`` checks the SQL against this table: each statement that changes a job's state declares
its edges, and each edge here has a statement.
"""

from __future__ import annotations

from leasework.model.states import State

NEW = "new"
"""The state before the row exists. Never stored."""
TRANSITIONS: frozenset[tuple[str, str]] = frozenset(
    {
        # enqueue
        (NEW, State.AVAILABLE),
        (NEW, State.SCHEDULED),
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
