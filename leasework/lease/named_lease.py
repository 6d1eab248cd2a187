"""One leader or one lock, as this process sees it, and each step of holding it. The state machine
in model/lease.py decides what may happen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from copy import copy

from msgspec import Struct

from leasework import errors
from leasework.config import LOCK_PREFIX, Timings
from leasework.env import Env
from leasework.lease import messages
from leasework.lease.host import Host
from leasework.lease.membership import Membership
from leasework.model.lease import Lease, Phase, Seen, Timeline, Watch
from leasework.store.operation import Term
from leasework.store.store import Store
from leasework.telemetry import Emit

Turn = Callable[[], AbstractAsyncContextManager[Store]]
"""Yields the store for one statement, when its turn comes."""


class LeaseContext(Struct, frozen=True):
    """What all leases of a guard share."""

    env: Env
    timings: Timings
    emit: Emit
    membership: Callable[[], Membership]
    """Returns the present membership. A fenced node gets a new one."""
    timeline: Timeline


class NamedLease:
    """Methods run in the guard's loop, except those that only read the state machine."""

    def __init__(self, name: str, context: LeaseContext, turn: Turn) -> None:
        self.name = name
        self.is_lock = name.startswith(LOCK_PREFIX)
        self.our_turn = False
        """This process is the first in the lock's queue."""
        self._context = context
        self._turn = turn
        self._reported_term: int | None = None
        """The last term whose loss was reported."""
        self._watch = Watch()
        """It outlives a fenced identity: while nobody is heard of, nobody may have led."""
        self.start_anew()

    def start_anew(self) -> None:
        """Follow under the node's present identity, which holds nothing."""
        context = self._context
        me = context.membership().identity.id
        self._watch.forget()
        self.lease = Lease(me, context.timings, watch=self._watch, timeline=context.timeline)
        self.our_turn = False

    def term(self, now: float) -> Term | None:
        """Return the term if it is valid at this moment. Any thread may call this."""
        token = self.lease.token if self.lease.valid(now) else None
        return Term(self.name, token) if token else None

    def next_moment(self) -> float:
        """When the lease or the grace ends, by the boot clock."""
        spare = {Phase.HOLDER: 0.0, Phase.STEPPING_DOWN: self._context.timings.grace}
        return self.lease.deadline + spare.get(self.lease.phase, float("inf"))

    def observe(self, seen: Seen, received_at: float, *, renewed: bool = False) -> None:
        """Record the row that an answer showed. ``renewed``: the same statement then renewed it."""
        lease, timings = self.lease, self._context.timings
        if lease.phase is Phase.HOLDER and seen.token < (lease.token or 0):
            return  # the statement ran before our acquisition
        if renewed:
            seen = seen._replace(seq=seen.seq + 1)
        if self.is_lock and seen.node is None:
            lease.jitter = 0.0 if self.our_turn else timings.courtesy
        elif lease.watch.seen != seen:
            lease.jitter = timings.jitter * self._context.env.rng.random()
        lease.observe(seen, received_at)

    def answered(self, term: Term, renewed: bool, sent_at: float, received_at: float) -> None:
        """Record whether a heartbeat renewed the term."""
        if renewed:
            self.lease.renewed(term.token, sent_at, received_at)
        else:
            self.lease.refused(term.token, received_at)

    async def acquire(self) -> Watch | None:
        """Acquire the lease if it is free. Return the watch of the row that this replaced, or None
        if this process did not get the lease. Without an answer, for example while a duty's
        transaction holds the fence, the last observation of the row stays, so that the next attempt
        need not wait for a whole lease."""
        context, lease, membership = self._context, self.lease, self._context.membership()
        env, timings = context.env, context.timings
        try:
            async with self._turn() as store:
                sent_at = env.boot_now()
                seen, replaced = lease.wants(sent_at), copy(lease.watch)
                if seen is None or not membership.valid(sent_at):
                    return None
                limit = min(timings.call_timeout, membership.lease.deadline - sent_at)
                token = await store.acquire(
                    self.name, membership.identity, seen, timings.lease, limit, env.due_now()
                )
        except errors.Unavailable:
            raise
        except BaseException:
            lease.watch.forget()
            raise
        lease.watch.forget()
        if token is None or lease is not self.lease:  # the row has changed, or we were fenced
            return None
        if not lease.acquired(token, sent_at, env.boot_now()):
            return None  # the answer came too late
        own = seen._replace(node=lease.me, token=token, seq=seen.seq + 1)
        lease.observe(own, env.boot_now())
        if not self.is_lock:
            context.emit("lease_acquired", name=self.name, term=token)
        return replaced

    async def remake(self) -> bool:
        """Create missing rows. Return True if they had existed before, so that somebody deleted
        them."""
        async with self._turn() as store:
            deleted = await store.ensure_election(self.name, self._context.timings.lease)
        if deleted:
            self._context.emit("lease_remade", name=self.name)
        return deleted

    def names_us(self) -> bool:
        """Return whether the row names this process, which does not believe that it holds it: an
        answer was lost, or nobody wanted the lease that one bid should have passed to the next."""
        seen = self.lease.watch.seen
        return (
            self.lease.phase is Phase.FOLLOWER and seen is not None and seen.node == self.lease.me
        )

    async def give_back(self) -> None:
        """Free a row that names us. If it changes meanwhile, nothing happens."""
        if self.names_us() and (seen := self.lease.watch.seen) is not None:
            await self._free(seen.token)  # tried again after the next heartbeat

    def report_lost(self) -> None:
        """Report the loss once for each term."""
        term, why = self.lease.token, self.lease.why_down
        if self._reported_term == term:
            return
        self._reported_term = term
        if self.is_lock:
            self._context.emit("lock_lost", name=self.name, scope="lease", why=why, term=term)
        else:
            self._report_end("lease_lost")

    def _report_end(self, kind: str) -> None:
        lease, emit = self.lease, self._context.emit
        seconds = lease.believed_seconds(self._context.env.boot_now())
        emit(kind, name=self.name, term=lease.token, why=lease.why_down, seconds=seconds)

    async def resign(self) -> bool:
        """Give up in the database a lease that is stepping down and under which nothing runs.
        Return False if no answer came, so that the row may still name us."""
        lease, token = self.lease, self.lease.token or 0
        if not self.is_lock:
            self._report_end("lease_resigned")
        lease.stopped()
        lease.watch.forget()
        return await self._free(token)

    async def _free(self, token: int) -> bool:
        """Free the row if it has that token and names us. Return False if no answer came."""
        env, limit = self._context.env, self._context.timings.call_timeout
        with suppress(errors.LeaseworkError):
            async with self._turn() as store:
                term = Term(self.name, token)
                await store.resign(term, self.lease.me, limit, env.due_now())
            return True
        return False


class Election:
    """The election of the application's own leader. This process is always a candidate: the guard's
    heartbeat reads the row, and the guard's next step makes the attempt. The duties are single
    fenced statements, so the process may follow again as soon as it has lost. ``stands`` returns
    whether this process may become the leader at this moment."""

    def __init__(
        self, name: str, context: LeaseContext, turn: Turn, host: Host, stands: Callable[[], bool]
    ) -> None:
        self.named = NamedLease(name, context, turn)
        self._context = context
        self._host = host
        self._stands = stands
        self._not_before = 0.0
        """No attempt before then, because the last one got no answer, or the fence was held."""

    def start_anew(self) -> None:
        self.named.start_anew()
        self._not_before = 0.0

    def next_attempt(self) -> float:
        """When to try next, by the boot clock. inf: never."""
        wanted_at = max(self.named.lease.may_act_at(), self._not_before)
        return wanted_at if self._stands() else float("inf")

    async def seek(self) -> bool:
        """Acquire the leadership if it is free. Return whether this process tried."""
        named, now = self.named, self._context.env.boot_now()
        seen = named.lease.wants(now)
        if seen is None or not self._stands() or now < self._not_before:
            return False
        if seen.node != named.lease.me:  # if the row names us, one attempt is enough
            self._not_before = now + 2 * self._context.timings.renew
        try:
            won = await named.acquire()
        except errors.Unavailable as error:  # no renewal, and nothing else waits for it
            if isinstance(error, errors.Conflict):
                self._not_before = self._context.env.boot_now() + self._context.timings.renew
            self._context.emit("renew_failed", error=str(error))
            return True
        self._not_before = 0.0
        if won:
            self._host.send(messages.Note.LEADS)
            if not self._stands():  # we were stopped meanwhile
                await self.resign("stopped")
        return True

    def settle(self) -> None:
        """Report a lost or expired leadership, and follow again."""
        lease = self.named.lease
        lease.expire(self._context.env.boot_now())
        if lease.phase is Phase.STEPPING_DOWN:
            self.named.report_lost()
            lease.stopped()
            self._host.send(messages.Note.LEADS_NOT)

    async def resign(self, why: str) -> None:
        if self.named.lease.phase is Phase.HOLDER:
            self.named.lease.step_down(why)
            self._host.send(messages.Note.LEADS_NOT)
            await self.named.resign()
