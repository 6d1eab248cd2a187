"""Finds jobs that run too long: reports them, and takes them away if ``requeue_after`` is set.

The guard's thread runs this, so that it also finds a job that blocks the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from leasework.env import Env
from leasework.jobs.running import Claim, Running
from leasework.model.states import State
from leasework.telemetry import Emit
from leasework.tuning import Tuning


class Overdue:
    def __init__(self, env: Env, running: Running, emit: Emit) -> None:
        self._env = env
        self._running = running
        self._emit = emit
        self._left: deque[Claim] = deque()
        """Claims that the last look had no time for."""
        self._given_up: set[int] = set()
        """Tokens of claims already taken away. Their event loop may be blocked and not know yet."""

    def _seconds(self, claim: Claim) -> float:
        return self._env.boot_now() - claim.started_at if claim.started_at is not None else 0.0

    def listing(self) -> list[dict[str, Any]]:
        """The overdue jobs for the node's row, the longest first. Each emits one event."""
        found: list[dict[str, Any]] = []
        for claim in self._running.snapshot():
            job, seconds = claim.job, round(self._seconds(claim), 1)
            allowed = job.timeout if job.timeout is not None else Tuning.long_run_seconds
            if claim.ended or seconds <= allowed + 1.0:
                continue
            if not claim.overdue_told:
                claim.overdue_told = True
                self._emit("job_overdue", job=job.id, task=job.task, seconds=seconds)
            entry = {"id": str(job.id), "task": job.task, "seconds": seconds}
            found.append(entry | {"timeout": job.timeout})
        found.sort(key=itemgetter("seconds"), reverse=True)
        return found[: Tuning.overdue_jobs]

    def to_take_away(self) -> Iterator[Claim]:
        """Yield the claims past their ``requeue_after`` that were not taken away yet. Continue
        where the last look ended."""
        if not self._left:
            late = [claim for claim in self._running.snapshot() if self._too_late(claim)]
            self._given_up &= {claim.job.claim_token for claim in late}
            self._left.extend(late)
        while self._left:
            claim = self._left.popleft()
            token = claim.job.claim_token
            if token not in self._given_up and self._running.of_token(token) is claim:
                yield claim

    def _too_late(self, claim: Claim) -> bool:
        over = claim.ended or claim.lost or claim.completed_elsewhere
        limit = claim.job.requeue_after
        return limit is not None and not over and self._seconds(claim) > limit

    def given_up(self, claim: Claim) -> None:
        self._given_up.add(claim.job.claim_token)

    def taken(self, claim: Claim, state: State) -> None:
        """Emit the events of a job that was taken away and is now in ``state``."""
        job, seconds = claim.job, round(self._seconds(claim), 1)
        self._emit("job_requeued", job=job.id, task=job.task, seconds=seconds)
        if state is State.DISCARDED:
            why = f"ran longer than its requeue_after of {job.requeue_after:g} s"
            self._emit("job_discarded", job=job.id, task=job.task, error=why)
