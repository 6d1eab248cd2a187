"""The sweeper: decides deadlines whose time has passed, and enqueues their callbacks.

Every node sweeps, because any number of sweepers is safe: the leader when the next deadline is due,
the others a little later, so that a breach is noticed even without a leader.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from leasework.loops.service import Service, ServiceContext
from leasework.tuning import Tuning


class DeadlineSweeper(Service):
    name = "deadlines"

    def __init__(self, context: ServiceContext, leads: Callable[[], bool]) -> None:
        super().__init__(context)
        self._leads = leads
        self._prune_at = 0.0

    async def tick(self, now: datetime | None) -> float:
        swept = await self._store.sweep(self._limits.batch_rows, now)
        for breach in swept.breaches:
            # only a log line: the verdict's transaction wrote the event's row
            self._emit(
                "deadline_breached",
                deadline=breach.id,
                name=breach.name,
                job=breach.job,
                due=breach.due_at.isoformat(),
                late=round(breach.late_seconds, 3),
                callback=breach.callback,
                callback_job=breach.callback_job,
            )
        if len(swept.breaches) >= self._limits.batch_rows:
            return 0.0
        leads = self._leads()
        wait = Tuning.sweep_seconds if leads else Tuning.follower_sweep_seconds
        if swept.next_in is not None:
            behind = 0.001 if leads else Tuning.follower_behind_seconds
            wait = min(wait, max(swept.next_in, 0.0) + behind)
        if leads:
            return 0.0 if await self._prune(now) else wait
        return self._env.jitter(wait, 0.25)

    async def _prune(self, now: datetime | None) -> bool:
        """Delete a batch of old verdicts, if it is time. Return whether there may be more."""
        boot_now = self._env.boot_now()
        if boot_now < self._prune_at:
            return False
        days = self._settings.retention.ticks_days
        gone = await self._store.prune_deadlines(days, self._limits.batch_rows, now)
        more = gone >= self._limits.batch_rows
        self._prune_at = boot_now if more else boot_now + Tuning.deadline_prune_seconds
        return more
