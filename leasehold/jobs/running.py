"""What this process has in its hands: claimed jobs, waiting for a slot or running.

Written in the user's loop, read by the guard's thread: each access is one step of a dict.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from leasehold.errors import JobTimeout
from leasehold.model.deadline import DueLevel
from leasehold.model.job import ClaimedJob


@dataclass(eq=False, slots=True)
class Claim:
    """One attempt in our hands."""

    job: ClaimedJob
    node: UUID
    """Under which identity it was claimed; acks name it, also after a self-fencing."""
    started_at: float | None = None
    """CLOCK_BOOTTIME; None: waits for a slot."""
    runner: asyncio.Task[None] | None = None
    """In which it runs."""
    stop: Callable[[], object] | None = None
    """Ends the run, as far as its executor can."""
    place: Any = None
    """Where its handler is: a coroutine, the number of a thread, or what holds the child process.
    For those who look at its stack."""
    stop_reason: str = ""
    """``cancel``, ``lost``, ``stopping``; empty: go on."""
    seen: bool = False
    """Its handler, in a thread, was told that it shall end."""
    overdue_told: bool = False
    completed_elsewhere: bool = False
    """The handler completed it in a transaction of its own; nothing is left to write."""
    _cancelled: threading.Event | None = None

    @property
    def cancelled(self) -> threading.Event:
        """Seen by handlers as ``ctx.cancelled``; made when somebody asks, for most never do."""
        if self._cancelled is None:
            self._cancelled = threading.Event()
            if self.stop_reason:
                self._cancelled.set()
        return self._cancelled

    @property
    def stopping(self) -> bool:
        return bool(self.stop_reason)

    deadlines: tuple[DueLevel, ...] = ()
    """As they were when the run started."""

    @property
    def lost(self) -> bool:
        return self.stop_reason == "lost"

    def end(self, reason: str) -> None:
        """Stop it for ``reason``; the first reason stays. In the loop's thread."""
        if reason == "cancel" and self.completed_elsewhere:
            return  # too late: its completion may be committing at this moment
        if not self.stop_reason:
            self.stop_reason = reason
        if self._cancelled is not None:
            self._cancelled.set()
        if self.stop:
            self.stop()


def timed_out(claim: Claim) -> JobTimeout:
    return JobTimeout(f"ran longer than its timeout of {claim.job.timeout:g} s")


_EARLY_MOST = 1000
"""So many cancels of claims that are not here are kept; the oldest go first."""


class Running:
    """All claims of this process by token."""

    def __init__(self) -> None:
        self._claims: dict[int, Claim] = {}
        self._early: dict[int, None] = {}
        """Tokens that somebody asked to cancel and that are not here: their runs are over, or the
        answer to their claim is on its way, on another connection."""

    def cancel(self, job: UUID, token: int) -> None:
        """End it, also if it is yet to come. In the loop's thread."""
        claim = self.find(job, token)
        if claim:
            claim.end("cancel")
            return
        self._early[token] = None
        if len(self._early) > _EARLY_MOST:
            del self._early[next(iter(self._early))]

    def end_early(self, claims: Iterable[Claim]) -> None:
        """End those of these new claims that somebody asked to cancel before they were here."""
        if self._early:
            for claim in claims:
                if claim.job.claim_token in self._early:
                    del self._early[claim.job.claim_token]
                    claim.end("cancel")

    def add(self, *claims: Claim) -> None:
        self._claims.update({claim.job.claim_token: claim for claim in claims})

    def remove(self, claim: Claim) -> None:
        self._claims.pop(claim.job.claim_token, None)

    def remove_all(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._claims.pop(claim.job.claim_token, None)

    def find(self, job: UUID, token: int) -> Claim | None:
        claim = self._claims.get(token)
        return claim if claim and claim.job.id == job else None

    def of_token(self, token: int) -> Claim | None:
        return self._claims.get(token)

    def pairs(self) -> list[tuple[UUID, int]]:
        """(job, token) of all."""
        return [(claim.job.id, claim.job.claim_token) for claim in self.snapshot()]

    def snapshot(self) -> list[Claim]:
        return list(self._claims.values())

    def started(self) -> int:
        return sum(claim.started_at is not None for claim in self.snapshot())

    def __len__(self) -> int:
        return len(self._claims)
