"""The messages that a guard sends to its node."""

from __future__ import annotations

from msgspec import Struct

from leasework.errors import LeaseworkError
from leasework.store.nodes import NodeIdentity, Signal


class Message(Struct, frozen=True):
    """The base of all messages."""


class Joined(Message, frozen=True):
    """The node has a lease and may claim jobs under this identity."""

    identity: NodeIdentity


class Refused(Message, frozen=True):
    """The server refused the node. Waiting does not help."""

    error: LeaseworkError


class Renewed(Message, frozen=True):
    """A renewal succeeded. ``deadline`` is the end of the lease, by the boot clock."""

    deadline: float


class Fenced(Message, frozen=True):
    """The lease is lost: stop claiming, and cancel the running jobs."""

    why: str


class Answers(Message, frozen=True):
    """The database answers again, after the lease was lost: record what waits."""


class GraceOver(Message, frozen=True):
    """The grace is over and a job still runs. A worker process exits. A web process continues
    under a new identity, and the old job can write nothing."""


class Leadership(Message, frozen=True):
    """The application's leadership was gained or lost."""

    gained: bool


class Signalled(Message, frozen=True):
    """Requests arrived: cancel a job, show a stack, or drain the process."""

    signals: tuple[Signal, ...]


class Halted(Message, frozen=True):
    """An operator halted the claims of this node, or resumed them."""

    halted: bool


class Paused(Message, frozen=True):
    """People have paused queues or tasks, or resumed them."""

    pauses: frozenset[tuple[str, str]]


class NodesChanged(Message, frozen=True):
    """Another node became silent, started or ended."""


class ClaimsUnknown(Message, frozen=True):
    """Jobs that waited in this node may still be its own in the database."""


class Muted(Message, frozen=True):
    """The server sends no notifications."""


class FailedOver(Message, frozen=True):
    """Another server answers. It may lack the last commits of the previous one."""
