"""Claims with advisory locks: first candidates, then those of them that are free."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from leasehold.model.job import ClaimedJob
from leasehold.ports.common import Now
from leasehold.ports.operation import Operations, operation


class AdvisoryClaimStore(Operations):
    @operation("job/candidates")
    async def candidates(
        self, queue: str, not_tasks: Sequence[str], skip: int, limit: int
    ) -> list[UUID]:
        """Return the best available jobs after the first ``skip``. The list may soon be stale."""

    @operation("job/claim_candidates")
    async def claim_candidates(
        self, node: UUID, epoch: int, jobs: Sequence[UUID], limit: int, now: Now
    ) -> list[ClaimedJob]:
        """Claim at most ``limit`` of ``jobs``: those that no other process is trying, and that are
        still available under the lock. They are in the order of ``jobs``."""
