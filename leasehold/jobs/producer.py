"""The producer: claims jobs of one queue, as many as slots and rate ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from leasehold import errors
from leasehold.config import Limits, Polling
from leasehold.env import Env
from leasehold.jobs.acker import Acker
from leasehold.jobs.advisory_claim import claim_by_advisory_locks
from leasehold.jobs.executor import Executor, Lane
from leasehold.jobs.running import Claim
from leasehold.lease.guard import Guard
from leasehold.lease.membership import Membership
from leasehold.loops.service import Service
from leasehold.model.begins import Begins
from leasehold.model.job import ClaimedJob
from leasehold.model.lease import Phase
from leasehold.ports import NodeStore, Store
from leasehold.telemetry import Emit

_PREFETCH_SECONDS = 0.05
"""Claim ahead what is finished in this time, so that no slot waits for a round trip."""
_PREFETCH_BATCHES = 2
"""At most so many: while one is worked off, the next claim is a whole one."""

_STILL_SECONDS = 1.0
"""What was claimed ahead goes back when no job has ended for so long: others may have room."""

_CONTENDED_SECONDS = 0.01
"""Before the next look at candidates that were all in the hands of others."""


class Sleepers:
    """Which queues of this node sleep: whoever enqueues there sends a notification."""

    def __init__(self, store: NodeStore, guard: Guard) -> None:
        self._store = store
        self._guard = guard
        self._asleep: set[str] = set()
        self._one = asyncio.Lock()
        self._identities = 0

    def forget(self) -> None:
        """A new identity: its row says nothing yet."""
        self._asleep.clear()
        self._identities += 1

    def asleep(self, queue: str) -> bool:
        return queue in self._asleep

    async def set(self, queue: str, asleep: bool) -> None:
        if asleep == (queue in self._asleep):
            return
        async with self._one:  # queues of one row
            identity = self._identities
            wanted = self._asleep | {queue} if asleep else self._asleep - {queue}
            self._asleep = self._asleep & wanted  # an answer that is lost: it is said again
            await self._store.set_sleeping(self._guard.membership.identity.id, sorted(wanted))
            if identity == self._identities:  # else it was said of the one before
                self._asleep = wanted


class ClaimDesk:
    """All claims of this node, one at a time, so that an unknown one can be undone.

    A claim without an answer may have made rows ours that we do not know of; their node lives,
    so nobody would rescue them. The node's epoch moves on, after which no such claim can
    commit, and what the database calls ours and we do not know goes back.
    """

    def __init__(
        self, store: Store, env: Env, guard: Guard, executor: Executor, emit: Emit
    ) -> None:
        self._store = store
        self._env = env
        self._guard = guard
        self._executor = executor
        self._emit = emit
        self._one = asyncio.Lock()
        self._unknown: Membership | None = None
        self._begins = Begins(env.boot_now)
        self._doubts = 0
        self.halted = False
        """A person wants this node to claim nothing."""
        self.not_tasks: set[str] = set()
        """Tasks that turned out to have no handler here."""

    async def claim(self, lane: Lane, limit: int, now: datetime | None) -> int | None:
        """Claim and hand over to the executor; how many, or None when the lease is not ours."""
        async with self._one:
            membership = self._guard.membership
            if self._unknown is membership:
                await self._give_back_unknown(membership)
            if not membership.valid(self._env.boot_now()):
                return None
            node, doubts = membership.identity.id, self._doubts
            began = self._env.boot_now()
            try:
                jobs = await self._ask(lane, node, membership.epoch, limit, now)
            except Exception as error:
                # no answer, or one that could not be read: rows may be ours that we do not know
                if not isinstance(error, errors.Unavailable) or error.sent:
                    self._unknown = membership
                    lane.batch.unanswered(limit)
                raise
            lane.batch.answered(len(jobs), self._env.boot_now() - began)
            if membership.lease.phase is not Phase.HOLDER:
                return None  # fenced meanwhile: these are rescued with what else it held
            if self._doubts != doubts:  # the claim may be lost: it is settled first
                lane.drained = False
                return 0
            self._executor.submit(lane, [Claim(job, node) for job in jobs])
            return len(jobs)

    def doubt(self) -> None:
        """What the database calls ours may not be what we know. What has not been started is let
        go of: its claim may be lost, and others may have the job."""
        self._executor.take_waiting()
        self._unknown = self._guard.membership
        self._doubts += 1

    async def settle(self) -> None:
        """Give back what we do not know, if there is a doubt."""
        async with self._one:
            doubtful, self._unknown = self._unknown, None
            if doubtful is self._guard.membership:
                self._unknown = doubtful  # until it has been answered
                await self._give_back_unknown(doubtful)

    async def _ask(
        self, lane: Lane, node: UUID, epoch: int, limit: int, now: datetime | None
    ) -> list[ClaimedJob]:
        if lane.claim == "advisory":
            jobs, lane.contended = await claim_by_advisory_locks(
                self._store, node, epoch, lane.queue, sorted(self.not_tasks), limit, now
            )
            lane.drained = len(jobs) < limit and not lane.contended
            return jobs
        jobs = await self._store.claim(
            node, epoch, {lane.queue: limit}, sorted(self.not_tasks), now, self._begins
        )
        lane.drained = len(jobs) < limit
        return jobs

    @property
    def in_doubt(self) -> bool:
        return self._unknown is not None

    @property
    def exclusive(self) -> bool:
        """Nothing is claimed: a suspect has this node for itself, or a person wants it so."""
        return self.halted or self._executor.exclusive

    async def give_back(self, lane: Lane) -> None:
        """What waits for a slot, for others to run."""
        async with self._one:
            membership = self._guard.membership
            claims = self._executor.take_waiting(lane)
            if not claims:
                return
            try:
                gone = await self._store.give_back(membership.identity.id, claims)
            except Exception:
                self._unknown = membership  # rows may be ours still that we do not know any more
                raise
            if gone < len(claims):  # so may those that somebody held locked
                self._unknown = membership

    async def _give_back_unknown(self, membership: Membership) -> None:
        node, doubts = membership.identity.id, self._doubts
        epoch = await self._store.new_epoch(node, membership.token, membership.epoch + 1)
        count = 0
        if epoch is not None:  # else the node is gone, and its jobs are rescued
            membership.epoch = epoch
            known = self._executor.known_tokens()
            count = await self._store.give_back_unknown(node, epoch, known)
        if self._doubts == doubts:  # else it may have been answered by a database that went back
            self._unknown = None
        self._emit("claim_unknown", given_back=count)


class Producer(Service):
    """Claims a batch, hands it over, and sleeps when the queue is empty."""

    name = "producer"

    def __init__(
        self,
        lane: Lane,
        env: Env,
        limits: Limits,
        polling: Polling,
        desk: ClaimDesk,
        acker: Acker,
        sleepers: Sleepers,
        listening: Callable[[], bool],
    ) -> None:
        self._lane = lane
        self._env = env
        self._limits = limits
        self._polling = polling
        self._desk = desk
        self._acker = acker
        self._sleepers = sleepers
        self._listening = listening
        self._measured_at = env.boot_now()
        self._measured = 0
        self._rate = 0.0
        self._still = (0, env.boot_now())
        """How many jobs had ended, and since when no other has, and none was claimed."""

    @property
    def _poll(self) -> float:
        return self._polling.listening if self._listening() else self._polling.blind

    def room(self) -> int:
        """How many more jobs we want in our hands."""
        most = _PREFETCH_BATCHES * self._limits.batch_rows
        ahead = min(most, int(self._rate * _PREFETCH_SECONDS))
        return self._lane.slots + ahead - self._lane.in_hand

    def wants_more(self) -> bool:
        """Enough room to be worth a statement, and more is there: asked when a job has ended."""
        if self._desk.exclusive:
            return bool(self._lane.waiting)
        return not self._lane.drained and self.room() * 2 >= min(
            self._lane.slots, self._limits.batch_rows
        )

    async def tick(self, now: datetime | None) -> float:
        self._measure()
        if self._desk.in_doubt:  # also when there is no room for more
            await self._desk.settle()
        if self._desk.exclusive:
            await self._desk.give_back(self._lane)
            self._lane.drained = False  # we look again when it has ended
            return 5.0  # its end, or the person's word, wakes us
        if self._acker.backlog > self._limits.unrecorded_outcomes:
            return self._limits.flush_seconds
        limit = min(self.room(), self._limits.batch_rows, self._lane.batch.now)
        if limit <= 0:
            return await self._full()
        claimed = await self._desk.claim(self._lane, limit, now)
        if claimed is None:
            return 1.0  # the node wakes us when it has joined
        self._still = self._lane.finished, self._env.boot_now()
        if not self._lane.drained:
            if claimed == limit >= 50:
                # plenty of work: whoever enqueues need not notify
                await self._sleepers.set(self._lane.queue, asleep=False)
            return _CONTENDED_SECONDS if self._lane.contended and not claimed else 0.0
        if not self._sleepers.asleep(self._lane.queue):
            # first say that we sleep, then look once more: a job of the moment between is seen
            await self._sleepers.set(self._lane.queue, asleep=True)
            return 0.0
        return self._env.jitter(self._poll, 0.2)

    async def _full(self) -> float:
        """No room: an ended job wakes us. Meanwhile nobody knows whether there is more."""
        lane, now = self._lane, self._env.boot_now()
        lane.drained = False
        if not lane.waiting or lane.running < lane.slots:  # else they are being started
            return 5.0
        ended, since = self._still
        if lane.finished != ended:
            self._still = lane.finished, now
        elif now - since >= _STILL_SECONDS:
            self._rate = 0.0
            await self._desk.give_back(lane)
            return 5.0
        return _STILL_SECONDS

    def _measure(self) -> None:
        now = self._env.boot_now()
        elapsed = now - self._measured_at
        if elapsed >= 0.02:
            rate = (self._lane.finished - self._measured) / elapsed
            self._rate += (rate - self._rate) * min(1.0, elapsed * 5)
            self._measured, self._measured_at = self._lane.finished, now
