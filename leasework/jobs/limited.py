"""Claims jobs that wait for limits, or for their tenant's share of a fair queue.

It asks only for slots that are idle, because a job that is claimed counts against its limits. All
other jobs are claimed by the producer, with other statements.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from itertools import takewhile

from leasework.jobs.acker import Acker, Pair
from leasework.jobs.executor import Executor, LocalQueue
from leasework.jobs.producer import Claimer
from leasework.jobs.tasks import Registry
from leasework.loops.service import Service, ServiceContext
from leasework.store.limits import Asked, Walk

POLL_SECONDS = 0.4
"""How often it walks over the lanes, if nothing wakes it: a job whose limits have room starts
within a second."""
SYNC_SECONDS = 60.0
"""How often it restores definitions that somebody deleted."""
VISITS = 200
"""Lanes that one statement looks at."""
FEW_VISITS = 20
"""The fewest lanes that it looks at, so that a few tenants are seen together, and that lanes which
share a key with those in which jobs have ended have their turns."""
WALK_SHARE = 10
"""It rests this many times as long as a walk took: full lanes cost time. While lanes in which jobs
have ended fill its claims, it rests on its way."""
MOST_REST_SECONDS = 0.6
"""The longest rest. With the walk itself, a job still starts within about a second."""
AHEAD_SECONDS = 0.05
"""How long before its start a job with a rate is claimed. The claim's own time would otherwise be
lost to the rate."""
MOST_CURSORS = 10_000
"""How many tenants' cursors a worker keeps for a queue."""
_GOLDEN = 0.6180339887498949


class LaneWalk:
    """Which lanes of a queue the next claim tries: the next ones of a walk over all lanes, and then
    those where jobs have just ended. A walk that is over begins again after a rest. While claims
    find plenty, it goes from tenant to tenant instead, each with a cursor of its own."""

    def __init__(self) -> None:
        self.after = ""
        self.phase = 0.0
        self.plenty = False
        """Claims find at least half of what they ask for in the lanes that they walk over."""
        self.cursors: dict[str, str] = {}
        """The last lane that was chosen of each tenant."""
        self._rest = 0
        """What is left of the share of the last tenant."""
        self.look_at = 0.0
        """When the walk goes on, or the next one begins."""
        self._took: float | None = None
        """How long the claims of this walk took. None: none is under way."""
        self._passed = 0
        """How many lanes the walk has passed."""
        self._rested_at = 0.0
        """When it may begin at the earliest."""
        self._asked_at = 0.0
        self._few_at = 0.0
        """When a claim for lanes in which jobs have ended looks at a few others again."""
        self.lanes = False
        """The last look over lanes saw some."""
        self.nudged = False
        """A job of another queue has ended, which may share a key with lanes of this one."""
        self._rested = 0.0
        """How long this walk has rested on its way, in seconds."""

    def look(self, now: float) -> None:
        """Begin to walk as soon as it has rested."""
        self.look_at = min(self.look_at, max(now, self._rested_at))

    def asks(self, wanted: int, ended: Iterable[str], now: float) -> Asked | None:
        """What the next claim asks for, or None if none is worth it. ``ended``: the lanes in which
        jobs have ended."""
        self._asked_at = now
        if self.plenty:  # most lanes have room
            visits = 0 if self._rest else min(max(wanted, FEW_VISITS), VISITS)
            wanted = min(wanted, self._rest or wanted)
            return Asked(wanted, None, self.after, visits, self.phase, self._next_cursors())
        hints, walks = list(dict.fromkeys(ended)), now >= self.look_at
        if not (walks or hints or self.nudged):
            return None
        if walks and self._took is None:
            self._took, self._passed, self._rested = 0.0, 0, 0.0
        few = FEW_VISITS if self.nudged or now >= self._few_at else 0
        return Asked(wanted, hints, self.after, VISITS if walks else few, self.phase, {})

    def answered(self, found: Walk, asked: Asked, now: float) -> None:
        """Note what a claim found."""
        wanted, visits, filled = asked.wanted, asked.visits, len(found.jobs) == asked.wanted
        if visits:
            self.phase = (self.phase + _GOLDEN) % 1.0
            self.lanes, self.nudged = found.seen > 0, False
        if visits or self.plenty:
            self.after = found.after
        if self.plenty:
            self.cursors |= found.cursors
            if len(self.cursors) > MOST_CURSORS:
                self.cursors = found.cursors
            self.plenty = 2 * len(found.jobs) >= wanted or self._rest > 0
            self._rest = (self._rest - wanted if self._rest else found.rest) if filled else 0
            if not self.plenty:
                self.look(now)
            return
        self.plenty = filled and visits > 0 and found.passed <= found.seen
        took = now - self._asked_at
        if visits:
            self._passed += min(found.passed, found.seen)
            self._few_at = now + took
            self._took = None if self._took is None else self._took + took
        if filled and not self.plenty and visits == VISITS:  # by lanes where jobs had ended
            pause = min(WALK_SHARE * took, MOST_REST_SECONDS - self._rested)
            self._rested += pause
            self.look_at = self._rested_at = now + pause
        # few slots choose few lanes, of which none may give a job: paused tasks, locked rows
        if self._took is not None and found.around and self._passed >= found.seen and visits:
            rest = min(WALK_SHARE * self._took, MOST_REST_SECONDS)
            self._took, self._rested_at = None, now + rest
            self.look_at = max(now + POLL_SECONDS, self._rested_at)
        if found.opens_in is not None:
            self.look_at = min(self.look_at, now + max(0.002, found.opens_in))

    def _next_cursors(self) -> dict[str, str]:
        """Those of the tenants that the next claim may visit."""
        if len(self.cursors) <= VISITS:
            return self.cursors
        lanes = sorted(self.cursors.values())  # by code points, as the index
        coming = lanes[bisect_left(lanes, self.after) :] + lanes
        return {lane.split("|")[0]: lane for lane in coming[: VISITS + 1]}


class _Queue:
    """Where the claims of one queue stand."""

    def __init__(self, local: LocalQueue) -> None:
        self.local = local
        self.walk = LaneWalk()

    def idle(self) -> int:
        """How many jobs more could start at once."""
        limited = takewhile(lambda claim: claim.job.lane is not None, self.local.waiting)
        return self.local.slots - self.local.running - sum(1 for _ in limited)


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
        if queue.walk.plenty or queue.local.reserved:
            self.wake()

    def _on_written(self, others: Callable[[Sequence[Pair]], None], batch: Sequence[Pair]) -> None:
        """Outcomes were recorded, so that limits may have room."""
        for claim, _ in batch:
            if claim.job.lane is not None and claim.job.queue in self._ended:
                self._ended[claim.job.queue].append(claim.job.lane)
                for name, queue in self._queues.items():  # they may share a key
                    queue.walk.nudged |= queue.walk.lanes and name != claim.job.queue
        others(batch)
        if any(
            (self._ended[name] or queue.walk.nudged) and queue.idle() > 0
            for name, queue in self._queues.items()
        ):
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
            local.reserved = max(1, local.slots // 2) if walk.plenty else 1
            return POLL_SECONDS  # woken when a slot is free
        if asked.hints is not None:
            self._ended[local.name].clear()
        found = None
        try:
            found = await self._claimer.claim_limited(local, asked, AHEAD_SECONDS)
        finally:
            if found is None or len(found.jobs) < asked.wanted:
                local.reserved = 0
                self._executor.pump(local)  # others may have waited for the slot
        if found is None:
            return POLL_SECONDS
        walk.answered(found, asked, self._env.boot_now())
        if found.jobs:  # the others come first now: they may share a key
            self._queues[local.name] = self._queues.pop(local.name)
        if found.jobs or walk.plenty:
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
