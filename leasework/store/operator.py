"""What people do to jobs, schedules and stacks, and the housekeeping of what they read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from leasework.errors import Conflict
from leasework.store.operation import Now, Operations, operation, value
from leasework.tuning import Tuning

_LOOKS = 5


class OperatorStore(Operations):
    """Each act names at most one batch of ids."""

    @operation("silence/set")
    async def silence(
        self, kind: str, subject: str, seconds: float, who: str, reason: str, now: Now
    ) -> None: ...
    @operation("web/end_session")
    async def end_session(self, session: str, now: Now) -> None: ...
    @operation("job/discard", answer=dict, waits=True)
    async def discard_many(self, jobs: Sequence[UUID], reason: str, now: Now) -> dict[UUID, str]:
        """Discard ``waiting`` and ``quarantined`` jobs. Return where each known job
        was. ``running``, ``finished`` and ``locked`` ones are left alone."""

    async def discard(self, job: UUID, reason: str, now: Now) -> str | None:
        """The same for one job: see ``_one``."""
        return await self._one(job, self.discard_many, reason, now)

    @operation("job/cancel", answer=dict, waits=True)
    async def cancel_many(self, jobs: Sequence[UUID], reason: str, now: Now) -> dict[UUID, str]:
        """Cancel waiting jobs, and flag running ones for their workers. Return where each known job
        was: ``waiting``, ``running``, ``finished``, or ``locked`` and so left alone."""

    async def cancel(self, job: UUID, reason: str, now: Now) -> str | None:
        """The same for one job: see ``_one``."""
        return await self._one(job, self.cancel_many, reason, now)

    @operation("job/retry", answer=dict)
    async def retry_many(
        self,
        jobs: Sequence[UUID],
        now: Now,
        state: str | None = None,
        keep_steps: bool = False,
    ) -> dict[UUID, str]:
        """Run finished jobs again, and make waiting ones due now. ``state``: the only state from
        which finished jobs run again. Completed ones begin anew, without their steps, unless
        ``keep_steps``. Return where each known job was, as above; ``unchanged``: it
        has another state. Running ones are left alone."""

    async def retry(self, job: UUID, now: Now, keep_steps: bool = False) -> str | None:
        """The same for one job: see ``_one``."""
        return await self._one(job, self.retry_many, now, None, keep_steps)

    @operation("job/reprioritize", answer=dict)
    async def reprioritize_many(self, jobs: Sequence[UUID], priority: int) -> dict[UUID, str]:
        """Give waiting jobs another priority. Return where each known job was, as above."""

    async def reprioritize(self, job: UUID, priority: int) -> str | None:
        """The same for one job: see ``_one``."""
        return await self._one(job, self.reprioritize_many, priority)

    async def _one(
        self, job: UUID, act: Callable[..., Awaitable[dict[UUID, str]]], *args: Any
    ) -> str | None:
        """Act on one job, and return where it was (None: it is unknown). Raises Conflict if its row
        stays locked. A job that is moving between its tables may be visible in neither, so look
        again before reporting that it does not exist."""
        for look in range(Tuning.locked_tries):
            where = (await act([job], *args)).get(job)
            if where is not None and where not in ("locked", "unchanged"):
                return where
            if where is None and look >= 2:
                return None
            # wait here: in the database, later calls would queue behind this one
            await asyncio.sleep(Tuning.locked_first_pause * 2**look if where else 0)
        raise Conflict(
            "a transaction holds a lock on the job's row: its handler completes it there, or "
            "another session has locked it",
            got=str(job),
            do="Try again when that transaction has ended",
        )

    @operation("stack/ask")
    async def ask_stack(self, job: UUID, request: UUID, now: Now) -> bool:
        """Ask the job's node for its handler's stack, with a ``stack`` signal of this ``request``.
        Return False if no node holds the job."""

    @operation("stack/answer")
    async def answer_stack(self, node: UUID, request: UUID, says: str, now: Now) -> bool:
        """Store the node's answer. Return False if there is a newer request."""

    @operation("schedule/run_now", answer=value)
    async def run_schedule(self, app: str, name: str, job: UUID, now: Now) -> bool:
        """Enqueue a schedule's job under this id, once. Return False if the schedule is unknown."""

    async def note_lock(self, kind: str, key: int, name: str, now: Now) -> str:
        """Record the name of an advisory lock's key, and return the recorded one, which differs if
        two names have the same key. ``kind``: ``key`` or ``class``. The locks themselves are taken
        on other connections, which a Store does not have."""
        params = {"kind": kind, "key": key, "name": name, "now": now}
        for _ in range(_LOOKS):
            rows = await self.pool.fetch("lock/note", params, waits=True)
            if rows:
                return str(rows[0][0])
        raise Conflict("other processes keep changing the name of this lock", got=name)

    @operation("event/record")
    async def record(self, events: Sequence[dict[str, Any]], now: Now) -> None: ...

    @operation("prune/partitions", answer=value)
    async def prune_days(self, keep_days: int, now: Now) -> int:
        """Create the coming days of finished jobs, and drop the expired ones. Return how many were
        dropped. Raises Conflict while a long reader locks them. Retry later then, because it takes
        locks behind which all others wait."""

    @operation("prune/rows")
    async def prune(self, days: dict[str, int], limit: int, now: Now) -> int:
        """Delete rows older than ``days`` (events, ticks, attempts, history). Return how many."""

    @operation("history/roll_up", aside=True)
    async def roll_up(self, since: datetime | None, now: Now) -> datetime:
        """Count the whole minutes from ``since`` (None: from the end of the history). Return the
        time up to which it counted."""

    @operation("metrics/fold")
    async def fold_counts(self, limit: int) -> int:
        """Add at most ``limit`` tallies of metrics to the totals. Return how many."""
