"""The leaders and locks that users' code asks for. All methods run in the guard's loop.

A process has one candidate for each name, and bids for the same name queue behind it. The guard's
heartbeat renews the leases. All other statements use a separate connection, because an acquisition
may wait for a transaction of the old holder, and the renewals must not wait with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from leasework import errors, own_tasks
from leasework.config import LOCK_PREFIX, wait_seconds
from leasework.env import Env
from leasework.lease.bids import Bid, Patience
from leasework.lease.named_lease import LeaseContext, NamedLease
from leasework.model.lease import Lease, Phase, Watch
from leasework.store.store import Store
from leasework.tuning import Tuning

_STOPPED = "the process is stopping"
_AWAY = "the database has not answered this process for too long"
_STUCK = "its event loop is stuck"


@dataclass
class Contest:
    """One name: the bid of this process that holds it, and the bids that wait for it."""

    named: NamedLease
    waiting: deque[Bid] = field(default_factory=deque)
    holder: Bid | None = None
    look: bool = True
    """Read the row before the next attempt."""
    bidding: bool = False
    """This process has a place in the database's queue."""
    handovers: int = 0
    """How often in a row the lease passed from one bid of this process to another."""
    resigning: bool = False
    """Resign as soon as the body has ended."""
    complained: bool = False
    watched_until: float = 0.0
    """The contest is kept until then, even if no bid waits."""
    stir: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends the candidate's pause."""
    task: asyncio.Task[None] | None = None
    """The candidate."""

    @property
    def lease(self) -> Lease:
        return self.named.lease

    @property
    def idle(self) -> bool:
        return not (self.waiting or self.holder or self.task)

    @property
    def occupied(self) -> bool:
        """A body runs under the term."""
        return self.holder is not None and self.holder.has_body

    @property
    def patient(self) -> bool:
        return any(bid.patience is Patience.WAIT for bid in self.waiting)


class Contests:
    """All contests, by name. ``make_store`` is called for the first statement. ``poke`` makes the
    guard calculate its next step again."""

    def __init__(
        self, make_store: Callable[[], Store], context: LeaseContext, poke: Callable[[], None]
    ) -> None:
        self._make_store = make_store
        self._context = context
        self._poke = poke
        self._env = context.env
        self._timings = context.timings
        self._emit = context.emit
        self._all: dict[str, Contest] = {}
        self._store: Store | None = None
        self._closed: set[bool] = set()
        """The kinds that this process no longer acquires: True for locks, False for leaders."""
        self._work: set[asyncio.Task[None]] = set()
        self._loops = UserLoops(self._env)
        self._stuck: frozenset[asyncio.AbstractEventLoop | None] = frozenset()
        """Bids of these loops get nothing until their loop runs again."""
        self._free_connection = asyncio.Semaphore(1)
        self._away_since = 0.0
        """Since when the node's lease is not valid; 0: it is."""

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def leases(self) -> list[NamedLease]:
        return [contest.named for contest in list(self._all.values())]

    def busy(self) -> bool:
        """Return whether a lease is held, wanted or watched. Any thread may call this."""
        return bool(self._all)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Store]:
        """Allow one statement at a time. Its time limit begins when its turn comes."""
        async with self._free_connection:
            if self._store is None:
                self._store = self._make_store()
            yield self._store

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def ask(self, bid: Bid) -> None:
        if bid.name.startswith(LOCK_PREFIX) in self._closed:
            bid.refuse(errors.Unavailable(_STOPPED))
            return
        contest = self._all.get(bid.name)
        if contest is None:
            named = NamedLease(bid.name, self._context, self._turn)
            contest = self._all[bid.name] = Contest(named)
        if bid.patience is not Patience.WAIT and contest.holder:
            bid.refuse()
            return
        contest.waiting.append(bid)
        contest.look = True
        self._compete(contest)

    def done(self, bid: Bid) -> None:
        """The user withdrew the bid, or the body under it has ended."""
        contest = self._all.get(bid.name)
        if contest and bid in contest.waiting:
            contest.waiting.remove(bid)
            contest.stir.set()
            bid.refuse()
            bid.end()
        elif contest and contest.holder is bid:
            self._later(self._release(contest, bid))
        else:
            bid.end()

    def free(self, name: str, token: int, seq: int) -> None:
        """Handle a notification: the lock is free, and this process is the first in its queue."""
        contest = self._all.get(name)
        if contest is None or not contest.waiting:
            if True not in self._closed:  # else our place is deleted with the node
                self._later(self._drop_bid(name))  # the others wait for us
            return
        contest.named.our_turn = True
        if known := contest.lease.watch.seen:
            seen = known._replace(node=None, token=token, seq=seq)
            contest.named.observe(seen, self._env.boot_now())
        contest.stir.set()

    def _compete(self, contest: Contest) -> None:
        contest.stir.set()
        if contest.task is None and contest.waiting and contest.holder is None:
            contest.task = asyncio.ensure_future(self._candidate(contest))

    async def _candidate(self, contest: Contest) -> None:
        """Try until the first bid of this process has the lease, or no bid waits."""
        try:
            while contest.waiting and contest.holder is None:
                contest.stir.clear()
                pause = await self._try(contest)
                if contest.waiting and contest.holder is None and pause > 0:
                    await own_tasks.within(pause, contest.stir.wait())
        finally:
            contest.task = None
        if contest.waiting or contest.holder:
            return
        if contest.bidding:
            contest.bidding = False
            await self._drop_bid(contest.named.name)
        self._compete(contest)
        self._forget_idle()

    async def _try(self, contest: Contest) -> float:
        """Make one attempt. Return the seconds until the next one. ``stir`` can end that pause."""
        try:
            return await self._attempt(contest)
        except (errors.Unavailable, errors.ReadOnlyServer) as error:  # a failover may be going on
            contest.look = True
            self._turn_away(contest, error)
            self._keep_watching(contest)
            # it may have waited for a transaction that holds the fence: let other names try
            pause = self._timings.renew if getattr(error, "sent", False) else self._timings.retry
            if isinstance(error, errors.Conflict):
                pause = min(self._timings.renew, Tuning.fence_pause_seconds)
        except errors.QueryFailed as error:  # an operator must fix it
            contest.look = True
            self._turn_away(contest, error)
            self._keep_watching(contest)
            if not contest.complained:
                contest.complained = True
                self._emit("service_failed", service=contest.named.name, error=str(error))
            pause = self._timings.retry
        except (errors.ServerError, errors.UsageError) as error:  # waiting does not help
            contest.look = True
            self._refuse_all(contest, error)
            return 0.0
        except Exception as error:  # the candidate must survive every error
            self._turn_away(contest, error)
            self._emit("service_failed", service="contests", error=errors.told(error))
            pause = self._timings.renew
        return self._env.jitter(pause, 0.25)

    def _keep_watching(self, contest: Contest) -> None:
        """A statement failed or got no answer: the row may name us, or come to, and must then be
        freed."""
        contest.watched_until = self._env.boot_now() + 2 * wait_seconds(self._timings.lease)

    async def _attempt(self, contest: Contest) -> float:
        named, lease = contest.named, contest.lease
        now = self._env.boot_now()
        if not self._context.membership().valid(now):
            self._away_since = self._away_since or now
            if now - self._away_since >= self._timings.call_timeout:
                self._turn_away(contest, errors.Unavailable(_AWAY))
            return self._timings.renew
        self._away_since = 0.0
        if lease.phase is not Phase.FOLLOWER:
            return self._timings.renew
        if not self._someone_runs(contest):
            return self._timings.renew
        seen = lease.watch.seen
        out_of_turn = named.is_lock and seen and seen.node is None and not named.our_turn
        if contest.look or seen is None or out_of_turn:
            await self._look(contest)
        now = self._env.boot_now()
        if lease.wants(now) is None or contest.lease is not lease:
            self._turn_away(contest)
            return max(0.001, min(lease.may_act_at() - now, self._timings.renew))
        if replaced := await named.acquire():
            self._grant(contest, replaced)
        else:
            contest.look = True
            self._turn_away(contest)
        return 0.0

    def _someone_runs(self, contest: Contest) -> bool:
        """Move a bid whose loop is not stuck to the front. Return False if there is none."""
        for _ in contest.waiting:
            if contest.waiting[0].loop not in self._stuck:
                return True
            contest.waiting.rotate(-1)
        return False

    async def _look(self, contest: Contest) -> None:
        """Read the row, and take a place in the lock's queue if a bid here waits."""
        named, lease = contest.named, contest.lease
        wait = named.is_lock and contest.patient
        for _ in range(2):
            async with self._turn() as store:
                limit = self._timings.call_timeout
                now = self._env.due_now()
                found = await store.place_bid(named.name, lease.me, wait, limit, now)
            if contest.lease is not lease:
                return  # the node was fenced meanwhile
            if found:
                contest.look = False
                contest.bidding = contest.bidding or wait
                named.our_turn = found.first in (None, lease.me)
                lease.timeline.settled = max(found.settled, lease.timeline.settled)
                named.observe(found.seen, self._env.boot_now())
                for bid in contest.waiting:
                    bid.first_seen = bid.first_seen or found.seen
                return
            await named.remake()

    def _grant(self, contest: Contest, replaced: Watch) -> None:
        """Give the acquired lease to the first bid in the queue."""
        contest.bidding = contest.resigning = False
        self._poke()
        lease, seen = contest.lease, replaced.seen
        while contest.waiting:
            bid = contest.waiting.popleft()
            bid.vacant_since = replaced.alive_at
            bid.found_vacant = seen is not None and seen.node is None and seen == bid.first_seen
            if bid.grant(lease.token or 0, lease, self._context.membership()):
                contest.holder = bid
                self._turn_away(contest)
                return
        contest.resigning = True  # even if the lease is checked before the task below begins
        lease.step_down("nobody waits for it any more")
        self._later(self._resign(contest))

    def _turn_away(self, contest: Contest, error: Exception | None = None) -> None:
        """Refuse bids that do not want to wait, once it is clear that they would have to."""
        seen = contest.lease.watch.seen
        for bid in [b for b in contest.waiting if b.patience is not Patience.WAIT]:
            renewed = seen is not None and seen.node is not None and seen != bid.first_seen
            alive = contest.holder is not None or (bid.first_seen is not None and renewed)
            if bid.patience is Patience.TRY or alive or error:
                contest.waiting.remove(bid)
                bid.refuse(error)
                # after W, a silent holder is known to be dead: keep watching for the next attempt
                wait = wait_seconds(seen.lease_seconds if seen else self._timings.lease)
                contest.watched_until = self._env.boot_now() + 2 * wait

    def _refuse_all(self, contest: Contest, error: Exception) -> None:
        for bid in contest.waiting:
            bid.refuse(error)
        contest.waiting.clear()

    async def _drop_bid(self, name: str) -> None:
        # if this fails, the place goes with the next notification or with the node
        with suppress(errors.LeaseworkError):
            async with self._turn() as store:
                contest = self._all.get(name)
                if not (contest and contest.waiting):
                    await store.drop_bid(name, self._context.membership().identity.id)

    def _forget_idle(self) -> None:
        """Forget names without bids. Keep names that were tried recently, and names whose holder is
        known to be dead, so that the next attempt gets them at once."""
        now = self._env.boot_now()
        for name, contest in list(self._all.items()):
            lease = contest.lease
            if not contest.idle:
                continue
            if lease.phase is not Phase.FOLLOWER or now < contest.watched_until:
                continue
            seen = lease.watch.seen
            if seen is None or seen.node is None or lease.wants(now) is None:
                del self._all[name]

    def remake(self, named: NamedLease) -> None:
        """Create the rows of a lease that has none."""
        self._later(self._remake(named))

    async def _remake(self, named: NamedLease) -> None:
        with suppress(errors.LeaseworkError):  # tried again after the next heartbeat
            await named.remake()

    def observed(self) -> None:
        """Continue with the leases as the heartbeat showed them."""
        if self._context.membership().lease.valid(self._env.boot_now()):
            self._away_since = 0.0
        for contest in self._all.values():
            contest.stir.set()
            if contest.named.is_lock and contest.idle and contest.named.names_us():
                self._later(contest.named.give_back())
        self._forget_idle()

    def watch_loops(self) -> None:
        """If a leader's event loop is stuck, let another process lead. As after every loss, the
        leader's code may run until the end of the lease. Locks are kept, because the code that
        blocks the loop may need them."""
        leaders = [contest for contest in self._all.values() if not contest.named.is_lock]
        bids = [bid for c in leaders for bid in (c.holder, *c.waiting) if bid]
        self._loops.ask(bid.loop for bid in bids)
        longest = self._timings.stuck
        self._stuck = frozenset(b.loop for b in bids if self._loops.lag(b.loop) > longest)
        for contest in leaders:
            holder, lease = contest.holder, contest.lease
            if holder and holder.loop in self._stuck and lease.phase is Phase.HOLDER:
                lease.step_down(_STUCK)
                self._tell(contest)
                contest.resigning = True
        self.settle()

    def settle(self) -> None:
        """Report lost and expired leases. Follow again when nothing runs under them."""
        now = self._env.boot_now()
        for contest in self._all.values():
            lease = contest.lease
            lease.expire(now)
            if lease.phase is not Phase.STEPPING_DOWN:
                continue
            self._tell(contest)
            if contest.occupied:
                if not lease.overdue(now):
                    continue
                self._report_overlap(contest)
            contest.holder = None
            if contest.resigning and now < lease.deadline:
                self._later(self._resign(contest))
            else:
                lease.stopped()
                self._compete(contest)

    def _tell(self, contest: Contest) -> None:
        if not contest.resigning:
            contest.named.report_lost()
        if contest.holder:
            contest.holder.lost.set(contest.lease.why_down)

    def _report_overlap(self, contest: Contest) -> None:
        self._emit("lease_overlaps", name=contest.named.name, term=contest.lease.token)

    def quiet(self) -> bool:
        """Return whether nothing runs under the terms of the lost identity any more."""
        return not any(contest.occupied for contest in self._all.values())

    def all_resigned(self) -> bool:
        return all(contest.lease.phase is Phase.FOLLOWER for contest in self._all.values())

    def start_anew(self) -> None:
        """Follow under a new identity, which holds nothing."""
        for contest in self._all.values():
            if contest.occupied:
                self._report_overlap(contest)
            contest.named.start_anew()
            contest.holder = None
            contest.bidding = False
            contest.look = True
            self._compete(contest)

    async def _release(self, contest: Contest, bid: Bid) -> None:
        """After the body has ended, pass the lease on, resign, or follow again after a loss."""
        lease, now = contest.lease, self._env.boot_now()
        contest.holder = None
        if not lease.valid(now) or lease.token != bid.token:
            self.settle()
        elif contest.named.is_lock and contest.patient and contest.handovers < Tuning.handovers:
            # the candidate acquires our own row again, to get a new token for the next bid
            contest.handovers += 1
            lease.step_down("released")
            lease.stopped()
            lease.watch.since = lease.watch.alive_at = now
            contest.look = False
            self._compete(contest)
        else:
            lease.step_down("released")
            await self._resign(contest)
        bid.end()

    async def _resign(self, contest: Contest) -> None:
        """Resign a lease that is stepping down and under which nothing runs."""
        if contest.lease.phase is not Phase.STEPPING_DOWN:
            return  # done already
        contest.handovers = 0
        contest.look, contest.named.our_turn, contest.resigning = True, False, False
        if not await contest.named.resign():
            self._keep_watching(contest)
        self._compete(contest)
        self._forget_idle()

    def step_down(self, why: str, *, locks: bool) -> None:
        """Resign all leaders, or all locks, as soon as their bodies have ended. Acquire no more."""
        self._closed.add(locks)
        for contest in list(self._all.values()):
            if contest.named.is_lock is not locks:
                continue
            self._refuse_all(contest, errors.Unavailable(_STOPPED))
            contest.stir.set()
            if contest.lease.phase is Phase.HOLDER:
                contest.resigning = True
                contest.lease.step_down(why)
        self.settle()

    async def close(self) -> None:
        """Give bodies the grace to end. If one does not end in time, its lease expires."""
        self.step_down("stopped", locks=False)
        self.step_down("stopped", locks=True)
        give_up_at = self._env.boot_now() + self._timings.grace
        while self._env.boot_now() < give_up_at and (self._work or not self.quiet()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for task in [c.task for c in self._all.values() if c.task]:
            task.cancel()
        while self._work:
            await asyncio.wait(self._work)  # gather() of finished tasks never yields
        for contest in self._all.values():
            if contest.holder:
                contest.holder.lost.set("stopped")
        if self._store:
            await self._store.close()


class UserLoops:
    """The loops in which users' leaders run. Their threads only send the answers."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._asked_at: dict[asyncio.AbstractEventLoop, float] = {}
        self._answered: set[asyncio.AbstractEventLoop] = set()

    def ask(self, loops: Iterable[asyncio.AbstractEventLoop | None]) -> None:
        """Ask each of these loops that has answered before, and forget all others. None stands
        for no loop."""
        now, wanted = self._env.boot_now(), {loop for loop in loops if loop is not None}
        for loop in self._asked_at.keys() - wanted:
            del self._asked_at[loop]
        self._answered &= wanted
        for loop in wanted:
            if loop in self._asked_at and loop not in self._answered:
                continue
            self._answered.discard(loop)
            self._asked_at[loop] = now
            try:
                loop.call_soon_threadsafe(self._answered.add, loop)
            except RuntimeError:  # closed
                self._asked_at[loop] = float("-inf")

    def lag(self, loop: asyncio.AbstractEventLoop | None) -> float:
        """Return for how many seconds a loop has not answered. 0: it has. inf: it is closed."""
        if loop is None or loop in self._answered or loop not in self._asked_at:
            return 0.0
        return self._env.boot_now() - self._asked_at[loop]
