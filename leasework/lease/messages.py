"""The messages that a guard sends to its node."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from leasework.errors import LeaseworkError
from leasework.store.nodes import NodeIdentity, Signal


class Note(Enum):
    """The messages whose name says it all."""

    LEADS = "the application's leadership was gained"
    LEADS_NOT = "the application's leadership was lost"
    ANSWERS = "the database answers again, after the lease was lost: record what waits"
    GRACE_OVER = "a job still runs after the grace: a worker process exits, a web process goes on"
    NODES_CHANGED = "another node became silent, started or ended"
    CLAIMS_UNKNOWN = "jobs that waited in this node may still be its own in the database"
    MUTED = "the server sends no notifications"
    FAILED_OVER = "another server answers, which may lack the last commits of the previous one"


class Joined(Struct, frozen=True):
    """The node has a lease and may claim jobs under this identity."""

    identity: NodeIdentity


class Refused(Struct, frozen=True):
    """The server refused the node. Waiting does not help."""

    error: LeaseworkError


class Renewed(Struct, frozen=True):
    """A renewal succeeded. ``deadline`` is the end of the lease, by the boot clock."""

    deadline: float


class Fenced(Struct, frozen=True):
    """The lease is lost: stop claiming, and cancel the running jobs."""

    why: str


class Signalled(Struct, frozen=True):
    """Requests arrived: cancel a job, show a stack, or drain the process."""

    signals: tuple[Signal, ...]


class Halted(Struct, frozen=True):
    """An operator halted the claims of this node, or resumed them."""

    halted: bool


class Paused(Struct, frozen=True):
    """People have paused queues or tasks, or resumed them."""

    pauses: frozenset[tuple[str, str]]


Message = Note | Joined | Refused | Renewed | Fenced | Signalled | Halted | Paused
