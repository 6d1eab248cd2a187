"""The claims that this process holds: jobs that wait for a slot or run. The user's event loop
writes and the guard's thread reads; each access is one step of a dict."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from logging import LogRecord
from operator import itemgetter
from typing import Any
from uuid import UUID

from leasework.env import Env
from leasework.errors import JobTimeout
from leasework.model.deadline import DueDeadline
from leasework.model.job import ClaimedJob
from leasework.model.outcome import Suspend
from leasework.model.states import State
from leasework.telemetry import Emit
from leasework.tuning import Tuning


@dataclass(eq=False, slots=True)
class Claim:
    """One attempt that this process holds."""

    job: ClaimedJob
    node: UUID
    """The identity that claimed it. Acks name it, even after self-fencing."""
    claimed_at: float = 0.0
    """A time of CLOCK_BOOTTIME, of a job with limits."""
    started_at: float | None = None
    """A time of CLOCK_BOOTTIME. None while it waits for a slot."""
    runner: asyncio.Task[None] | None = None
    """The task in which it runs."""
    stop: Callable[[], object] | None = None
    """Ends the run, as far as its executor can."""
    place: Any = None
    """Where it runs: a coroutine, a thread's ident, or an object with the ``pid`` of a child."""
    stop_reason: str = ""
    """``cancel``, ``lost`` or ``stopping``; empty while it may continue."""
    seen: bool = False
    """Its handler, in a thread, has seen that it should stop."""
    overdue_reported: bool = False
    ended: bool = False
    """Its run has ended. It stays here until its outcome is recorded."""
    completed_elsewhere: bool = False
    """The handler completed it in its own transaction. There is no outcome to write."""
    completed_with: str | None = None
    """The result of that, as JSON."""
    lines: deque[LogRecord] | None = None
    """The last that its handler logged."""
    log: str | None = None
    """What it logged in a child process."""
    suspend: Suspend | None = None
    """What it waits for: its handler has been suspended."""
    _cancelled: threading.Event | None = None

    @property
    def cancelled(self) -> threading.Event:
        """What ``ctx.cancelled`` reads. Made on first use, because most handlers never read it."""
        if self._cancelled is None:
            self._cancelled = threading.Event()
            if self.stop_reason:
                self._cancelled.set()
        return self._cancelled

    deadline: DueDeadline | None = None
    """As of the start of the run."""

    @property
    def lost(self) -> bool:
        return self.stop_reason == "lost"

    def end(self, reason: str) -> None:
        """Stop it for ``reason``; the first reason stays. Call it in the loop's thread."""
        if reason == "cancel" and self.completed_elsewhere:
            return  # too late: its completion may be committing now
        if not self.stop_reason:
            self.stop_reason = reason
        if self._cancelled is not None:
            self._cancelled.set()
        if self.stop:
            self.stop()


def timed_out(claim: Claim) -> JobTimeout:
    return JobTimeout(f"ran longer than its timeout of {claim.job.timeout:g} s")


class Running:
    """All claims of this process, by token."""

    def __init__(self) -> None:
        self._claims: dict[int, Claim] = {}
        self._early: dict[int, None] = {}
        """Tokens of cancelled claims that are not here. Their runs are over, or the answer to their
        claim is still arriving on another connection."""

    def cancel(self, token: int) -> None:
        """Cancel a claim, even one that has not arrived yet. Call it in the loop's thread."""
        claim = self.of_token(token)
        if claim:
            claim.end("cancel")
            return
        self._early[token] = None
        if len(self._early) > Tuning.early_cancels:
            del self._early[next(iter(self._early))]

    def add(self, claims: Iterable[Claim]) -> None:
        """Add new claims. Cancel those whose cancel arrived before them."""
        self._claims.update({claim.job.claim_token: claim for claim in claims})
        if self._early:
            for claim in claims:
                if claim.job.claim_token in self._early:
                    del self._early[claim.job.claim_token]
                    claim.end("cancel")

    def remove(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._claims.pop(claim.job.claim_token, None)

    def of_token(self, token: int) -> Claim | None:
        return self._claims.get(token)

    def pairs(self) -> list[tuple[UUID, int]]:
        """All claims as (job, token)."""
        return [(claim.job.id, claim.job.claim_token) for claim in self.snapshot()]

    def snapshot(self) -> list[Claim]:
        return list(self._claims.values())

    def lose(self) -> None:
        """Tell the handlers in threads that their jobs are lost, without their event loop."""
        for claim in self.snapshot():
            claim.stop_reason = claim.stop_reason or "lost"
            claim.cancelled.set()

    def started(self) -> int:
        return sum(claim.started_at is not None for claim in self.snapshot())

    def __len__(self) -> int:
        return len(self._claims)


class Overdue:
    """Finds jobs that run too long: reports them, and takes them away if ``requeue_after`` is set.
    The guard's thread runs this, so that it also finds a job that blocks the event loop."""

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
            if not claim.overdue_reported:
                claim.overdue_reported = True
                self._emit("job_overdue", job=job.id, task=job.task, seconds=seconds)
            entry = {"id": str(job.id), "task": job.task, "seconds": seconds}
            found.append(entry | {"timeout": job.timeout})
        found.sort(key=itemgetter("seconds"), reverse=True)
        return found[: Tuning.overdue_jobs]

    def long(self) -> list[dict[str, Any]]:
        """The tasks with jobs that have run for long, for the node's row."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for claim in self._running.snapshot():
            job, seconds = claim.job, round(self._seconds(claim), 1)
            if not claim.ended and seconds > Tuning.long_jobs_seconds:
                one = found.setdefault((job.task, job.queue), {"jobs": 0, "seconds": 0.0})
                one["jobs"] += 1
                if seconds > one["seconds"]:
                    one |= {"seconds": seconds, "id": str(job.id)}
        named = [{"task": task, "queue": queue, **one} for (task, queue), one in found.items()]
        return sorted(named, key=itemgetter("seconds"), reverse=True)[: Tuning.overdue_jobs]

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
