"""Claims by advisory locks: candidates first, then those of them that are free."""

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
        """The best available jobs but for the first ``skip``; the list may be stale at once."""

    async def claim_candidates(
        self, node: UUID, epoch: int, jobs: Sequence[UUID], limit: int, now: Now
    ) -> list[ClaimedJob]:
        """At most ``limit`` of ``jobs``: those that nobody else tries now, and that are available
        still when looked at once more."""
