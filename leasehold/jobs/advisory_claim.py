"""A claim by advisory locks: candidates, try-lock, the double check; the commit unlocks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from leasehold.config import Limits
from leasehold.model.job import ClaimedJob
from leasehold.ports import AdvisoryClaimStore

_CANDIDATES_PER_JOB = 3
"""Others try the first ones at the same moment."""
_ROUNDS = 4


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
    asked = min(limit * _CANDIDATES_PER_JOB, Limits.batch_rows)
    for number in range(_ROUNDS):
        found = await store.candidates(queue, not_tasks, number * asked, asked)
        claimed = await store.claim_candidates(node, epoch, found, limit, now) if found else []
        if claimed:
            return claimed, len(found) == asked
        if len(found) < asked:
            return [], False
    return [], True
