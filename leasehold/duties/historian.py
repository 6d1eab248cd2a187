"""A duty of the leader: counts the jobs finished in each minute, and folds the metrics' counts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from leasehold.loops.service import Service, ServiceContext
from leasehold.ports import Term
from leasehold.tuning import Tuning


class Historian(Service):
    """Safe with two leaders, because counting a minute again gives the same rows."""

    name = "historian"

    def __init__(self, context: ServiceContext, term: Callable[[], Term]) -> None:
        super().__init__(context)
        self._term = term
        self._counted: datetime | None = None

    async def tick(self, now: datetime | None) -> float:
        self._term()
        behind = await self._store.fold_counts(Tuning.history_rows) >= Tuning.history_rows
        if self._settings.retention.history_days > 0:
            before, self._counted = self._counted, await self._store.roll_up(self._counted, now)
            # after an outage there are more minutes than one statement counts
            if before is not None and (self._counted - before).total_seconds() > 290:
                behind = True
        return 0.0 if behind else Tuning.history_seconds
