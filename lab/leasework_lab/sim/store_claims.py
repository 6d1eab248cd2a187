"""Store operations of claims by advisory locks, in memory. A statement is a single step here, so
two nodes never try the same job at the same moment."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from leasework.model.job import ClaimedJob
from leasework.store.jobs import JobStore
from leasework.store.operation import Now
from leasework_lab.sim.rows import SimDatabase
from leasework_lab.sim.store_jobs import as_claimed, claim_order


class SimAdvisoryClaims(JobStore):
    db: SimDatabase

    async def candidates(
        self, queue: str, not_tasks: Sequence[str], skip: int, limit: int
    ) -> list[UUID]:
        free = [
            row
            for row in self.db.jobs.values()
            if row.ready and row.node is None and row.queue == queue and row.task not in not_tasks
        ]
        free.sort(key=claim_order)
        return [row.id for row in free[skip : skip + limit]]

    async def claim_candidates(
        self, node: UUID, epoch: int, jobs: Sequence[UUID], limit: int, now: Now
    ) -> list[ClaimedJob]:
        db, moment = self.db, self.db.at(now)
        mine = db.nodes.get(node)
        if mine is None or mine.epoch != epoch:
            return []
        rows = [db.jobs[job] for job in jobs[:limit] if job in db.jobs and job not in db.locked]
        free = [row for row in rows if row.ready and row.node is None]
        for row in free:
            db.claim(row, node, moment)
        return [as_claimed(row) for row in free]
