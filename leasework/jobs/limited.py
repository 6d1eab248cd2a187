"""Claims jobs that wait for limits, or for their tenant's share of a fair queue.

It asks only for slots that are idle, because a job that is claimed counts against its limits. All
other jobs are claimed by the producer, with other statements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from itertools import takewhile

from leasework.jobs.acker import Acker
from leasework.jobs.executor import Executor, LocalQueue
from leasework.jobs.producer import Claimer
from leasework.jobs.running import Claim
from leasework.jobs.tasks import Registry
from leasework.loops.service import Service, ServiceContext
from leasework.model.job import ClaimedJob
from leasework.store.limits import Walk

POLL_SECONDS = 0.4
"""How often it walks over the lanes, if nothing wakes it: a job whose limits have room starts
within a second."""
SYNC_SECONDS = 60.0
"""How often it restores definitions that somebody deleted."""
VISITS = 200
"""Lanes that one statement looks at."""
FEW_VISITS = 20
"""The fewest lanes that it looks at, so that a few tenants are seen together."""
WALK_SHARE = 10
"""It rests this many times as long as a walk took, at most a second: full lanes cost time."""
AHEAD_SECONDS = 0.05
"""How long before its start a job with a rate is claimed. The claim's own time would otherwise be
lost to the rate."""
_GOLDEN = 0.6180339887498949


class LaneWalk:
    """Which lanes of a queue the next claim tries: where jobs have just ended, and the next ones of
    a walk over all lanes. A walk that is over begins again after a rest."""

    def __init__(self) -> None:
        self.after = ""
        self.phase = 0.0
        self.plenty = False
        """The last claim found as many jobs as it asked for."""
        self.look_at = 0.0
        """When the walk goes on, or the next one begins."""
        self._rest = 0
        self._began: float | None = None
        self._passed = 0
        """How many lanes the walk has passed."""
        self._rested_at = 0.0
        """When it may begin at the earliest."""

    def look(self, now: float) -> None:
        """Begin to walk as soon as it has rested."""
        self.look_at = min(self.look_at, max(now, self._rested_at))

    def asks(
        self, wanted: int, ended: Iterable[str], now: float
    ) -> tuple[int, list[str] | None, str, int, float] | None:
        """The number of jobs, hints, cursor, number of visits and phase of the next claim. None:
        none is worth it. ``ended``: the lanes in which jobs have ended."""
        if self._rest:  # of the share of the last lane
            return min(wanted, self._rest), [self.after], self.after, 0, self.phase
        hints, walks = list(dict.fromkeys(ended)), now >= self.look_at
        if not (walks or self.plenty or hints):
            return None
        if walks and self._began is None:
            self._began, self._passed = now, 0
        if self.plenty:  # most lanes have room
            visits = min(max(wanted, FEW_VISITS), VISITS)
            return wanted, None, self.after, visits, self.phase
        return wanted, hints, self.after, VISITS if walks else 0, self.phase

    def answered(self, found: Walk, wanted: int, visits: int, now: float) -> None:
        """Note what a claim found."""
        if self._rest:
            self._rest = self._rest - len(found.jobs) if found.jobs else 0
            return
        self.plenty = len(found.jobs) == wanted and visits > 0
        if visits:
            self.after, self.phase = found.after, (self.phase + _GOLDEN) % 1.0
            self._passed += found.passed
            self._rest = found.rest if self.plenty else 0
        # few slots choose few lanes, of which none may give a job: paused tasks, locked rows
        if visits and found.around and self._passed >= found.seen:
            took = 0.0 if self._began is None else now - self._began
            self._began, self._rested_at = None, now + min(WALK_SHARE * took, 1.0)
            self.look_at = max(now + POLL_SECONDS, self._rested_at)
        if found.opens_in is not None:
            self.look_at = min(self.look_at, now + max(0.002, found.opens_in))

    @property
    def goes_on(self) -> bool:
        """Whether another claim is worth it at once."""
        return self.plenty or self._rest > 0


class _Queue:
    """Where the claims of one queue stand."""

    def __init__(self, local: LocalQueue) -> None:
        self.local = local
        self.walk = LaneWalk()

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
        acker.on_limited = self._on_limited
        self._ended = {name: deque[str](maxlen=VISITS) for name in self._queues}
        """Lanes in which jobs of this process have ended, by queue."""

    def look(self, queue: str) -> None:
        """Check this queue now. Notifications call it."""
        if queue in self._queues:
            self._queues[queue].walk.look(self._env.boot_now())
            self.wake()

    def _on_room(self, queue: _Queue, others: Callable[[], None]) -> None:
        """A slot is free."""
        others()
        if queue.walk.goes_on or queue.local.reserved:
            self.wake()

    def _on_limited(self, job: ClaimedJob) -> None:
        """The outcome of a job with limits was recorded, so that its limits may have room."""
        if job.queue in self._ended and job.lane is not None:
            self._ended[job.queue].append(job.lane)

    def _on_written(self, others: Callable[[], None]) -> None:
        """Outcomes were recorded, so that limits may have room."""
        others()
        if any(self._ended[name] and queue.idle() > 0 for name, queue in self._queues.items()):
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
        """Claim once for one queue. Return the seconds until it should look again."""
        walk, local, now = of.walk, of.local, self._env.boot_now()
        idle = of.idle()
        asked = walk.asks(min(idle, self._limits.batch_rows), self._ended[local.name], now)
        if asked is None:
            return max(0.0, walk.look_at - now)
        if idle <= 0:
            # leave the next slots to limited jobs: half, or one to find out if any wait
            local.reserved = max(1, local.slots // 2) if walk.goes_on else 1
            return POLL_SECONDS  # woken when a slot is free
        self._ended[local.name].clear()
        wanted, _, _, visits, _ = asked
        found = None
        try:
            found = await self._claimer.claim_limited(local, *asked, AHEAD_SECONDS)
        finally:
            if found is None or len(found.jobs) < wanted:
                local.reserved = 0
                self._executor.pump(local)  # others may have waited for the slot
        if found is None:
            return POLL_SECONDS
        walk.answered(found, wanted, visits, self._env.boot_now())
        if found.jobs or walk.goes_on:
            return 0.0
        return max(0.0, walk.look_at - self._env.boot_now())

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
        await self._store.sync_limits(
            name, limits, weights, sorted(self._registry.fair), self._synced, now
        )
        self._synced = True
