"""The node that a guard serves. The guard calls it in the guard's thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from leasehold.lease import news
from leasehold.ports import NodeIdentity


@dataclass(frozen=True)
class Condition:
    """The condition of the node. The defaults suit a node without jobs and an event loop."""

    quiet: bool = True
    """Whether nothing of a lost identity runs any more."""
    unrecorded: int = 0
    """How many outcomes are not yet written."""
    loop_lag: float = 0.0
    """For how many seconds the user's loop has not answered. 0: it has answered."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """What the process reports about itself in the node's row."""


class Host(Protocol):
    """The node, as the guard sees it. No method may block."""

    def new_identity(self) -> NodeIdentity:
        """Return a new identity, under which the node takes part from now on. If it has an
        application, the guard takes part in the election of its leader."""

    def condition(self) -> Condition: ...

    def tell(self, item: news.News) -> None: ...
