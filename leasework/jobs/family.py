"""A job's family: the jobs that its handler made, and those have made."""

from __future__ import annotations

from uuid import UUID

from leasework.errors import BadJob, Conflict, suggest
from leasework.store.operation import Now
from leasework.store.store import Store

MOST = 20_000
_LOOKS = 20


async def cancel_family(store: Store, job: UUID, reason: str, now: Now) -> str | None:
    """Cancel a job, and then the unfinished jobs that it and those have made. Return where the job
    was, as ``store.cancel`` does. A job that is being cancelled makes no further ones, so each look
    finds fewer. Raises Conflict if rows stay locked."""
    where = await store.cancel(job, reason, now)
    told: set[UUID] = set()
    for _ in range(_LOOKS):
        family = await store.family([job], MOST, True)
        left = [one.id for one in family if one.id not in told]
        if not left:
            return where
        for first in range(0, len(left), 1000):
            page = left[first : first + 1000]
            places = await store.cancel_many(page, reason, now)
            told.update(one for one, place in places.items() if place != "locked")
    raise Conflict(
        "transactions hold locks on jobs of this family",
        got=str(job),
        do="Try again when those transactions have ended",
    )


async def retry_from(store: Store, job: UUID, step: str, now: Now) -> str | None:
    """Forget a step of a job that does not run, and the steps after it, and run the job again.
    Return where it was, as ``store.retry`` does. Raises BadJob for a step that it does not have."""
    known = [one.name for one in await store.steps(job)]
    if step not in known:
        raise BadJob(f"the job has no step {step!r}", do=suggest(step, known))
    if not await store.forget_steps(job, step):
        return "running"
    return await store.retry(job, now, True)
