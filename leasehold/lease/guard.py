"""The guard: renews the node and what it leads, watches the others, and fences itself.

It runs in a thread, an event loop and on a connection of its own, so that a handler which blocks
the user's loop or burns CPU in Python cannot starve it. Everything that it decides, the state
machine in model/lease.py decides; this file asks, tells and sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

from leasehold import errors
from leasehold.config import Timings
from leasehold.env import Env
from leasehold.lease.bids import Bid
from leasehold.lease.clock_watch import ClockWatch
from leasehold.lease.contests import Contests
from leasehold.lease.elections import Elections
from leasehold.lease.loop_watch import LoopWatch
from leasehold.lease.membership import Election, Host, Membership, Others
from leasehold.loops.waiting import Bell
from leasehold.model.lease import Lease, Phase, Timeline
from leasehold.model.states import State
from leasehold.ports import Heartbeat, NodeSeen, Store, Term
from leasehold.telemetry import Emit

_RETRY_SHARE = 0.2
"""Of R: the pause after a renewal without an answer."""


class Guard:
    """One process's heartbeat. ``run`` until ``stop``; ``poke`` to look at once."""

    def __init__(
        self,
        make_store: Callable[[], Store],
        env: Env,
        timings: Timings,
        emit: Emit,
        host: Host,
    ) -> None:
        self._make_store = make_store
        """Called in the guard's own loop: connections belong to a loop."""
        self._env = env
        self._timings = timings
        self._emit = emit
        self._host = host
        self._others = Others()
        self._heard: list[UUID] = []
        self._halted = False
        self._ended: list[UUID] = []
        self._poked = False
        self._stir = Bell()
        """Ends the sleep of ``run``: poked, or there is another deadline to watch."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._standing = True
        self._was_silent: frozenset[UUID] = frozenset()
        self._loop_watch = LoopWatch(timings.renew, emit)
        self._next_beat = 0.0
        self._timeline = Timeline()
        self._clock = ClockWatch()
        self._failed = self._failed_told = 0
        """Renewals without an answer: not told to the database yet; told under this identity."""
        self._unanswered, self._unanswered_since = 0, 0.0
        """In a row."""
        self.membership = self._new_membership()
        self.elections = Elections(
            lambda: self._store, lambda: self.membership, self._stands, env, timings, emit, host,
            self._timeline,
        )  # fmt: skip
        self.contests = Contests(
            make_store, lambda: self.membership, self._stir.ring, env, timings, emit, self._timeline
        )

    def _new_membership(self) -> Membership:
        identity = self._host.new_identity()
        return Membership(identity, Lease(identity.id, self._timings))

    # -- asked from other threads ----------------------------------------------------------------
    def stand(self, name: str) -> Election:
        """Take part in an election. Before ``run``, or in the guard's loop."""
        return self.elections.stand(name)

    def term(self, name: str) -> Term | None:
        """The leadership, if it may be used at this very moment."""
        now = self._env.boot_now()
        return self.elections.term(name, now) if self.membership.valid(now) else None

    def leads(self, name: str) -> bool:
        """Is there such a leadership? Asked before each duty."""
        now = self._env.boot_now()
        return self.membership.lease.valid(now) and self.elections.leads(name, now)

    def silent_nodes(self) -> list[NodeSeen]:
        """Nodes that this process itself has seen unchanged for their whole lease."""
        return self._others.silent(self._env.boot_now())

    def newest_release(self, app: str) -> int:
        """The number of the newest release of which another node has a row; 0 for none."""
        nodes = [node for node, _ in self._others.watches.values()]
        return max((node.release_number for node in nodes if node.app == app), default=0)

    def poke(self) -> None:
        """Look at the database now. From any thread."""
        if self._loop:
            with suppress(RuntimeError):  # the loop is closed: the process is going down
                self._loop.call_soon_threadsafe(self._on_poke)

    def _on_poke(self) -> None:
        self._poked = True
        self._stir.ring()

    def ask(self, bid: Bid) -> None:
        """Stand for a leader or a lock of the user's. From any thread."""
        self._call(self.contests.ask, bid)

    def done(self, bid: Bid) -> None:
        """A bid is wanted no more, or what ran under it has ended. From any thread."""
        self._call(self.contests.done, bid)

    def lock_is_free(self, subject: str) -> None:
        """A notification ``node token seq name``. From any thread."""
        node, token, seq, name = subject.split(" ", 3)
        if node == str(self.membership.identity.id):
            self._call(self.contests.free, name, int(token), int(seq))

    def _call(self, call: Callable[..., None], *arguments: Any) -> None:
        if self._loop:
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(call, *arguments)
                return
        raise errors.Unavailable("this process does not take part any more")

    @property
    def emit(self) -> Emit:
        return self._emit

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The guard's own event loop, once it runs."""
        assert self._loop
        return self._loop

    # -- the loop --------------------------------------------------------------------------------
    async def run(self) -> None:
        self._store = self._make_store()
        self._loop = asyncio.get_running_loop()
        while not self._stopping:
            poked, self._poked = self._poked, False
            self._stir.clear()
            pause = await self.step(poked)
            await self._stir.wait(max(pause, 0.001))
        await self.leave()
        await self._store.close()

    async def step(self, poked: bool = False) -> float:
        """One look at everything that is due; seconds until the next."""
        try:
            self._expire()
            lease = self.membership.lease
            if lease.phase is Phase.STEPPING_DOWN:
                return self._wait_for_quiet()
            if lease.phase is Phase.FOLLOWER:
                await self._try_to_join()
                if self.membership.lease.phase is Phase.FOLLOWER:
                    return self._retry_pause()  # too late: there is no row to renew
            if poked or self._env.boot_now() >= self._next_beat:
                await self._beat()
            self._note_silence()
            if await self.elections.seek():
                self._beat_within(self._timings.renew)
            # many of them, or a slow link, must not keep us from the next heartbeat
            await self._host.look_after_jobs(self._env.boot_now() + self._pause())
        except errors.Unavailable as error:
            self._no_answer(error)
            return self._troubled()
        except Exception as error:
            self._surprised(error)
            return self._troubled()
        return self._pause()

    def _no_answer(self, error: errors.Unavailable) -> None:
        """An outage may last for hours: it is told at growing intervals, and once at its end."""
        self._failed += 1
        self._unanswered += 1
        if self._unanswered == 1:
            self._unanswered_since = self._env.boot_now()
        if self._unanswered.bit_count() == 1:
            self._emit("renew_failed", error=str(error), times=self._unanswered)

    def _answered(self) -> None:
        if self._unanswered:
            seconds = self._env.boot_now() - self._unanswered_since
            self._emit("renew_works", times=self._unanswered, seconds=round(seconds, 1))
        self._unanswered = 0

    def _surprised(self, error: Exception) -> None:
        """The guard must outlive every surprise."""
        self._emit("service_failed", service="guard", error=errors.told(error))

    def _troubled(self) -> float:
        """After a round that failed: what it was too late for ends now."""
        try:
            self._expire()
        except Exception as error:
            self._surprised(error)
        self._next_beat = 0.0
        return self._retry_pause()

    def _retry_pause(self) -> float:
        """Not beyond the deadline: the fencing must be in time."""
        pause = self._env.jitter(self._timings.renew * _RETRY_SHARE, 0.25)
        lease = self.membership.lease
        left = lease.deadline - self._env.boot_now()
        return max(0.0, min(pause, left)) if lease.phase is Phase.HOLDER else pause

    def _pause(self) -> float:
        now = self._env.boot_now()
        moments = [self._next_beat, self.membership.lease.deadline]
        moments += [*self.elections.moments(), *self.contests.moments()]
        silent_soon = [w.silent_at() for _, w in self._others.watches.values()]
        moments += [at for at in silent_soon if at > now]
        return max(0.0, min(moments) - now)

    async def _try_to_join(self) -> None:
        try:
            await self._join()
        except errors.ServerError as error:
            self._host.refused(error)  # a start ends with it; later on we try again
            raise

    async def _join(self) -> None:
        """Register under the present identity."""
        await self._bury_own()
        me = self.membership
        sent_at = self._env.boot_now()
        try:
            token = await self._store.register(
                me.identity, self._timings.lease, self._env.due_now()
            )
        except errors.LeaseholdError as error:
            if not isinstance(error, errors.Unavailable) or error.sent:
                self._rejoin()  # a row of this id may be there: take another id
            raise
        if not me.lease.acquired(token, sent_at, self._env.boot_now()):
            # too late to be trusted, and a row of this id is there now: take another id
            self._rejoin()
            return
        self._next_beat = 0.0
        self._host.joined(me.identity)

    async def _bury_own(self) -> None:
        """Identities under which nothing runs any more are dead, and nobody knows it better:
        their jobs and leaderships are free without waiting for their leases. What they finished
        is recorded first, if the database lets it."""
        give_up_at = self._env.boot_now() + self._timings.call_timeout
        # the counter belongs to another thread: there is no event to wait for
        while self._ended and self._host.unrecorded() and self._env.boot_now() < give_up_at:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        while self._ended:
            await self._store.certify(self._ended[0], self._timings.call_timeout)
            self._ended.pop(0)

    async def _beat(self) -> None:
        me = self.membership
        now = self._env.boot_now()
        held = [*self.elections.to_renew(now), *self.contests.to_renew(now)]
        timeout = min(self._timings.call_timeout, max(me.lease.deadline - now, 0.05))
        failed = self._failed_told + self._failed
        answer = await self._store.heartbeat(
            me.identity.id,
            me.token,
            held,
            [*self.elections.watched(), *self.contests.watched()],
            {**self._host.info(), "renew_failed": failed},
            self._heard,
            timeout,
            self._env.due_now(),
        )
        received_at = self._env.boot_now()
        self._next_beat = now + (
            self._timings.renew if held else self._env.jitter(self._timings.renew, 0.2)
        )
        if not answer.node_renewed:
            me.lease.refused(me.token, received_at)
            self._fence()
            return
        self._failed, self._failed_told = 0, failed
        self._answered()
        me.lease.renewed(me.token, now, received_at)
        self._expire()
        if me.lease.phase is not Phase.HOLDER:
            return
        self._host.renewed()
        for term in held:
            board = self.elections if term.leader in self.elections else self.contests
            board.renewed(term, term.leader in answer.led, now, received_at)
        await self._take_in(answer, now, received_at)

    async def _take_in(self, answer: Heartbeat, sent_at: float, received_at: float) -> None:
        for node in answer.nodes:
            self._timeline.saw(node.seen.timeline, received_at)
        if self.membership.failed_over(self._timeline.number):
            self._host.failed_over()
        self._timeline.longest = max((n.seen.lease_seconds for n in answer.nodes), default=0.0)
        if await self.elections.take_in(answer, received_at):
            self._next_beat = 0.0
        self.contests.take_in(answer)
        self._watch_clock(answer, sent_at, received_at)
        me = self.membership.identity.id
        if self._others.observe(answer.nodes, me, received_at):
            self._host.nodes_changed()
        if answer.halted != self._halted:
            self._halted = answer.halted
            self._host.halted(answer.halted)
        fresh = tuple(s for s in answer.signals if s.job not in self._heard)
        self._heard = [s.job for s in answer.signals]
        if fresh:
            self._host.signals(fresh)
        await self._watch_loop()

    def _watch_clock(self, answer: Heartbeat, sent_at: float, received_at: float) -> None:
        """All see it; the leader says it."""
        step = self._clock.step(answer.at.timestamp(), sent_at, received_at)
        if step and self.elections.held():
            self._emit("clock_jumped", by=round(step, 1))

    def _note_silence(self) -> None:
        silent = frozenset(node.id for node in self.silent_nodes())
        if silent - self._was_silent:
            self._host.nodes_changed()
        self._was_silent = silent

    def _beat_within(self, seconds: float) -> None:
        self._next_beat = min(self._next_beat, self._env.boot_now() + seconds)

    def _stands(self) -> bool:
        """Not while we stop, nor while the loop that does the duties is stuck."""
        return self._standing and not self._loop_watch.stuck_seconds

    # -- losing ----------------------------------------------------------------------------------
    def _expire(self) -> None:
        now = self._env.boot_now()
        self.elections.expire(now)
        self.contests.expire(now)
        if self.membership.lease.expire(now):
            self._fence()

    def _fence(self) -> None:
        """The node's lease is lost: everything that stands on it ends now."""
        lease = self.membership.lease
        self.elections.fence()
        self.contests.fence()
        self._host.fenced(lease.why_down)

    def _wait_for_quiet(self) -> float:
        lease = self.membership.lease
        quiet = self._host.quiet()
        if quiet and self.contests.quiet():
            self._ended.append(self.membership.identity.id)
        elif not lease.overdue(self._env.boot_now()):
            return 0.05
        elif not quiet:  # a lost leader or lock of the user's never ends a process
            self._host.grace_over()
        self._rejoin()
        return 0.0

    def _rejoin(self) -> None:
        """A fenced identity never comes back: take part under a new one."""
        self.membership = self._new_membership()
        self._failed_told = 0
        self.elections.start_anew()
        self.contests.start_anew()

    # -- the user's loop -------------------------------------------------------------------------
    async def _watch_loop(self) -> None:
        """A stuck loop does no duties: let a process lead whose loop runs."""
        self.contests.watch_loops(self._loop_watch.longest)
        if self._loop_watch.look(self._host.loop_lag()):
            await self.elections.resign_all("its event loop is stuck")

    # -- leaving ---------------------------------------------------------------------------------
    async def resign_all(self, why: str) -> None:
        """First act of a clean stop: another process leads within a round trip. Locks are kept:
        jobs may need them to come to their end."""
        self._standing = False
        self.contests.step_down(why, locks=False)
        await self.elections.resign_all(why)

    async def requeue(self, job: UUID, token: int) -> State | None:
        """Take a job away from its run. None: not ours any more; RUNNING: locked, ask again."""
        return await self._store.requeue(job, token, self._env.due_now())

    async def answer_stack(self, request: UUID, says: str) -> None:
        """What somebody asked to see of a handler here."""
        me = self.membership.identity.id
        await self._store.answer_stack(me, request, says, self._env.due_now())

    def stop(self) -> None:
        """End ``run``, which leaves then. From any thread."""
        self._stopping = True
        self.poke()

    async def leave(self) -> None:
        """Last act of a clean stop: take the node's row away."""
        await self.resign_all("stopped")
        await self.contests.close()
        me = self.membership
        if me.lease.phase is Phase.HOLDER:
            me.lease.step_down("stopped")
            with suppress(errors.LeaseholdError):  # then its lease expires
                await self._store.leave(me.identity.id, me.token)
