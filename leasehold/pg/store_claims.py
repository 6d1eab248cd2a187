"""Store operations of claims by advisory locks."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from leasehold.model.job import ClaimedJob
from leasehold.pg.pool import Pool
from leasehold.ports import Now


class AdvisoryClaimOperations:
    _pool: Pool

    async def candidates(
        self, queue: str, not_tasks: Sequence[str], skip: int, limit: int
    ) -> list[UUID]:
        params = {"queue": queue, "not_tasks": list(not_tasks), "skip": skip, "limit": limit}
        return [row[0] for row in await self._pool.fetch("job/candidates", params)]

    async def claim_candidates(
        self, node: UUID, epoch: int, jobs: Sequence[UUID], limit: int, now: Now
    ) -> list[ClaimedJob]:
        params = {"node": node, "epoch": epoch, "ids": list(jobs), "limit": limit, "now": now}
        rows = await self._pool.fetch("job/claim_candidates", params)
        claimed = [ClaimedJob._make(row) for row in rows]
        claimed.sort(key=lambda job: (job.priority, job.scheduled_for, job.id))
        return claimed
