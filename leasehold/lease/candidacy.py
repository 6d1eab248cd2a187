"""How a process comes to hold a leader or a lock of the user's: its one candidate for each name."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from leasehold import errors
from leasehold.config import LOCK_PREFIX, Timings, wait_seconds
from leasehold.env import Env
from leasehold.lease.bids import Bid, Patience
from leasehold.lease.loops import Loops
from leasehold.lease.membership import Election, Membership, acquiring
from leasehold.model.lease import Lease, Phase, Seen, Timeline
from leasehold.ports import Store
from leasehold.telemetry import Emit

_POLITE_SHARE = 0.5
"""Of R: a lock that is free so long is taken out of turn: who is first does not seem to come."""


@dataclass
class Contest:
    """One name: who holds it here, and who waits for it here."""

    election: Election
    waiting: deque[Bid] = field(default_factory=deque)
    holder: Bid | None = None
    own: Seen | None = None
    """The row, as we wrote it last."""
    look: bool = True
    """Look at the row before anything else."""
    first: bool = False
    """It is our turn."""
    bidding: bool = False
    """We have a place in the database's queue."""
    handovers: int = 0
    resigning: bool = False
    """Resign when the body has ended."""
    told: bool = False
    complained: bool = False
    watched_until: float = 0.0
    seen_at_first: Seen | None = None
    stir: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.election.name

    @property
    def lease(self) -> Lease:
        return self.election.lease

    @property
    def is_lock(self) -> bool:
        return self.name.startswith(LOCK_PREFIX)

    @property
    def occupied(self) -> bool:
        return self.holder is not None and self.holder.has_body


class Candidacy(ABC):
    """``make_store`` is called when the first bid comes."""

    def __init__(
        self,
        make_store: Callable[[], Store],
        membership: Callable[[], Membership],
        poke: Callable[[], None],
        env: Env,
        timings: Timings,
        emit: Emit,
        timeline: Timeline,
    ) -> None:
        self._make_store = make_store
        self._membership = membership
        self._poke = poke
        """Let the guard think anew about when it has to look."""
        self._env = env
        self._timings = timings
        self._emit = emit
        self._timeline = timeline
        self._all: dict[str, Contest] = {}
        self._store: Store | None = None
        self._closed: set[bool] = set()
        """Kinds that are taken no more: True locks, False leaders."""
        self._asked: frozenset[str] = frozenset()
        self._work: set[asyncio.Task[None]] = set()
        self._loops = Loops(env)
        self._stuck: frozenset[asyncio.AbstractEventLoop | None] = frozenset()
        """Whoever waits in one of these gets nothing before it runs again."""
        self._turn = asyncio.Semaphore(1)
        """One statement at a time: the timeout of each counts from when it is its turn."""

    def _lease_store(self) -> Store:
        if self._store is None:
            self._store = self._make_store()
        return self._store

    @property
    def _me(self) -> UUID:
        return self._membership().identity.id

    def _new_lease(self) -> Lease:
        return Lease(self._me, self._timings, timeline=self._timeline)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    @abstractmethod
    async def _resign(self, contest: Contest) -> None:
        """Give up in the database what is stepping down."""

    @abstractmethod
    async def _retire(self, contest: Contest) -> None:
        """The candidate has ended."""

    def _compete(self, contest: Contest) -> None:
        contest.stir.set()
        if contest.task is None and contest.waiting and contest.holder is None:
            contest.task = asyncio.ensure_future(self._candidate(contest))

    async def _candidate(self, contest: Contest) -> None:
        """The one candidate of this process: until it has won for whoever is first here, or
        nobody waits here any more."""
        try:
            while contest.waiting and contest.holder is None:
                contest.stir.clear()
                try:
                    pause = await self._try(contest)
                except errors.ServerError as error:
                    pause = await self._refused(contest, error)
                except errors.LeaseholdError as error:
                    contest.look = True
                    self._turn_away(contest, error)
                    pause = self._env.jitter(self._timings.renew / 5, 0.25)
                except Exception as error:  # a candidate that ends unseen would wait for ever
                    text = errors.told(error)
                    self._emit("service_failed", service="contests", error=text)
                    pause = self._env.jitter(self._timings.renew, 0.25)
                if contest.waiting and contest.holder is None and pause > 0:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await contest.stir.wait()
        finally:
            contest.task = None
        await self._retire(contest)

    async def _try(self, contest: Contest) -> float:
        """One attempt; the seconds until the next, if nothing stirs."""
        lease, now = contest.lease, self._env.boot_now()
        if lease.phase is not Phase.FOLLOWER or not self._membership().valid(now):
            return self._timings.renew
        if not self._someone_runs(contest):
            return self._timings.renew
        seen = lease.watch.seen
        out_of_turn = contest.is_lock and seen and seen.node is None and not contest.first
        if contest.look or seen is None or out_of_turn:
            await self._look(contest)
        now = self._env.boot_now()
        if lease.wants(now) is not None and contest.lease is lease:
            try:
                won = await self._acquire(contest)
            except errors.Unavailable as error:
                # a transaction holds its fence: others of this process have their turn meanwhile
                contest.look = True
                self._turn_away(contest, error)
                return self._env.jitter(self._timings.renew, 0.25)
            if won:
                return 0.0
            contest.look = True
            self._turn_away(contest)
            return 0.0
        self._turn_away(contest)
        return max(0.001, min(lease.may_act_at() - now, self._timings.renew))

    def _someone_runs(self, contest: Contest) -> bool:
        """Put first who can use it at all."""
        for _ in contest.waiting:
            if contest.waiting[0].loop not in self._stuck:
                return True
            contest.waiting.rotate(-1)
        return False

    async def _look(self, contest: Contest) -> None:
        store, me = self._lease_store(), self._me
        patient = any(bid.patience is Patience.WAIT for bid in contest.waiting)
        wait, seconds = patient and contest.is_lock, self._timings.call_timeout
        async with self._turn:
            found = await store.place_bid(contest.name, me, wait, seconds)
        if found is None:
            await self._remake(contest.name)
            async with self._turn:
                found = await store.place_bid(contest.name, me, wait, seconds)
        if found is None or me != self._me:
            return
        contest.look = False
        contest.bidding = contest.bidding or wait
        contest.first = found.first in (None, me)
        self._observe(contest, found.seen)

    def _observe(self, contest: Contest, seen: Seen) -> None:
        lease = contest.lease
        if contest.is_lock and seen.node is None:
            lease.jitter = 0.0 if contest.first else self._timings.renew * _POLITE_SHARE
        elif lease.watch.seen != seen:
            lease.jitter = self._timings.jitter * self._env.rng.random()
        lease.observe(seen, self._env.boot_now())
        if contest.seen_at_first is None:
            contest.seen_at_first = seen

    async def _acquire(self, contest: Contest) -> bool:
        lease, membership = contest.lease, self._membership()
        async with self._turn:
            now = self._env.boot_now()
            seen = lease.wants(now)
            if seen is None or not membership.valid(now):
                return False
            since = lease.watch.since
            with acquiring(lease):
                token = await self._lease_store().acquire(
                    contest.name,
                    membership.identity,
                    seen,
                    self._timings.lease,
                    min(self._timings.call_timeout, membership.lease.deadline - now),
                    self._env.due_now(),
                )
        if token is None:
            return False
        contest.bidding = False
        if contest.lease is not lease or not lease.acquired(token, now, self._env.boot_now()):
            return False
        contest.own = seen._replace(node=membership.identity.id, token=token, seq=seen.seq + 1)
        contest.told = contest.resigning = False
        if contest.waiting:
            contest.waiting[0].vacant_since = since
            contest.waiting[0].found_vacant = seen.node is None and seen == contest.seen_at_first
        self._grant(contest, token, membership)
        self._poke()
        return True

    def _grant(self, contest: Contest, token: int, membership: Membership) -> None:
        while contest.waiting:
            bid = contest.waiting.popleft()
            if bid.grant(token, contest.lease, membership):
                contest.holder = bid
                if not contest.is_lock:
                    self._emit("lease_acquired", name=contest.name, term=token)
                self._turn_away(contest)
                return
        contest.resigning = True  # also if the lease is looked at before that begins
        contest.lease.step_down("nobody waits for it any more")
        self._later(self._resign(contest))

    def _turn_away(self, contest: Contest, error: Exception | None = None) -> None:
        """Those who do not want to wait, as far as it is clear that they would have to."""
        seen, before = contest.lease.watch.seen, contest.seen_at_first
        alive = contest.holder is not None or (
            seen is not None and seen.node is not None and seen != before
        )
        for bid in [b for b in contest.waiting if b.patience is not Patience.WAIT]:
            if bid.patience is Patience.TRY or alive or error:
                contest.waiting.remove(bid)
                bid.refuse(error)
                # whoever died with it is seen as dead after W: stay, for the next who tries
                wait = wait_seconds(seen.lease_seconds if seen else self._timings.lease)
                contest.watched_until = self._env.boot_now() + 2 * wait

    async def _refused(self, contest: Contest, error: errors.ServerError) -> float:
        """What waiting does not mend is told to who waits."""
        contest.look = True
        if isinstance(error, errors.QueryFailed):
            # its fence may have been deleted by hand; what that does not mend, somebody has to
            if not await self._remake(contest.name) and not contest.complained:
                contest.complained = True
                self._emit("service_failed", service=contest.name, error=str(error))
            return self._env.jitter(self._timings.renew / 5, 0.25)
        for bid in contest.waiting:
            bid.refuse(error)
        contest.waiting.clear()
        return 0.0

    async def _remake(self, name: str) -> bool:
        with suppress(errors.Unavailable):
            async with self._turn:
                again = await self._lease_store().ensure_election(name, self._timings.lease)
            if again:
                self._emit("lease_remade", name=name)
            return again
        return True  # nobody knows
