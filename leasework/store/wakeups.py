"""Notifications, which only make the Store's polling faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

Handlers = Mapping[str, Callable[[str], None]]
"""What handles notifications, by their kind: ``q`` a queue has work, ``e`` an election is open,
``d`` a node died, ``c`` a node has a signal, ``s`` an application's schedules have changed, ``l`` a
lock is free and it is the turn of the named node (``node token seq name``). Each gets the subject.
``q`` without a subject: look at all queues."""


class Wakeups(Protocol):
    """Receives notifications. Polling continues without them."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    def check(self) -> None:
        """Test now whether notifications arrive, if they did so far."""

    @property
    def healthy(self) -> bool:
        """Whether a notification to ourselves arrived recently."""

    @property
    def pooled(self) -> bool:
        """Whether there is a pooler, through which no notification arrives: only polling works."""
