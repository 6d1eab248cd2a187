"""Notifications: an accelerator beside the Store."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Wakeups(Protocol):
    """Notifications as an accelerator; polling goes on underneath."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    @property
    def healthy(self) -> bool:
        """A notification sent to ourselves arrived lately."""

    @property
    def pooled(self) -> bool:
        """A pooler stands between: no notification can arrive, and polling is all there is."""


class Wake(NamedTuple):
    """One notification: ``q`` a queue has work, ``e`` an election is open, ``d`` a node died,
    ``c`` a job of this node is to be cancelled, ``l`` a lock is free and it is the turn of the node
    that is named (``node token seq name``)."""

    kind: str
    subject: str = ""
