"""The node that a guard serves: what the guard asks it and tells it, in the guard's thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from leasehold.lease import news
from leasehold.ports import NodeIdentity


@dataclass(frozen=True)
class Condition:
    """What the guard asks. The defaults are those of a node without jobs and an event loop."""

    quiet: bool = True
    """Nothing of a lost identity runs any more."""
    unrecorded: int = 0
    """How many outcomes are not yet written."""
    loop_lag: float = 0.0
    """Seconds for which the user's loop owes an answer; 0 if it owes none."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """What the process believes of itself, for the node's row."""


class Host(Protocol):
    """No method may wait."""

    def new_identity(self) -> NodeIdentity:
        """Return the identity under which the node takes part from now on. A guard whose identity
        has an application stands for its leadership."""

    def condition(self) -> Condition: ...

    def tell(self, item: news.News) -> None: ...
