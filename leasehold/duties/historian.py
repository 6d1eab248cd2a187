"""A duty of the leader: counts the jobs finished in each minute, and folds the metrics' counts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from leasehold.config import Tuning
from leasehold.loops.service import Service
from leasehold.ports import DashboardStore, Term


class Historian(Service):
    """Safe with two leaders, because counting a minute again gives the same rows."""

    name = "historian"

    def __init__(self, store: DashboardStore, term: Callable[[], Term], minutes: bool) -> None:
        self._store = store
        self._term = term
        self._minutes = minutes
        """False: the minutes are not counted."""
        self._counted: datetime | None = None

    async def tick(self, now: datetime | None) -> float:
        self._term()
        behind = await self._store.fold_counts(Tuning.history_rows) >= Tuning.history_rows
        if self._minutes:
            before, self._counted = self._counted, await self._store.roll_up(self._counted, now)
            # after an outage there are more minutes than one statement counts
            if before is not None and (self._counted - before).total_seconds() > 1700:
                behind = True
        return 0.0 if behind else Tuning.history_seconds
