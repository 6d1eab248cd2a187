"""What a node shall do, and with what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from leasehold.duties.syncer import Planned
from leasehold.jobs.context import OnConnection
from leasehold.model.job import JobRequest
from leasehold.ports import Store, Wake, Wakeups
from leasehold.telemetry import Emit

EXIT_FENCED = 75
"""The exit code of a worker that could not stop its work after it lost its lease (EX_TEMPFAIL)."""
EXIT_DRAINED = 76
"""The exit code of a worker under a supervisor whose application was asked to drain: the supervisor
ends all of them, also one that was just being started again and heard nothing of it."""
EXIT_DRAINED_ALONE = 77
"""The same of a worker that alone was asked to: it is not started again, the others go on."""


@dataclass(frozen=True)
class NodePlan:
    """What this process shall do."""

    version: str
    release: str
    queues: dict[str, int]
    """Queue → jobs at once; empty: elect and schedule only."""
    planned: Sequence[Planned] = ()
    once: Sequence[JobRequest] = ()
    """Enqueued when the node has joined; their unique keys let only the first through."""
    claims: Mapping[str, str] = field(default_factory=dict)
    """Queue → how it is claimed: ``rows`` (default) or ``advisory``."""
    hard_exit: bool = False
    """A worker process: end it when work goes on after the grace. Never in a web process."""


@dataclass(frozen=True)
class Tools:
    """What the composition root gives a node. ``users`` is for what a handler calls, and for jobs
    with unique keys: it may wait for a user's transaction. ``guard_store`` is called in the
    guard's loop, with the store's role."""

    store: Store
    users: Store
    guard_store: Callable[[str], Store]
    wakeups: Callable[[Callable[[Wake], None], Emit], Wakeups]
    on_connection: OnConnection
