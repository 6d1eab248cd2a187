"""What the broken builds of the simulation change in the services: methods, for one run."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from leasework_lab.sim.rows import JobRow, SimDatabase
from leasework_lab.sim.transaction import LateEnqueue

from leasework.duties.leading import Periodic
from leasework.errors import Unavailable
from leasework.jobs.attempt import Attempts
from leasework.jobs.running import Claim
from leasework.jobs.tasks import TaskFunction
from leasework.lease.bids import Bid
from leasework.lease.guard import Guard
from leasework.lease.membership import Membership
from leasework.model.begins import Begins, Level, Seen
from leasework.model.lease import Lease, Phase, Watch
from leasework.model.outcome import PLAIN, Outcome
from leasework.node.node import Node


@contextmanager
def _patched(owner: type, name: str, new: Any) -> Iterator[None]:
    old = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


_acquired, _renewed = Lease.acquired, Lease.renewed


@contextmanager
def trust_from_receipt() -> Iterator[None]:
    def acquired(self: Lease, token: int, sent_at: float, received_at: float) -> bool:
        return _acquired(self, token, received_at, received_at)

    def renewed(self: Lease, token: int, sent_at: float, received_at: float) -> None:
        _renewed(self, token, received_at, received_at)

    with _patched(Lease, "acquired", acquired), _patched(Lease, "renewed", renewed):
        yield


@contextmanager
def no_wait() -> Iterator[None]:
    def silent_at(self: Watch) -> float:
        return self.since + 3.0 if self.seen else float("inf")

    with _patched(Watch, "silent_at", silent_at):
        yield


@contextmanager
def renewal_after_the_end() -> Iterator[None]:
    def expire(self: Lease, now: float) -> bool:
        return False

    def renewed(self: Lease, token: int, sent_at: float, received_at: float) -> None:
        if token == self.token:
            self.deadline = max(self.deadline, sent_at + self.timings.trust)

    with _patched(Lease, "expire", expire), _patched(Lease, "renewed", renewed):
        yield


@contextmanager
def user_leases_without_end() -> Iterator[None]:
    def valid(self: Bid) -> bool:
        lease = self._lease
        return lease is not None and lease.phase is Phase.HOLDER and lease.token == self.token

    with _patched(Bid, "valid", valid):
        yield


@contextmanager
def no_drain() -> Iterator[None]:
    async def at_once(self: Node) -> None:
        return None

    with _patched(Node, "_drain", at_once):
        yield


_tick = Periodic.tick


class Unheard(BaseException):
    """No loop catches it, and nobody hears of it."""


@contextmanager
def periodic_dies() -> Iterator[None]:
    async def tick(self: Periodic, now: datetime | None) -> float:
        try:
            return await _tick(self, now)
        except Unavailable:
            raise Unheard from None

    with _patched(Periodic, "tick", tick):
        yield


@contextmanager
def fenced_for_good() -> Iterator[None]:
    with _patched(Guard, "_wait_for_quiet", lambda self: 1.0):
        yield


_drain = Node._drain


@contextmanager
def drain_without_end() -> Iterator[None]:
    never = asyncio.Event()

    async def drain(self: Node) -> None:
        await _drain(self)
        if self._cancelled:
            await never.wait()

    with _patched(Node, "_drain", drain):
        yield


@contextmanager
def nothing_forgotten() -> Iterator[None]:
    def failed_over(self: Membership, timeline: int) -> bool:
        return False

    with _patched(Membership, "failed_over", failed_over):
        yield


_run = Attempts._run_async


@contextmanager
def crash_is_an_end() -> Iterator[None]:
    async def run(self: Attempts, task: TaskFunction, claim: Claim) -> Outcome:
        return PLAIN if claim.job.crashes else await _run(self, task, claim)

    with _patched(Attempts, "_run_async", run):
        yield


@contextmanager
def completion_is_believed() -> Iterator[None]:
    async def check(self: Attempts, claim: Claim, outcome: Outcome) -> Outcome:
        claim.completed_elsewhere = False
        return outcome

    with _patched(Attempts, "_check_completion", check):
        yield


@contextmanager
def nothing() -> Iterator[None]:
    yield


# -- where a claim begins --------------------------------------------------------------------------
@contextmanager
def unsettled_begins() -> Iterator[None]:
    def note_seen(self: Begins, queue: str, seen: Seen) -> None:
        self.server = seen.server
        self.levels[queue, seen.level] = seen.first

    with _patched(Begins, "_note_seen", note_seen):
        yield


@contextmanager
def shared_begins_unsettled() -> Iterator[None]:
    publish = SimDatabase.publish

    def unsettled(self: SimDatabase, sequence: int, first: int, settled: int) -> None:
        publish(self, sequence, first, first)

    with _patched(SimDatabase, "publish", unsettled):
        yield


@contextmanager
def shared_begins_of_another_server() -> Iterator[None]:
    def shared(self: SimDatabase, queues: Collection[str]) -> list[tuple[Level, int]]:
        return [
            (level, sequence)
            for (_, level), sequence in self.shared_begins.items()
            if level[0] in queues
        ]

    with _patched(SimDatabase, "shared", shared):
        yield


@contextmanager
def seat_before_xid() -> Iterator[None]:
    begin, commit = LateEnqueue._begin, LateEnqueue._commit

    def only_a_seat(self: LateEnqueue) -> None:
        begin(self)
        self._db.open_xids.discard(self._xid or 0)

    def xid_at_last(self: LateEnqueue) -> None:
        self._xid = self._xid and self._db.new_xid()
        commit(self)

    with (
        _patched(LateEnqueue, "_begin", only_a_seat),
        _patched(LateEnqueue, "_commit", xid_at_last),
    ):
        yield


@contextmanager
def claims_not_noted() -> Iterator[None]:
    def once(self: SimDatabase, node: UUID, row: JobRow) -> None:
        levels = self.claimed_to.setdefault(node, {})
        levels.setdefault((row.queue, row.level), row.seat)

    with _patched(SimDatabase, "note_claim", once):
        yield


@contextmanager
def seat_kept_by_returned_jobs() -> Iterator[None]:
    def free(self: SimDatabase, row: JobRow) -> None:
        row.node = row.claim_token = row.started_at = None

    with _patched(SimDatabase, "free", free):
        yield
