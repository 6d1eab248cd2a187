"""A claim by advisory locks: candidates, try-lock, the double check; the commit unlocks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from leasehold.config import Limits, Tuning
from leasehold.model.job import ClaimedJob
from leasehold.ports import AdvisoryClaimStore


async def claim_by_advisory_locks(
    store: AdvisoryClaimStore,
    node: UUID,
    epoch: int,
    queue: str,
    not_tasks: Sequence[str],
    limit: int,
    now: datetime | None,
) -> tuple[list[ClaimedJob], bool]:
    """At most ``limit`` jobs; and whether more may be there than those that were tried.

    It ends with the first statement that claimed something: what was claimed must not get lost
    in the error of a later one.
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
