"""The guard renews the leases of the node, watches other nodes, and fences its own node.

It has its own thread, event loop and connection, so that a handler that blocks the user's loop or
uses much CPU in Python cannot stop it. The state machine in model/lease.py makes the decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any
from uuid import UUID

from leasework import errors
from leasework.config import Timings
from leasework.env import Env
from leasework.lease import messages
from leasework.lease.bids import Bid
from leasework.lease.contests import Contests
from leasework.lease.host import Host
from leasework.lease.membership import Membership, Others
from leasework.lease.named_lease import Election, LeaseContext, NamedLease
from leasework.loops.service import Wakeup
from leasework.model.lease import Lease, Phase, Timeline
from leasework.store.nodes import Heartbeat, NodeSeen, Signal
from leasework.store.operation import Term
from leasework.store.store import Store
from leasework.telemetry import Emit, Repeats
from leasework.tuning import Tuning


class Guard:
    """The heartbeat of a process. ``run`` lasts until ``stop``. ``poke`` starts a heartbeat now."""

    def __init__(
        self,
        make_store: Callable[[str], Store],
        env: Env,
        timings: Timings,
        emit: Emit,
        host: Host,
    ) -> None:
        self._make_store = make_store
        """Called in the guard's own loop, which owns the connections, with the store's role:
        ``guard`` for the heartbeat, ``lease`` for users' leaders and locks."""
        self._env = env
        self._timings = timings
        self.emit = emit
        self._host = host
        self._others = Others()
        self._repeats = Repeats(env.boot_now)
        self._heard: tuple[Signal, ...] = ()
        self._halted = False
        self._paused: frozenset[tuple[str, str]] = frozenset()
        self._ended: list[UUID] = []
        self._poked = False
        self._wakeup = Wakeup()
        """Wakes ``run``: after a ``poke``, or for a new deadline."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._standing = True
        self._was_silent: frozenset[UUID] = frozenset()
        self._stuck_seconds = 0.0
        """How long the loop that runs the duties has been stuck. 0: it runs."""
        self._next_heartbeat = 0.0
        self._timeline = Timeline()
        self._clock = ClockWatch()
        self._unanswered, self._unanswered_since = 0, 0.0
        """The number of renewals in a row without an answer, and when they began."""
        self._unanswered_reported = 0
        """How many renewals without an answer the node's row counts."""
        self.membership = self._new_membership()
        self._context = LeaseContext(env, timings, emit, lambda: self.membership, self._timeline)
        self._election: Election | None = None
        if app := self.membership.identity.app:
            self._election = Election(
                app, self._context, lambda: nullcontext(self._store), host, self._stands
            )
        self.contests = Contests(partial(make_store, "lease"), self._context, self._wakeup.set)

    def _new_membership(self) -> Membership:
        identity = self._host.new_identity()
        return Membership(identity, Lease(identity.id, self._timings))

    def _leases(self) -> list[NamedLease]:
        """The application's leader, and the leases that users hold or want."""
        own = [self._election.named] if self._election else []
        return [*own, *self.contests.leases()]

    def term(self) -> Term | None:
        """Return the term of the application's leader if this process leads at this moment."""
        now, election = self._env.boot_now(), self._election
        return election.named.term(now) if election and self.membership.valid(now) else None

    def leads(self) -> bool:
        """Return whether this process leads. Each duty checks this before it begins."""
        return self.term() is not None

    def _led(self) -> dict[str, int]:
        """The name and term of each leader that this process believes it is, for operators. Locks
        are left out, because there may be many."""
        leaders = [each for each in self._leases() if not each.is_lock]
        return {e.name: e.lease.token or 0 for e in leaders if e.lease.phase is Phase.HOLDER}

    def silent_nodes(self) -> list[NodeSeen]:
        """The nodes that this process has seen silent for their whole lease."""
        return self._others.silent(self._env.boot_now())

    def newest_release(self) -> int:
        """The number of our application's newest release on other nodes. 0: there are none."""
        app = self.membership.identity.app
        nodes = [node for node, _ in self._others.watches.values()]
        return max((node.release_number for node in nodes if node.app == app), default=0)

    def poke(self) -> None:
        """Query the database now. Any thread may call this."""
        with suppress(errors.Unavailable):  # not yet running, or ended
            self._call(self._on_poke)

    def _on_poke(self) -> None:
        self._poked = True
        self._wakeup.set()

    def ask(self, bid: Bid) -> None:
        """Bid for a user's leader or lock. Any thread may call this."""
        self._call(self.contests.ask, bid)

    def done(self, bid: Bid) -> None:
        """Withdraw a bid, or end its term. Any thread may call this."""
        self._call(self.contests.done, bid)

    def lock_is_free(self, subject: str) -> None:
        """Handle a notification ``node token seq name``. Any thread may call this."""
        node, token, seq, name = subject.split(" ", 3)
        if node == str(self.membership.identity.id):
            self._call(self.contests.free, name, int(token), int(seq))

    def _call(self, call: Callable[..., None], *arguments: Any) -> None:
        if self._loop:
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(call, *arguments)
                return
        raise errors.Unavailable(
            "this process does not take part any more",
            do="Start a node again, or restart the process",
        )

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The guard's own event loop, once it runs."""
        assert self._loop
        return self._loop

    async def run(self) -> None:
        self._store = self._make_store("guard")
        self._loop = asyncio.get_running_loop()
        while not self._stopping:
            poked, self._poked = self._poked, False
            self._wakeup.clear()
            pause = await self.step(poked)
            await self._wakeup.wait(max(pause, 0.001))
        await self.leave()
        await self._store.close()

    async def step(self, poked: bool = False) -> float:
        """Do everything that is due. Return the seconds until the next step."""
        try:
            self._expire()
            lease = self.membership.lease
            if lease.phase is Phase.STEPPING_DOWN:
                return self._wait_for_quiet()
            if lease.phase is Phase.FOLLOWER:
                await self._try_to_join()
                if self.membership.lease.phase is Phase.FOLLOWER:
                    return self._retry_pause()  # too late: no row to renew
            if gone := self._host.loop_gone():
                until = self._env.boot_now() + self._timings.call_timeout
                await self._host.look_after_jobs(self._store, until)
                self.membership.lease.step_down(f"its event loop is {gone}")
                self._fence()
                return 0.0
            if poked or self._env.boot_now() >= self._next_heartbeat:
                await self._heartbeat()
            self._note_silence()
            if self._election and await self._election.seek():  # read the result soon
                soon = self._env.boot_now() + self._timings.renew
                self._next_heartbeat = min(self._next_heartbeat, soon)
            # many jobs, or a slow link, must not delay the next heartbeat
            await self._host.look_after_jobs(self._store, self._env.boot_now() + self._pause())
        except errors.Unavailable as error:
            self._no_answer(error)
            return self._troubled()
        except Exception as error:
            self._surprised(error)
            return self._troubled()
        return self._pause()

    def _no_answer(self, error: errors.Unavailable) -> None:
        """Report an outage at growing intervals, because it may last for hours."""
        self._unanswered += 1
        if self._unanswered == 1:
            self._unanswered_since = self._env.boot_now()
        if self._unanswered.bit_count() == 1:
            self.emit("renew_failed", error=str(error), times=self._unanswered)

    def _answered(self) -> None:
        if self._unanswered:
            seconds = self._env.boot_now() - self._unanswered_since
            self.emit("renew_works", times=self._unanswered, seconds=round(seconds, 1))
        self._unanswered = 0

    def _surprised(self, error: Exception) -> None:
        """Report an unexpected error. The guard must survive every error."""
        text = errors.told(error)
        if self._repeats.due(text):
            self.emit("service_failed", service="guard", error=text)

    def _troubled(self) -> float:
        """After a failed step, end the leases that have expired meanwhile."""
        try:
            self._expire()
        except Exception as error:
            self._surprised(error)
        self._next_heartbeat = 0.0
        return self._retry_pause()

    def _retry_pause(self) -> float:
        """The seconds until the next attempt, at most until the deadline: the node must fence
        itself in time."""
        pause = self._env.jitter(self._timings.retry, 0.25)
        lease = self.membership.lease
        left = lease.deadline - self._env.boot_now()
        return max(0.0, min(pause, left)) if lease.phase is Phase.HOLDER else pause

    def _pause(self) -> float:
        now = self._env.boot_now()
        moments = [self._next_heartbeat, self.membership.lease.deadline]
        moments += [each.next_moment() for each in self._leases()]
        if self._election:
            moments.append(self._election.next_attempt())
        silent_soon = [w.silent_at() for _, w in self._others.watches.values()]
        moments += [at for at in silent_soon if at > now]
        return max(0.0, min(moments) - now)

    async def _try_to_join(self) -> None:
        try:
            await self._bury_own()
            gone = self._host.loop_gone()
            self._stopping |= gone == "closed"
            if not gone:  # a stopped loop may run again
                await self._join()
        except errors.ServerError as error:
            self._host.send(messages.Refused(error))  # at the start, the process ends
            raise

    async def _join(self) -> None:
        """Register under the present identity."""
        me = self.membership
        sent_at = self._env.boot_now()
        try:
            token = await self._store.register(
                me.identity, self._timings.lease, self._env.due_now()
            )
        except errors.LeaseworkError as error:
            if not isinstance(error, errors.Unavailable) or error.sent:
                self._rejoin()  # a row with this id may exist: take another id
            raise
        if not me.lease.acquired(token, sent_at, self._env.boot_now()):
            self._rejoin()  # the answer came too late, and a row with this id exists
            return
        self._next_heartbeat = 0.0
        self._host.send(messages.Joined(me.identity))

    async def _bury_own(self) -> None:
        """Certify the death of this process's earlier identities under which nothing runs. This
        frees their jobs and leaderships before their leases expire. Their outcomes are recorded
        first, if the database answers in time."""
        if self._ended:
            await self._store.database_now(self._env.due_now())  # raises while it is away
            self._host.send(messages.Note.ANSWERS)
        give_up_at = self._env.boot_now() + self._timings.call_timeout
        # another thread owns the counter, so there is no event to wait for
        while self._ended and self._host.unrecorded():
            if self._env.boot_now() >= give_up_at:
                break
            await asyncio.sleep(0.02)
        while self._ended:
            await self._store.certify(self._ended[0], self._timings.call_timeout)
            self._ended.pop(0)

    async def _heartbeat(self) -> None:
        me = self.membership
        now = self._env.boot_now()
        asked = self._leases()
        held = [(each, term) for each in asked if (term := each.term(now))]
        timeout = min(self._timings.call_timeout, max(me.lease.deadline - now, 0.05))
        failed = self._unanswered_reported + self._unanswered
        lag = self._host.loop_lag()
        answer = await self._store.heartbeat(
            me.identity.id,
            me.token,
            [term for _, term in held],
            [each.name for each in asked],
            {**self._host.info(), "leads": self._led(), "renew_failed": failed},
            self._heard,
            timeout,
            self._env.due_now(),
            self._timeline.settles(now),
        )
        received_at = self._env.boot_now()
        self._next_heartbeat = now + (
            self._timings.renew if held else self._env.jitter(self._timings.renew, 0.2)
        )
        if not answer.node_renewed:
            me.lease.refused(me.token, received_at)
            self._fence()
            return
        self._unanswered_reported = failed
        self._answered()
        me.lease.renewed(me.token, now, received_at)
        self._expire()
        if me.lease.phase is not Phase.HOLDER:
            return
        self._host.send(messages.Renewed(me.lease.deadline))
        for each, term in held:
            each.answered(term, each.name in answer.led, now, received_at)
        self._see_nodes(answer, received_at)
        await self._see_leases(asked, answer, received_at)
        self._watch_clock(answer, now, received_at)
        self._take_orders(answer)
        if answer.muted:
            self._host.send(messages.Note.MUTED)
        await self._watch_loops(lag)

    def _see_nodes(self, answer: Heartbeat, received_at: float) -> None:
        for node in answer.nodes:
            self._timeline.saw(node.seen.timeline, received_at)
        self._timeline.longest = max((n.seen.lease_seconds for n in answer.nodes), default=0.0)
        self._timeline.settled = max(answer.settled, self._timeline.settled)
        if self.membership.failed_over(self._timeline.number):
            self._host.send(messages.Note.FAILED_OVER)
        if self._others.observe(answer.nodes, self.membership.identity.id, received_at):
            self._host.send(messages.Note.NODES_CHANGED)

    async def _see_leases(
        self, asked: list[NamedLease], answer: Heartbeat, received_at: float
    ) -> None:
        for each in asked:
            seen = answer.leaders.get(each.name)
            if seen:
                each.observe(seen, received_at, renewed=each.name in answer.led)
            elif self._election and each is self._election.named:
                await each.remake()
                self._next_heartbeat = 0.0
            else:
                self.contests.remake(each)
        self._settle()
        self.contests.observed()

    def _take_orders(self, answer: Heartbeat) -> None:
        """Handle operators' requests to this process."""
        if answer.halted != self._halted:
            self._halted = answer.halted
            self._host.send(messages.Halted(answer.halted))
        if answer.paused != self._paused:
            self._paused = answer.paused
            self._host.send(messages.Paused(answer.paused))
        fresh = tuple(s for s in answer.signals if s not in self._heard)
        self._heard = answer.signals
        if fresh:
            self._host.send(messages.Signalled(fresh))

    def _watch_clock(self, answer: Heartbeat, sent_at: float, received_at: float) -> None:
        """Every process notices a jump. Only the leader reports it."""
        step = self._clock.step(answer.at.timestamp(), sent_at, received_at)
        if step and self.leads():
            self.emit("clock_jumped", by=round(step, 1))

    async def _watch_loops(self, lag: float) -> None:
        """If the loop is stuck, its duties wait: let another process lead. ``lag`` is how long it
        has not answered, in seconds. Once stuck, it must answer within R to count as running."""
        self.contests.watch_loops()
        if lag > self._timings.stuck:
            if not self._stuck_seconds:
                self.emit("loop_stuck", seconds=round(lag, 1))
            self._stuck_seconds = lag
            if self._election:
                await self._election.resign("its event loop is stuck")
        elif self._stuck_seconds and lag < self._timings.renew:
            self.emit("loop_free", seconds=round(self._stuck_seconds, 1))
            self._stuck_seconds = 0.0

    def _note_silence(self) -> None:
        silent = frozenset(node.id for node in self.silent_nodes())
        if silent - self._was_silent:
            self._host.send(messages.Note.NODES_CHANGED)
        self._was_silent = silent

    def _stands(self) -> bool:
        """Return whether this process may lead: not while it stops, nor while its loop is stuck."""
        return self._standing and not self._stuck_seconds

    def _expire(self) -> None:
        self._settle()
        if self.membership.lease.expire(self._env.boot_now()):
            self._fence()

    def _settle(self) -> None:
        if self._election:
            self._election.settle()
        self.contests.settle()

    def _fence(self) -> None:
        """Handle the loss of the node's lease, and with it of all other leases."""
        for each in self._leases():
            each.lease.step_down("the node was fenced")
        self._settle()
        self._host.send(messages.Fenced(self.membership.lease.why_down))

    def _wait_for_quiet(self) -> float:
        lease = self.membership.lease
        quiet = self._host.quiet()
        if quiet and self.contests.quiet():
            self._ended.append(self.membership.identity.id)
        elif not lease.overdue(self._env.boot_now()):
            return 0.05
        elif not quiet:  # losing a user's leader or lock never ends a process
            self._host.send(messages.Note.GRACE_OVER)
        self._rejoin()
        return 0.0

    def _rejoin(self) -> None:
        """Take part under a new identity. A fenced one never comes back."""
        self.membership = self._new_membership()
        self._unanswered_reported = 0
        if self._election:
            self._election.start_anew()
        self.contests.start_anew()

    async def resign_all(self, why: str) -> None:
        """Begin a clean stop: another process leads within a round trip. Locks are kept, because
        running jobs may need them."""
        self._standing = False
        self.contests.step_down(why, locks=False)
        if self._election:
            await self._election.resign(why)

    def stop(self) -> None:
        """End ``run``, which then calls ``leave``. Any thread may call this."""
        self._stopping = True
        self.poke()

    async def leave(self) -> None:
        """End a clean stop: delete the node's row. If a body may still run under a lease, keep the
        row: the node's death will free that lease."""
        await self.resign_all("stopped")
        await self.contests.close()
        me = self.membership
        if me.lease.phase is Phase.HOLDER:
            me.lease.step_down("stopped")
            holds = not self.contests.all_resigned()
            with suppress(errors.LeaseworkError):  # in that case the lease expires
                await self._store.leave(me.identity.id, me.token, holds)


class ClockWatch:
    """Notices when the database's clock is set, for operators: no lease depends on it. Compares its
    time in each answer with this process's boot clock."""

    def __init__(self) -> None:
        self._ahead: tuple[float, float] | None = None
        """By how much the database's clock is ahead of ours, at least and at most."""

    def step(self, at: float, sent_at: float, received_at: float) -> float | None:
        """Return by how many seconds the clock was set since the last answer, positive for forward,
        or None. The database read ``at`` between the two moments of the boot clock."""
        low, high = at - received_at, at - sent_at
        before, self._ahead = self._ahead, (low, high)
        if before and low - before[1] > Tuning.clock_step_seconds:
            return low - before[1]
        if before and before[0] - high > Tuning.clock_step_seconds:
            return high - before[0]
        return None
