"""The node that a guard serves. The guard calls it in the guard's thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from leasework.lease import messages
from leasework.store.nodes import NodeIdentity
from leasework.store.store import Store


class Host(Protocol):
    """The node, as the guard sees it. No method may block, and only ``look_after_jobs`` may wait.
    The answers here suit a node without jobs and an event loop."""

    def new_identity(self) -> NodeIdentity:
        """Return a new identity, under which the node takes part from now on. If it has an
        application, the guard takes part in the election of its leader."""

    def send(self, message: messages.Message) -> None: ...

    async def look_after_jobs(self, store: Store, until: float) -> None:
        """Do what the jobs need, over the guard's own store. Called in each step. Return soon after
        ``until`` (boot clock), and go on at the next call."""
        return

    def quiet(self) -> bool:
        """Whether nothing of a lost identity runs any more."""
        return True

    def unrecorded(self) -> int:
        """How many outcomes are not yet written."""
        return 0

    def loop_lag(self) -> float:
        """For how many seconds the user's loop has not answered. 0: it has answered. Asks it
        again."""
        return 0.0

    def loop_gone(self) -> str:
        """Why the user's loop runs nothing any more: ``closed``, or ``stopped`` for a whole lease.
        Empty: it runs."""
        return ""

    def info(self) -> Mapping[str, Any]:
        """What the process reports about itself in the node's row."""
        return {}
