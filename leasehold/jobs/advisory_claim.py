"""Claims jobs with advisory locks: finds candidates, tries to lock each, and checks it again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from leasehold.config import Limits
from leasehold.model.job import ClaimedJob
from leasehold.ports import AdvisoryClaimStore
from leasehold.tuning import Tuning


async def claim_by_advisory_locks(
    store: AdvisoryClaimStore,
    node: UUID,
    epoch: int,
    queue: str,
    not_tasks: Sequence[str],
    limit: int,
    now: datetime | None,
) -> tuple[list[ClaimedJob], bool]:
    """Claim up to ``limit`` jobs. Return them, and whether there may be more than those tried.

    It stops after the first statement that claims a job, because an error in a later statement
    would lose those claims.
    """
    asked = min(limit * Tuning.candidates_per_job, Limits.batch_rows)
    for number in range(Tuning.candidate_rounds):
        found = await store.candidates(queue, not_tasks, number * asked, asked)
        claimed = await store.claim_candidates(node, epoch, found, limit, now) if found else []
        if claimed:
            return claimed, len(found) == asked
        if len(found) < asked:
            return [], False
    return [], True
