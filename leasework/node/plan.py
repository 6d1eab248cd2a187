"""A node's plan: what it does, and the tools that it needs for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from leasework.duties.syncer import Planned
from leasework.jobs.context import OnConnection
from leasework.store.listener import Handlers, Listener
from leasework.store.store import Store
from leasework.telemetry import Emit

EXIT_FENCED = 75
"""The exit code of a worker that could not stop its work after it lost its lease (EX_TEMPFAIL)."""
EXIT_DRAINED = 176  # not among those of sysexits, which applications use
"""The exit code of a supervised worker after a person drained the application. The supervisor then
ends all workers, including one that it was restarting at the time."""
EXIT_DRAINED_ALONE = 177
"""The exit code of a worker after a person drained it alone. The supervisor does not restart it;
the others continue."""


class NodePlan(Struct, frozen=True):
    """What this process does."""

    version: str
    release: str
    queues: dict[str, int]
    """Queue → slots. Empty: stand for election and schedule, but run no jobs."""
    planned: Sequence[Planned] = ()
    claims: Mapping[str, str] = field(default_factory=dict)
    """Queue → how it is claimed: ``rows`` (default) or ``advisory``."""
    hard_exit: bool = False
    """End the process if work continues after the grace. For worker processes, never in a web
    process."""


class Tools(Struct, frozen=True):
    """What the app provides to a node. ``users`` is the store for handlers' calls and for jobs with
    unique keys, because these may wait for a user's transaction. ``claims`` is for claims that
    take long. ``guard_store`` is called in the guard's loop, with the store's role."""

    store: Store
    users: Store
    claims: Store
    guard_store: Callable[[str], Store]
    wakeups: Callable[[Handlers, Emit], Listener]
    on_connection: OnConnection
