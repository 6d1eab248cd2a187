"""Broken builds: each takes one protection out, and the simulation must find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from leasework_lab.sim.cluster import Result, run_seed
from leasework_lab.sim.enqueue import Enqueue
from leasework_lab.sim.rows import SimDatabase
from leasework_lab.sim.store import SimStore

from tests.sim import patches


class ClaimWithoutGuard(SimStore):
    """What runs is claimed again."""

    async def claim(self, *args: Any) -> Any:
        held = [row for row in self.db.jobs.values() if row.node is not None and row.ready]
        before = {row.id: row.node for row in held}
        for row in held:
            row.node = None
        claimed = await super().claim(*args)
        for row in held:
            if row.node is None:
                row.node = before[row.id]
        return claimed


class ClaimInAnyEpoch(SimStore):
    """A claim that was given up takes effect after its node gave back what it did not know."""

    async def claim(self, node: Any, epoch: int, *args: Any) -> Any:
        row = self.db.nodes.get(node)
        return await super().claim(node, row.epoch if row else epoch, *args)


class NothingGivenBack(SimStore):
    async def give_back_unknown(self, *args: Any) -> int:
        return 0


class AckWithoutToken(SimStore):
    """Whoever writes last wins."""

    async def ack(self, node: Any, items: Any, now: Any) -> Any:
        held = {}
        for item in items:
            row = self.db.jobs.get(item.job)
            if row and row.node is not None:
                held[item.job] = row.node, row.claim_token
                row.node, row.claim_token = node, item.token
        return await super().ack(node, items, now)


class DeathByTheClock(SimStore):
    """The reaper that asks the database's clock who is dead, and leaves the row."""

    async def deaths(self, limit: int, skip: int = 0) -> Any:
        now = self.db.clock()
        late = [
            (node, row.identity.worker_id)
            for node, row in self.db.nodes.items()
            if row.renewed_at < now - timedelta(seconds=row.lease_seconds)
        ]
        return [*await super().deaths(limit, skip), *late]

    async def rescue(self, nodes: Any, *args: Any) -> Any:
        kept = {node: self.db.nodes.pop(node) for node in nodes if node in self.db.nodes}
        freed = await super().rescue(nodes, *args)
        self.db.nodes.update(kept)
        return freed


class BuriedAtOnce(SimStore):
    """Death without naming what was seen: whoever renewed in between is buried."""

    async def bury(self, term: Any, node: Any, token: int, seq: int) -> Any:
        row = self.db.nodes.get(node)
        return await super().bury(term, node, token, row.seq if row else seq)


class NoFence(SimStore):
    def __init__(self, db: SimDatabase) -> None:
        super().__init__(db)
        db.fenced = lambda name, token: True  # type: ignore[method-assign]


class FireWithoutMark(SimStore):
    """Each decision stands by itself."""

    async def fire(self, term: Any, app: str, plans: Any, now: Any) -> Any:
        for plan in plans:
            row = self.db.schedules.get((app, plan.name))
            if row:
                row.high_water = plan.seen
            for tick in plan.ticks:
                self.db.ticks.pop((app, plan.name, tick.at), None)
        return await super().fire(term, app, plans, now)


class RedefinedAnew(SimStore):
    """A new definition begins with its own first moment, whatever was due."""

    async def sync_schedules(self, app: str, release: str, given: Any, now: Any) -> Any:
        before = {name: row.spec for (_, name), row in self.db.schedules.items()}
        synced = await super().sync_schedules(app, release, given, now)
        for schedule in given if synced.newest else ():
            row = self.db.schedules[app, schedule.name]
            if before.get(schedule.name, row.spec) != row.spec:
                row.next_at, row.former = schedule.next_at, None
        return synced


class _Forgetful(Enqueue):
    def _is_over(self, job_id: UUID) -> bool:
        return False


class NoIdempotency(SimStore):
    """An enqueue, late or repeated, does not look whether its job has finished."""

    async def enqueue(self, jobs: Any, limit: int, retried: bool, now: Any) -> Any:
        return _Forgetful(self.db, limit, retried, self.db.at(now)).run(jobs)


class _Traceless(Enqueue):
    def _note(self, job_id: UUID) -> None:
        return


class NoTraceOfARepetition(SimStore):
    """A repeated enqueue leaves nothing for its first try, which may come late."""

    async def enqueue(self, jobs: Any, limit: int, retried: bool, now: Any) -> Any:
        return _Traceless(self.db, limit, retried, self.db.at(now)).run(jobs)


class AcquireWhateverWasSeen(SimStore):
    """Takeover without compare-and-swap."""

    def _changed(self, name: str, seen: Any) -> bool:
        return False


class TokenPlusOne(SimStore):
    """A promotion does not lift the terms."""

    def _next_term(self, row: Any) -> int:
        return row.token + 1


class ClaimTokenPlusOne(SimStore):
    """A promotion does not lift the tokens of nodes and claims."""

    def __init__(self, db: SimDatabase) -> None:
        super().__init__(db)
        db.new_token = self._plus_one  # type: ignore[method-assign]

    def _plus_one(self) -> int:
        self.db.sequence += 1
        return self.db.sequence


class TakeoverByTheClock(SimStore):
    """Whose renewal is older than the lease, by the database's clock, holds nothing."""

    def _leader_seen(self, name: str) -> Any:
        seen = super()._leader_seen(name)
        return seen._replace(node=None) if _late(self.db, name) else seen

    def _changed(self, name: str, seen: Any) -> bool:
        row = self.db.leaders[name]
        return (row.token, row.seq) != (seen.token, seen.seq)


class RenewMayAcquire(SimStore):
    """One statement for both: mine, nobody's, or late by the clock; no token is named."""

    async def heartbeat(self, node: Any, token: int, held: Any, *args: Any) -> Any:
        for term in held:
            row = self.db.leaders.get(term.leader)  # somebody may have deleted it
            if row and (row.node in (node, None) or _late(self.db, term.leader)):
                row.node, row.token = node, term.token
        return await super().heartbeat(node, token, held, *args)


class DeletedRowIsFree(SimStore):
    """A leader's row that was deleted by hand is made again as nobody's."""

    async def ensure_election(self, name: str, lease_seconds: float) -> bool:
        there = name in self.db.leaders
        again = await super().ensure_election(name, lease_seconds)
        if not there:
            self.db.leaders[name].node = None
        return again


class SweepWithoutLock(SimStore):
    """A sweep goes by what it read: what was met since is breached all the same."""

    async def sweep(self, limit: int, now: Any) -> Any:
        moment = self.db.at(now)
        for row in self.db.deadlines.values():
            since = row.closed_at and moment - row.closed_at < timedelta(seconds=1)
            if row.state == "met" and since and row.due_at and row.due_at <= moment:
                row.state = "armed"
        return await super().sweep(limit, now)


def _late(db: SimDatabase, name: str) -> bool:
    row = db.leaders[name]
    span = timedelta(seconds=row.lease_seconds)
    return row.renewed_at is not None and row.renewed_at < db.clock() - span


class LateCommit(SimStore):
    """synchronous_commit = off: a crash of the server loses the last acknowledged commits."""

    def __init__(self, db: SimDatabase) -> None:
        super().__init__(db)
        self._last: list[tuple[Any, Any]] = []
        db.crash = self._crash  # type: ignore[method-assign]

    async def enqueue(self, jobs: Any, *args: Any) -> Any:
        answers = await super().enqueue(jobs, *args)
        self._last += [(job_id, self.db.clock()) for job_id, created in answers if created]
        return answers

    def _crash(self) -> None:
        flushed = self.db.clock() - timedelta(seconds=0.2)
        for job_id, at in self._last:
            row = self.db.jobs.get(job_id)
            if at > flushed and row is not None and row.node is None:
                del self.db.jobs[job_id]


@dataclass(frozen=True)
class Mutant:
    """``breaks``: which protection it takes out, in a few words."""

    name: str
    breaks: str
    store: Callable[[SimDatabase], SimStore] = SimStore
    patch: Callable[[], Any] = patches.nothing
    profile: str | None = None
    """In which it shows; by default the seed chooses."""

    def run(self, seed: int) -> Result:
        with self.patch():
            return run_seed(seed, profile=self.profile, make_store=self.store)


MUTANTS = [
    Mutant("ClaimWithoutGuard", "a claim skips running jobs", ClaimWithoutGuard),
    Mutant("ClaimInAnyEpoch", "a claim names its epoch", ClaimInAnyEpoch),
    Mutant("NothingGivenBack", "unknown claims are given back", NothingGivenBack),
    Mutant("AckWithoutToken", "an outcome names its claim", AckWithoutToken),
    Mutant("DeathByTheClock", "no wall clock decides which node is dead", DeathByTheClock),
    Mutant("BuriedAtOnce", "a death names the observed row", BuriedAtOnce),
    Mutant("NoFence", "a duty checks the fence", NoFence),
    Mutant("FireWithoutMark", "the schedule's high-water mark", FireWithoutMark),
    Mutant("RedefinedAnew", "moments due before a new definition stay due", RedefinedAnew),
    Mutant("NoIdempotency", "an enqueue searches for its id", NoIdempotency),
    Mutant("NoTraceOfARepetition", "a retried enqueue records its id", NoTraceOfARepetition),
    Mutant("AcquireWhateverWasSeen", "a takeover is a compare-and-swap", AcquireWhateverWasSeen),
    Mutant("TakeoverByTheClock", "no wall clock decides a takeover", TakeoverByTheClock),
    Mutant("RenewMayAcquire", "renew and acquire are two statements", RenewMayAcquire),
    Mutant("DeletedRowIsFree", "a deleted row still belongs to its last holder", DeletedRowIsFree),
    Mutant("SweepWithoutLock", "a sweep locks the deadlines that it decides", SweepWithoutLock),
    Mutant("LateCommit", "an acknowledged commit is durable", LateCommit),
    Mutant("RenewalAfterTheEnd", "stepping down is final", patch=patches.renewal_after_the_end),
    Mutant("StopWithoutDrain", "a stop waits for running jobs", patch=patches.no_drain),
    Mutant("StopWithoutEnd", "a stop ends running jobs", patch=patches.drain_without_end),
    Mutant("FencedForGood", "a fenced node takes part again", patch=patches.fenced_for_good),
    Mutant("PeriodicDies", "a duty survives every error", patch=patches.periodic_dies),
    Mutant("CrashIsAnEnd", "a rescued job runs again", patch=patches.crash_is_an_end),
    Mutant(
        "CompletionIsBelieved",
        "a rolled-back completion does not count",
        patch=patches.completion_is_believed,
    ),
    Mutant(
        "TrustFromReceipt", "trust counts from before the request", patch=patches.trust_from_receipt
    ),
    Mutant(
        "UserLeaseWithoutEnd",
        "a user's term ends by the clock",
        patch=patches.user_leases_without_end,
    ),
    Mutant("TakeoverTooEarly", "a candidate waits for a whole lease", patch=patches.no_wait),
    Mutant("TokenPlusOne", "a promotion raises the terms", TokenPlusOne, profile="failover"),
    Mutant(
        "ClaimTokenPlusOne",
        "a promotion raises the claims' tokens",
        ClaimTokenPlusOne,
        profile="failover",
    ),
    Mutant(
        "NothingForgotten",
        "claims are compared after a failover",
        patch=patches.nothing_forgotten,
        profile="failover",
    ),
    Mutant(
        "UnsettledBegins",
        "a claim begins where no earlier job can appear",
        patch=patches.unsettled_begins,
    ),
    Mutant(
        "SharedBeginsUnsettled",
        "workers share a begin only if no earlier job can appear",
        patch=patches.shared_begins_unsettled,
    ),
    Mutant(
        "SharedBeginsOfAnotherServer",
        "workers share begins only on the server where they were established",
        patch=patches.shared_begins_of_another_server,
    ),
    Mutant(
        "ClaimsNotNoted",
        "a dead node's jobs are found through its claims",
        patch=patches.claims_not_noted,
    ),
    Mutant("SeatBeforeXid", "an xid comes before its seats", patch=patches.seat_before_xid),
    Mutant(
        "ReturnedJobsKeepTheirSeats",
        "a job that comes back takes a new seat",
        patch=patches.seat_kept_by_returned_jobs,
    ),
]
