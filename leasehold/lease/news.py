"""The news that a guard sends to its node."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.errors import LeaseholdError
from leasehold.ports import NodeIdentity, Signal


class News:
    """The base of all news."""


@dataclass(frozen=True)
class Joined(News):
    """The node has a lease and may claim jobs under this identity."""

    identity: NodeIdentity


@dataclass(frozen=True)
class Refused(News):
    """The server refused the node. Waiting does not help."""

    error: LeaseholdError


@dataclass(frozen=True)
class Renewed(News):
    """A renewal succeeded. ``deadline`` is the end of the lease, by the boot clock."""

    deadline: float


@dataclass(frozen=True)
class Fenced(News):
    """The lease is lost: stop claiming, and cancel the running jobs."""

    why: str


class Answers(News):
    """The database answers again, after the lease was lost: record what waits."""


class GraceOver(News):
    """The grace is over and a job still runs. A worker process exits. A web process continues
    under a new identity, and the old job can write nothing."""


@dataclass(frozen=True)
class Leadership(News):
    """The application's leadership was gained or lost."""

    gained: bool


@dataclass(frozen=True)
class Signalled(News):
    """Requests arrived: cancel a job, show a stack, or drain the process."""

    signals: tuple[Signal, ...]


@dataclass(frozen=True)
class Halted(News):
    """An operator halted the claims of this node, or resumed them."""

    halted: bool


class NodesChanged(News):
    """Another node became silent, started or ended."""


class ClaimsUnknown(News):
    """Jobs that waited in this node may still be its own in the database."""


class FailedOver(News):
    """Another server answers. It may lack the last commits of the previous one."""
