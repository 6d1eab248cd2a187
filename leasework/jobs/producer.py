"""The producer: claims jobs for all queues of this node, as many as their slots and rates need."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from leasework import errors
from leasework.config import Limits
from leasework.env import Env
from leasework.jobs.acker import Acker
from leasework.jobs.executor import Executor, LocalQueue
from leasework.jobs.running import Claim
from leasework.lease.guard import Guard
from leasework.lease.membership import Membership
from leasework.loops.service import Service, ServiceContext
from leasework.model.begins import Begins
from leasework.model.job import ClaimedJob
from leasework.model.lease import Phase
from leasework.model.moments import in_seconds
from leasework.store.limits import Asked, Walk
from leasework.store.nodes import NodeStore
from leasework.store.store import Store
from leasework.tuning import Tuning


class Sleepers:
    """Which queues of this node are asleep: enqueueing there sends a notification."""

    def __init__(self, store: NodeStore, guard: Guard) -> None:
        self._store = store
        self._guard = guard
        self.asleep: set[str] = set()
        self._identities = 0

    def forget(self) -> None:
        """Forget all queues: the row of the node's new identity lists none yet."""
        self.asleep = set()
        self._identities += 1

    async def set(self, fall_asleep: set[str], wake_up: set[str]) -> None:
        wanted = (self.asleep | fall_asleep) - wake_up
        if wanted == self.asleep:
            return
        identity = self._identities
        self.asleep = self.asleep & wanted  # if the answer is lost, it is written again
        await self._store.set_sleeping(self._guard.membership.identity.id, sorted(wanted))
        if identity == self._identities:  # else it was written for the old identity
            self.asleep = wanted


class Found(NamedTuple):
    """What a claim found in one queue."""

    jobs: list[ClaimedJob]
    more: bool
    """The queue may have more jobs."""


class Claimer:
    """Makes all claims of this node, one at a time, so that an unknown one can be undone. A claim
    whose answer was lost may have committed, and nobody rescues its jobs while our node is alive.
    So the claimer raises the node's epoch, after which that claim can no longer commit, and gives
    back the jobs that the database counts as ours and we do not know."""

    def __init__(
        self,
        context: ServiceContext,
        claims: Store,
        guard: Guard,
        executor: Executor,
        not_tasks: Collection[str],
    ) -> None:
        """``not_tasks``: see :class:`Attempts`."""
        self._store, self._env, self._emit = context.store, context.env, context.emit
        self._claims = claims
        """For claims that may take long. It has a connection of its own, so that nothing waits."""
        self._apart_until = self._refused_until = 0.0
        """Until when claims use that connection, because one took long, and until when they do not,
        because it could not be opened."""
        self._guard = guard
        self._executor = executor
        self._not_tasks = not_tasks
        self._one = asyncio.Lock()
        self.in_doubt: Membership | None = None
        """The membership of which the database may have claims that we do not know."""
        self._begins = Begins(self._env.boot_now)
        self._doubts = 0
        self.halted = False
        """An operator has told this node to claim nothing."""
        self.paused: frozenset[str] = frozenset()
        """Queues of which nothing starts."""
        self._paused_tasks: frozenset[str] = frozenset()

    async def claim(
        self, limits: Mapping[LocalQueue, int], now: datetime | None
    ) -> Mapping[LocalQueue, Found] | None:
        """Claim at most ``limits`` jobs of each queue and submit them to the executor. Return what
        was found, or None if the lease is not ours."""
        async with self._one:
            membership = self._guard.membership
            if self.in_doubt is membership:
                await self._give_back_unknown(membership)
            if not membership.lease.valid(self._env.boot_now()):
                return None
            if any(queue.name in self.paused for queue in limits):  # since these were chosen
                return {queue: Found([], more=True) for queue in limits}
            node, doubts = membership.identity.id, self._doubts
            pauses, began = (self.paused, self._paused_tasks), self._env.boot_now()
            found: dict[LocalQueue, Found] = {}
            try:
                await self._ask(found, limits, node, membership.epoch, now)
            except Exception as error:
                # no answer, an unreadable one, or no further one: we may hold jobs without knowing
                if found or not isinstance(error, errors.Unavailable) or error.sent:
                    self.in_doubt = membership
                    for queue, limit in limits.items():
                        queue.batch.unanswered(limit)
                raise
            took = self._env.boot_now() - began
            if membership.lease.phase is not Phase.HOLDER:
                return None  # fenced in the meantime: these jobs are rescued with the rest
            count = sum(len(jobs) for jobs, _ in found.values())
            if count >= Tuning.long_claim_jobs or (count and took > Tuning.long_claim_seconds):
                self._apart_until = began + took + Tuning.apart_seconds
            for queue, (jobs, _) in found.items():
                queue.batch.answered(len(jobs), took)
            if pauses != (self.paused, self._paused_tasks):  # some may be of what is paused now
                self.in_doubt = membership
            if self.in_doubt or self._doubts != doubts:  # the claim may be lost: settle it first
                return {queue: Found([], more=True) for queue in limits}
            for queue, (jobs, _) in found.items():
                if jobs:
                    self._executor.submit(queue, [Claim(job, node) for job in jobs])
            return found

    async def claim_limited(self, queue: LocalQueue, asked: Asked, ahead: float) -> Walk | None:
        """Claim jobs with limits for idle slots, and submit them to the executor. Return what was
        found, or None if the lease is not ours."""
        async with self._one:
            membership, doubts = self._guard.membership, self._doubts
            held_back = self.halted or self.in_doubt or queue.name in self.paused
            if held_back or not membership.lease.valid(self._env.boot_now()):
                return None
            node, epoch = membership.identity.id, membership.epoch
            left_out = self._left_out()
            try:
                found = await self._claims.claim_limited(
                    node, epoch, queue.name, asked, left_out, ahead
                )
            except Exception as error:
                if not isinstance(error, errors.Unavailable) or error.sent:
                    self.in_doubt = membership
                raise
            if membership.lease.phase is not Phase.HOLDER or self._doubts != doubts:
                return None
            now = self._env.boot_now()
            claims = [Claim(job, node, claimed_at=now) for job in found.jobs]
            self._executor.submit_limited(queue, claims)
            return found

    def doubt(self) -> None:
        """Note that the database's record of our claims may differ from ours. Drop the claims that
        have not started: they may be lost, and the jobs claimed elsewhere."""
        self._executor.take_waiting()
        self.in_doubt = self._guard.membership
        self._doubts += 1

    def pause(self, pauses: frozenset[tuple[str, str]]) -> None:
        """Claim nothing of these queues and tasks, until told otherwise."""
        self.paused = frozenset(name for kind, name in pauses if kind == "queue")
        tasks = frozenset(name for kind, name in pauses if kind == "task")
        if tasks != self._paused_tasks:
            self._begins = Begins(self._env.boot_now)  # earlier claims have passed over their jobs
            self._paused_tasks = tasks

    def _left_out(self) -> list[str]:
        """The tasks of which this node claims no jobs."""
        return sorted({*self._not_tasks, *self._paused_tasks})

    async def settle(self) -> None:
        """If there is a doubt, give back the jobs that we do not know."""
        async with self._one:
            doubtful, self.in_doubt = self.in_doubt, None
            if doubtful is self._guard.membership:
                self.in_doubt = doubtful  # until it has been answered
                await self._give_back_unknown(doubtful)

    async def _ask(
        self,
        found: dict[LocalQueue, Found],
        limits: Mapping[LocalQueue, int],
        node: UUID,
        epoch: int,
        now: datetime | None,
    ) -> None:
        """Claim, and add to ``found`` after each statement."""
        not_tasks = self._left_out()
        by_rows = {queue.name: limit for queue, limit in limits.items() if queue.claim == "rows"}
        by_name: dict[str, list[ClaimedJob]] = {name: [] for name in by_rows}
        if by_rows:
            asked = (node, epoch, by_rows, not_tasks, now, self._begins)
            if self._refused_until <= self._env.boot_now() < self._apart_until:
                jobs = await self._claim_apart(*asked)
            else:
                jobs = await self._store.claim(*asked)
            for job in jobs:
                by_name[job.queue].append(job)
        for queue, limit in limits.items():
            if queue.claim == "rows":
                jobs = by_name[queue.name]
                found[queue] = Found(jobs, len(jobs) == limit)
        for queue, limit in limits.items():
            if queue.claim == "advisory":
                jobs, contended = await claim_by_advisory_locks(
                    self._store, node, epoch, queue.name, not_tasks, limit, now
                )
                found[queue] = Found(jobs, len(jobs) == limit or contended)

    async def _claim_apart(self, *asked: Any) -> list[ClaimedJob]:
        """Claim on the connection for claims that may take long, unless it cannot be opened."""
        try:
            return await self._claims.claim(*asked)
        except errors.Unavailable as error:
            if error.sent or isinstance(error, errors.Conflict):
                raise
        except errors.ServerError:
            pass
        self._refused_until = self._env.boot_now() + Tuning.apart_seconds
        return await self._store.claim(*asked)

    async def give_back(self, queue: LocalQueue) -> None:
        """Give back the jobs that wait for a slot, so that other nodes can run them."""
        async with self._one:
            membership = self._guard.membership
            claims = self._executor.take_waiting(queue)
            if not claims:
                return
            try:
                gone = await self._store.give_back(membership.identity.id, claims)
            except Exception:
                self.in_doubt = membership  # they may still be ours, and we no longer know them
                raise
            if gone < len(claims):  # the same for rows that were locked
                self.in_doubt = membership

    async def _give_back_unknown(self, membership: Membership) -> None:
        node, doubts = membership.identity.id, self._doubts
        epoch = await self._store.new_epoch(node, membership.token, membership.epoch + 1)
        count = 0
        if epoch is not None:  # else the node is dead, and its jobs are rescued
            membership.epoch = epoch
            known = self._executor.known_tokens()
            count = await self._store.give_back_unknown(node, epoch, known)
        if self._doubts == doubts:  # else the answer may predate a failover
            self.in_doubt = None
        self._emit("claim_unknown", given_back=count)


class Demand:
    """How many more jobs of one queue this node wants to hold."""

    def __init__(self, queue: LocalQueue, env: Env, limits: Limits) -> None:
        self.queue = queue
        self.more = True
        """The queue may have jobs that we have not seen. This may be set during a claim, which
        began before they were enqueued."""
        self.plenty = False
        """The last claim found as many jobs as it asked for."""
        self._env = env
        self._limits = limits
        self._claim_seconds = 0.0
        self._measured_at = env.boot_now()
        self._measured = 0
        self._rate = 0.0
        self._still = (0, env.boot_now())
        """The number of finished jobs, and since when none has finished or been claimed."""

    def room(self) -> int:
        """How many jobs are worth a claim: all that fit if a slot is idle or half of what this node
        holds is used up, else none."""
        queue, most = self.queue, Tuning.prefetch_batches * self._limits.batch_rows
        seconds = min(Tuning.prefetch_claims * self._claim_seconds, Tuning.prefetch_most_seconds)
        seconds = max(Tuning.prefetch_seconds, seconds)
        holds = queue.slots + min(most, int(self._rate * seconds))
        in_hand = queue.running + len(queue.waiting)
        room = holds - in_hand
        idle = in_hand < queue.slots
        return room if idle or room * 2 >= min(holds, self._limits.batch_rows) else 0

    def limit(self) -> int:
        """The limit of the next claim; 0 if none is worth it."""
        now = self._env.boot_now()
        elapsed = now - self._measured_at
        if elapsed >= 0.02:
            rate = (self.queue.finished - self._measured) / elapsed
            self._rate += (rate - self._rate) * min(1.0, elapsed * 5)
            self._measured, self._measured_at = self.queue.finished, now
        return min(self.room(), self._limits.batch_rows, self.queue.batch.now)

    def moves(self, claim_seconds: float) -> None:
        """Note that jobs were claimed."""
        self._claim_seconds = claim_seconds
        self._still = self.queue.finished, self._env.boot_now()

    def stands_still(self) -> bool:
        """Return whether no job has ended for a while, so that jobs claimed ahead only wait."""
        queue, now = self.queue, self._env.boot_now()
        ended, since = self._still
        if queue.finished != ended:
            self._still = queue.finished, now
            return False
        if now - since < Tuning.give_back_seconds:
            return False
        self._rate = 0.0
        return True


class Producer(Service):
    """Claims batches and hands them to the executor. Sleeps while every queue is empty or full."""

    name = "producer"

    def __init__(
        self,
        context: ServiceContext,
        executor: Executor,
        claimer: Claimer,
        acker: Acker,
        sleepers: Sleepers,
        listening: Callable[[], bool],
    ) -> None:
        super().__init__(context)
        queues = executor.queues.values()
        self._demands = deque(Demand(queue, self._env, self._limits) for queue in queues)
        self._by_queue = {demand.queue.name: demand for demand in self._demands}
        for demand in self._demands:
            demand.queue.on_room = partial(self._on_room, demand)
        self._executor = executor
        self._claimer = claimer
        self._acker = acker
        self._sleepers = sleepers
        self._listening = listening
        self._look_at = float("-inf")
        """When all queues are checked next."""
        self._gives_back = False

    def pauses_changed(self) -> None:
        """The paused queues or tasks have changed: give back what was claimed ahead."""
        self._gives_back = True
        self.look()

    def _open(self) -> list[Demand]:
        paused = self._claimer.paused
        return [demand for demand in self._demands if demand.queue.name not in paused]

    def look(self, queue: str = "") -> None:
        """Check this queue of ours, or all queues, now. Notifications call it."""
        if queue and queue not in self._by_queue:
            return
        for demand in [self._by_queue[queue]] if queue else self._demands:
            demand.more = True
        self.wake()

    def _on_room(self, demand: Demand) -> None:
        """Claim if that is worth it now. Asked after each job."""
        if self._executor.exclusive or self._claimer.halted:
            worth = bool(demand.queue.waiting)
        else:
            worth = demand.more and demand.room() > 0
        if worth:
            self.wake()

    async def tick(self, now: datetime | None) -> float:
        if self._claimer.in_doubt:  # even if there is no room for more
            await self._claimer.settle()
        if self._executor.exclusive or self._claimer.halted:
            self._executor.put_off_suspects()
            for demand in self._demands:
                await self._claimer.give_back(demand.queue)
                demand.more = True  # afterwards
            return 5.0  # woken when that ends
        for demand in self._demands:
            if self._gives_back or demand.queue.name in self._claimer.paused:
                await self._claimer.give_back(demand.queue)
        self._gives_back = False
        if self._acker.backlog > self._limits.unrecorded_outcomes:
            return self._limits.flush_seconds
        began = self._env.boot_now()
        if began >= self._look_at:
            polling = self._settings.polling
            poll = polling.listening if self._listening() else polling.blind
            self._look_at = began + self._env.jitter(in_seconds(poll), 0.2)
            for demand in self._demands:
                demand.more = True
        limits, full = self._wanted()
        if limits:
            pause = await self._claim(limits, now)
            if pause is not None:
                return pause
        pauses = [await self._full(demand) for demand in full]
        if any(demand.more for demand in self._open() if demand not in full):
            return 0.0
        return min([max(0.0, self._look_at - self._env.boot_now()), *pauses])

    def _wanted(self) -> tuple[dict[Demand, int], list[Demand]]:
        """Share one batch among the queues with room. Return their limits, and the queues without
        room. To find the first job of a queue costs more than each further one, so few queues with
        plenty share the batch, in turns. The others, which may be empty, ask for one job."""
        most = self._limits.batch_rows
        limits = {demand: demand.limit() for demand in self._open() if demand.more}
        full = [demand for demand, limit in limits.items() if not limit]
        asking = [demand for demand, limit in limits.items() if limit]
        busy = [demand for demand in asking if demand.plenty][: Tuning.busy_queues]
        others = [demand for demand in asking if not demand.plenty][: most - len(busy)]
        share = max(1, (most - len(others) if busy else most) // max(1, len(busy or others)))
        self._demands.rotate(-max(1, len(busy)))
        wanted = {demand: min(limits[demand], share) for demand in busy or others}
        return wanted | (dict.fromkeys(others, 1) if busy else {}), full

    async def _claim(self, limits: Mapping[Demand, int], now: datetime | None) -> float | None:
        """Claim. Return the seconds until the next tick, or None to decide by the other queues."""
        for demand in limits:
            demand.more = False
        began, recorded = self._env.boot_now(), False
        try:
            found = await self._claimer.claim({d.queue: limit for d, limit in limits.items()}, now)
            if found is None:
                return 1.0  # the node wakes it after joining
            took = self._env.boot_now() - began
            fell_asleep = await self._record_sleepers(limits, found, took)
            recorded = True
        finally:
            if not recorded:
                for demand in limits:
                    demand.more = True
        if fell_asleep:
            return 0.0
        contended = not any(jobs for jobs, _ in found.values())
        return Tuning.contended_seconds if contended and any(d.more for d in limits) else None

    async def _record_sleepers(
        self, limits: Mapping[Demand, int], found: Mapping[LocalQueue, Found], claim_seconds: float
    ) -> bool:
        """Record which queues are asleep, then check those once more, for jobs that came in
        between. A queue with plenty of work needs no notifications."""
        asleep, awake = set(), set()
        for demand, limit in limits.items():
            demand.moves(claim_seconds)
            demand.plenty = found[demand.queue].more
            if not demand.plenty:
                asleep.add(demand.queue.name)
                continue
            demand.more = True
            if limit >= 50:
                awake.add(demand.queue.name)
        new = asleep - self._sleepers.asleep
        await self._sleepers.set(asleep, awake)
        for queue in new:
            self._by_queue[queue].more = True
        return bool(new)

    async def _full(self, demand: Demand) -> float:
        """Wait for a job to end. If none does, give back the jobs that were claimed ahead."""
        queue = demand.queue
        if not queue.waiting or queue.running < queue.slots:  # else they are starting
            return 5.0
        if not demand.stands_still():
            return Tuning.give_back_seconds
        await self._claimer.give_back(queue)
        return 5.0


async def claim_by_advisory_locks(
    store: Store,
    node: UUID,
    epoch: int,
    queue: str,
    not_tasks: Sequence[str],
    limit: int,
    now: datetime | None,
) -> tuple[list[ClaimedJob], bool]:
    """Claim up to ``limit`` jobs: find candidates, try to lock each, and check it again. Return
    them, and whether there may be more. It stops after the first statement that claims a job,
    because an error in a later one would lose those claims."""
    asked = min(limit * Tuning.candidates_per_job, Limits.batch_rows)
    for number in range(Tuning.candidate_rounds):
        found = await store.candidates(queue, not_tasks, number * asked, asked)
        claimed = await store.claim_candidates(node, epoch, found, limit, now) if found else []
        if claimed:
            return claimed, len(found) == asked
        if len(found) < asked:
            return [], False
    return [], True
