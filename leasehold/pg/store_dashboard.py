"""Store operations with which people act, and the history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from leasehold.pg.pool import Pool
from leasehold.pg.rows import named
from leasehold.pg.words import fetch_told
from leasehold.ports import Now, Rows


class DashboardOperations:
    _pool: Pool

    async def discard(self, jobs: Sequence[UUID], reason: str, now: Now) -> set[UUID]:
        params = {"jobs": list(jobs), "reason": reason, "now": now}
        return {row[0] for row in await fetch_told(self._pool, "job/discard", params)}

    async def cancel_many(self, jobs: Sequence[UUID], reason: str, now: Now) -> set[UUID]:
        params = {"jobs": list(jobs), "reason": reason, "now": now}
        return {row[0] for row in await fetch_told(self._pool, "job/cancel_many", params)}

    async def retry_many(self, jobs: Sequence[UUID], now: Now) -> set[UUID]:
        params = {"jobs": list(jobs), "now": now}
        return {row[0] for row in await self._pool.fetch("job/retry_many", params)}

    async def attempts(self, job: UUID, limit: int) -> Rows:
        rows = await self._pool.fetch("job/attempts", {"job": job, "limit": limit})
        return named("attempt token worker_id started_at ended_at outcome error", rows)

    async def ask_stack(self, job: UUID, request: UUID, now: Now) -> bool:
        params = {"job": job, "request": request, "now": now}
        return bool(await self._pool.fetch("stack/ask", params))

    async def answer_stack(self, node: UUID, request: UUID, says: str, now: Now) -> bool:
        params = {"node": node, "request": request, "says": says, "now": now}
        return bool(await fetch_told(self._pool, "stack/answer", params))

    async def stack(self, job: UUID) -> dict[str, Any] | None:
        rows = await self._pool.fetch("stack/get", {"job": job})
        found = named("request claim_token asked_at answered_at says", rows)
        return found[0] if found else None

    async def run_schedule(self, app: str, name: str, job: UUID, now: Now) -> bool:
        params = {"app": app, "name": name, "job": job, "now": now}
        return bool((await self._pool.fetch("schedule/run_now", params))[0][0])

    async def remove_schedule(self, app: str, name: str) -> bool:
        return bool(await self._pool.fetch("schedule/remove", {"app": app, "name": name}))

    async def roll_up(self, since: datetime | None, now: Now) -> datetime:
        params = {"since": since, "now": now}
        # what takes long must not stand before the claims in the queue for their connection
        rows = await self._pool.fetch("history/roll_up", params, aside=True)
        counted: datetime = rows[0][0]
        return counted

    async def fold_counts(self, limit: int) -> int:
        return int((await self._pool.fetch("metrics/fold", {"limit": limit}))[0][0])

    async def history(self, since: datetime, queue: str | None, limit: int) -> Rows:
        params = {"since": since, "queue": queue, "limit": limit}
        names = "at queue task_name completed cancelled discarded quarantined failed wait run"
        return named(names, await self._pool.fetch("history/list", params))
