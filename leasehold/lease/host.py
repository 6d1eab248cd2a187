"""The node that a guard serves."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from leasehold.errors import LeaseholdError
from leasehold.ports import NodeIdentity, Signal


class Host:
    """What the guard asks of its node and tells it, in the guard's thread. No method may wait. The
    defaults suit a node without jobs, schedules and an event loop to watch."""

    @abstractmethod
    def new_identity(self) -> NodeIdentity:
        """The identity under which the node takes part from now on."""

    def joined(self, identity: NodeIdentity) -> None:
        """The node has a lease: it may claim jobs under this identity."""

    def refused(self, error: LeaseholdError) -> None:
        """The server cannot serve us. There is no lease, and waiting will not bring one."""

    def fenced(self, why: str) -> None:
        """The lease is lost: stop claiming, and cancel what runs."""

    def quiet(self) -> bool:
        """Nothing of the lost identity runs any more."""
        return True

    def unrecorded(self) -> int:
        """How many outcomes are not yet written."""
        return 0

    def grace_over(self) -> None:
        """The grace is over and something still runs. A worker process exits here. A web process
        goes on under a new identity, and what still runs can write nothing."""

    def leadership(self, name: str, gained: bool) -> None:
        """A leadership was gained or lost."""

    def signals(self, signals: tuple[Signal, ...]) -> None:
        """Requests: cancel a job, show a stack, drain the process."""

    def halted(self, halted: bool) -> None:
        """Whether this node must claim nothing. Called when this changes."""

    def nodes_changed(self) -> None:
        """Another node fell silent, came or went."""

    def failed_over(self) -> None:
        """Another server answers. It may lack the last commits of the one before."""

    def loop_lag(self) -> float:
        """Seconds for which the user's loop owes an answer; 0 if it owes none."""
        return 0.0

    def info(self) -> dict[str, Any]:
        """What the process believes of itself, for the node's row."""
        return {}

    def renewed(self) -> None:
        """A renewal succeeded: the watchdog may be set again."""

    async def look_after_jobs(self, until: float) -> None:
        """Take overdue jobs away, over the guard's own connection. Return soon after ``until``
        (boot clock); the next call goes on."""
