"""Claims jobs that wait for limits, or for their tenant's share of a fair queue.

It asks only for slots that are idle, because a job that is claimed counts against its limits. All
other jobs are claimed by the producer, with other statements.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from itertools import takewhile

from leasework.jobs.acker import Acker
from leasework.jobs.executor import Executor, LocalQueue
from leasework.jobs.producer import Claimer
from leasework.jobs.running import Claim
from leasework.jobs.tasks import Registry
from leasework.loops.service import Service, ServiceContext

POLL_SECONDS = 0.4
"""How often it looks, if nothing wakes it: a job whose limits have room starts within a second."""
SYNC_SECONDS = 60.0
"""How often it restores definitions that somebody deleted."""
VISITS = 200
"""Lanes that one statement looks at."""
WALK_SHARE = 5
"""It rests this many times as long as a walk that found nothing took, at most a second."""
AHEAD_SECONDS = 0.05
"""How long before its start a job with a rate is claimed. The claim's own time would otherwise be
lost to the rate."""
_GOLDEN = 0.6180339887498949


class _Queue:
    """Where the claims of one queue stand."""

    def __init__(self, local: LocalQueue) -> None:
        self.local = local
        self.after = ""
        self.phase = 0.0
        self.plenty = False
        """The last claim found as many jobs as it asked for."""
        self.look_at = 0.0

    def idle(self) -> int:
        """How many jobs more could start at once."""
        waiting = sum(1 for _ in takewhile(_is_limited, self.local.waiting))
        return self.local.slots - self.local.running - waiting


def _is_limited(claim: Claim) -> bool:
    return claim.job.lane is not None


class LimitedClaimer(Service):
    """Claims for each queue in turn, while slots are idle."""

    name = "limits"

    def __init__(
        self,
        context: ServiceContext,
        executor: Executor,
        claimer: Claimer,
        acker: Acker,
        registry: Registry,
    ) -> None:
        super().__init__(context)
        self._executor = executor
        self._claimer = claimer
        self._registry = registry
        self._queues = {name: _Queue(queue) for name, queue in executor.queues.items()}
        self._sync_at = float("-inf")
        self._synced = False
        for queue in self._queues.values():
            queue.local.on_room = partial(self._on_room, queue, queue.local.on_room)
        acker.on_written = partial(self._on_written, acker.on_written)

    def look(self, queue: str) -> None:
        """Check this queue now. Notifications call it."""
        if queue in self._queues:
            self._queues[queue].look_at = 0.0
            self.wake()

    def _on_room(self, queue: _Queue, others: Callable[[], None]) -> None:
        """A slot is free."""
        others()
        if queue.plenty or queue.local.reserved:
            self.wake()

    def _on_written(self, others: Callable[[], None]) -> None:
        """Outcomes were recorded, so that limits may have room."""
        others()
        if any(queue.local.ended_lanes and queue.idle() > 0 for queue in self._queues.values()):
            self.wake()

    async def tick(self, now: datetime | None) -> float:
        began = self._env.boot_now()
        if began >= self._sync_at:
            await self._sync()
            self._sync_at = began + SYNC_SECONDS
        if self._claimer.in_doubt:  # the producer may sleep
            await self._claimer.settle()
        if self._executor.exclusive or self._claimer.halted or self._claimer.in_doubt:
            return POLL_SECONDS
        pauses = [await self._claim(of) for of in list(self._queues.values())]
        return max(0.0, min(pauses, default=POLL_SECONDS))

    async def _claim(self, of: _Queue) -> float:
        """Claim for one queue. Return the seconds until it should look again."""
        now = self._env.boot_now()
        if now < of.look_at and not of.plenty and not of.local.ended_lanes:
            return of.look_at - now
        if (idle := of.idle()) <= 0:
            # leave the next slots to limited jobs: half of them, or one to find out if any wait
            of.local.reserved = max(1, of.local.slots // 2) if of.plenty else 1
            return POLL_SECONDS  # woken when a slot is free
        passed, opens_in = 0, None
        while True:
            hints = None if of.plenty else list(dict.fromkeys(of.local.ended_lanes))
            of.local.ended_lanes.clear()
            wanted = min(idle, self._limits.batch_rows)
            found = await self._claimer.claim_limited(
                of.local, wanted, hints, of.after, VISITS, of.phase, AHEAD_SECONDS
            )
            if found is None:
                return POLL_SECONDS
            of.after, of.phase = found.after, (of.phase + _GOLDEN) % 1.0
            of.plenty = len(found.jobs) == wanted
            passed += found.passed
            opens_in = min(filter(None, (opens_in, found.opens_in)), default=None)
            idle = of.idle()
            # few slots choose few lanes, of which none may give a job: paused tasks, locked rows
            if found.jobs or idle <= 0 or (found.around and passed >= found.seen):
                break
        if not of.plenty:
            of.local.reserved = 0
        if found.jobs:
            return 0.0 if idle > 0 else POLL_SECONDS
        took = self._env.boot_now() - now
        pause = min(max(POLL_SECONDS, WALK_SHARE * took), 1.0)
        of.look_at = self._env.boot_now() + pause
        if opens_in is not None and opens_in < pause:
            of.look_at = self._env.boot_now() + max(0.002, opens_in)
        return of.look_at - self._env.boot_now()

    async def _sync(self) -> None:
        """Write the definitions of the code. A process that starts later wins."""
        limits = [
            {
                "name": limit.name,
                "concurrency": limit.concurrency,
                "rate": limit.rate and limit.rate.per_second,
                "burst": limit.rate and limit.rate.burst,
            }
            for limit in self._registry.limits.values()
        ]
        weights = [
            {"queue": queue, "tenant": tenant, "weight": weight}
            for queue, tenants in self._registry.weights.items()
            for tenant, weight in tenants.items()
        ]
        name, now = self._settings.name, self._env.due_now()
        await self._store.sync_limits(name, limits, weights, self._synced, now)
        self._synced = True
