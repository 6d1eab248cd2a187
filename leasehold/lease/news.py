"""What a guard tells its node."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.errors import LeaseholdError
from leasehold.ports import NodeIdentity, Signal


class News:
    """The base of all."""


@dataclass(frozen=True)
class Joined(News):
    """The node has a lease: it may claim jobs under this identity."""

    identity: NodeIdentity


@dataclass(frozen=True)
class Refused(News):
    """The server cannot serve us. There is no lease, and waiting will not bring one."""

    error: LeaseholdError


@dataclass(frozen=True)
class Renewed(News):
    """A renewal succeeded. ``deadline``: the lease's, by the boot clock."""

    deadline: float


@dataclass(frozen=True)
class Fenced(News):
    """The lease is lost: stop claiming, and cancel what runs."""

    why: str


class GraceOver(News):
    """The grace is over and something still runs. A worker process exits. A web process goes on
    under a new identity, and what still runs can write nothing."""


@dataclass(frozen=True)
class Leadership(News):
    """The application's leadership was gained or lost."""

    gained: bool


@dataclass(frozen=True)
class Signalled(News):
    """Requests: cancel a job, show a stack, drain the process."""

    signals: tuple[Signal, ...]


@dataclass(frozen=True)
class Halted(News):
    """A person halted the claims of this node, or resumed them."""

    halted: bool


class NodesChanged(News):
    """Another node fell silent, came or went."""


class FailedOver(News):
    """Another server answers. It may lack the last commits of the one before."""
