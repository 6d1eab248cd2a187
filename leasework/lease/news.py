"""The news that a guard sends to its node."""

from __future__ import annotations

from msgspec import Struct

from leasework.errors import LeaseworkError
from leasework.ports import NodeIdentity, Signal


class News(Struct, frozen=True):
    """The base of all news."""


class Joined(News, frozen=True):
    """The node has a lease and may claim jobs under this identity."""

    identity: NodeIdentity


class Refused(News, frozen=True):
    """The server refused the node. Waiting does not help."""

    error: LeaseworkError


class Renewed(News, frozen=True):
    """A renewal succeeded. ``deadline`` is the end of the lease, by the boot clock."""

    deadline: float


class Fenced(News, frozen=True):
    """The lease is lost: stop claiming, and cancel the running jobs."""

    why: str


class Answers(News, frozen=True):
    """The database answers again, after the lease was lost: record what waits."""


class GraceOver(News, frozen=True):
    """The grace is over and a job still runs. A worker process exits. A web process continues
    under a new identity, and the old job can write nothing."""


class Leadership(News, frozen=True):
    """The application's leadership was gained or lost."""

    gained: bool


class Signalled(News, frozen=True):
    """Requests arrived: cancel a job, show a stack, or drain the process."""

    signals: tuple[Signal, ...]


class Halted(News, frozen=True):
    """An operator halted the claims of this node, or resumed them."""

    halted: bool


class Paused(News, frozen=True):
    """People have paused queues or tasks, or resumed them."""

    pauses: frozenset[tuple[str, str]]


class NodesChanged(News, frozen=True):
    """Another node became silent, started or ended."""


class ClaimsUnknown(News, frozen=True):
    """Jobs that waited in this node may still be its own in the database."""


class Muted(News, frozen=True):
    """The server sends no notifications."""


class FailedOver(News, frozen=True):
    """Another server answers. It may lack the last commits of the previous one."""
