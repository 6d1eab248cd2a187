"""A duty of the leader: counts what finished in each minute, for those who have no Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from leasehold.ports import DashboardStore, Term
from leasehold.services.service import Service

_EVERY_SECONDS = 20.0


class Historian(Service):
    """A minute that is counted again gives the same rows: it is right with two leaders."""

    name = "historian"

    def __init__(self, store: DashboardStore, term: Callable[[], Term]) -> None:
        self._store = store
        self._term = term
        self._counted: datetime | None = None

    async def tick(self, now: datetime | None) -> float:
        self._term()
        before, self._counted = self._counted, await self._store.roll_up(self._counted, now)
        # after an outage there are more minutes than one statement counts
        behind = before is not None and (self._counted - before).total_seconds() > 1700
        return 0.0 if behind else _EVERY_SECONDS
