"""The claims that this process holds: jobs that wait for a slot or run.

The user's event loop writes and the guard's thread reads. Each access is one step of a dict.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from leasework.errors import JobTimeout
from leasework.model.deadline import DueDeadline
from leasework.model.job import ClaimedJob
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
    overdue_told: bool = False
    ended: bool = False
    """Its run has ended. It stays here until its outcome is recorded."""
    completed_elsewhere: bool = False
    """The handler completed it in its own transaction. There is no outcome to write."""
    completed_with: str | None = None
    """The result of that, as JSON."""
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
