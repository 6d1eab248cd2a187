"""What users hold: the leaders and locks that their code asks for. Belongs to the guard's loop.

One state machine as everywhere (model/lease.py), and one candidate a process and name: who asks
for the same in one process waits in a queue here. The guard's heartbeat renews all of them; what
is asked besides has a connection of its own, so that an acquisition which waits for a transaction
of the old holder never keeps the guard from renewing.

A lost term is STEPPING_DOWN until the body that runs under it has ended or the grace is over.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from leasehold import errors
from leasehold.config import LOCK_PREFIX
from leasehold.lease.bids import Bid, Patience
from leasehold.lease.candidacy import Candidacy, Contest
from leasehold.lease.membership import Election
from leasehold.model.lease import Phase
from leasehold.ports import Heartbeat, Term

HANDOVERS = 10
"""So often in a row a lock goes from hand to hand inside a process, before the processes that wait
have their turn. With n processes waiting a process has its turn after n * HANDOVERS others."""
_STOPPED = "the process is stopping"
_STUCK = "its event loop is stuck"


class Contests(Candidacy):
    """By name."""

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def held(self) -> dict[str, int]:
        """Leader → term, for people; locks are too many."""
        found = list(self._all.values())
        return {c.name: c.lease.token or 0 for c in found if c.holder and not c.is_lock}

    # -- what users ask --------------------------------------------------------------------------
    def ask(self, bid: Bid) -> None:
        if bid.name.startswith(LOCK_PREFIX) in self._closed:
            bid.refuse(errors.Unavailable(_STOPPED))
            return
        contest = self._all.get(bid.name)
        if contest is None:
            contest = self._all[bid.name] = Contest(Election(bid.name, self._new_lease()))
        if bid.patience is not Patience.WAIT and contest.holder:
            bid.refuse()
            return
        contest.waiting.append(bid)
        contest.look, contest.seen_at_first = True, None
        self._compete(contest)

    def done(self, bid: Bid) -> None:
        """Its user does not want it any more, or the body under it has ended."""
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
        """A notification: it was released, and it is our turn."""
        contest = self._all.get(name)
        if contest is None or not contest.waiting:
            if True not in self._closed:  # else it goes with the node
                self._later(self._drop_bid(name))  # it stayed behind, and all others wait for us
            return
        known = contest.lease.watch.seen
        contest.first = True
        if known:
            self._observe(contest, known._replace(node=None, token=token, seq=seq))
        else:
            contest.look = True
        contest.stir.set()

    async def _retire(self, contest: Contest) -> None:
        if contest.waiting or contest.holder:
            return
        if contest.bidding:
            contest.bidding = False
            await self._drop_bid(contest.name)
        self._compete(contest)
        self._forget_idle()

    async def _drop_bid(self, name: str) -> None:
        # without an answer: again when it is called, or with the node
        with suppress(errors.LeaseholdError):
            async with self._turn:
                contest = self._all.get(name)
                if not (contest and contest.waiting):
                    await self._lease_store().drop_bid(name, self._me)

    def busy(self) -> bool:
        """Is there anything to hold, to win or to watch? Asked from other threads, too."""
        return bool(self._all)

    def _forget_idle(self) -> None:
        """Not what was asked for of late, nor whose holder is known to be dead: the
        next one who tries has it at once."""
        now = self._env.boot_now()
        for name, contest in list(self._all.items()):
            lease = contest.lease
            if contest.waiting or contest.holder or contest.task:
                continue
            if lease.phase is not Phase.FOLLOWER or now < contest.watched_until:
                continue
            seen = lease.watch.seen
            if seen is None or seen.node is None or lease.wants(now) is None:
                del self._all[name]

    # -- the guard's heartbeat -------------------------------------------------------------------
    def to_renew(self, now: float) -> list[Term]:
        return [
            c.election.term for c in self._all.values() if c.lease.valid(now) and c.election.term
        ]

    def watched(self) -> list[str]:
        self._asked = frozenset(self._all)
        return list(self._asked)

    def renewed(self, term: Term, renewed: bool, sent_at: float, received_at: float) -> None:
        contest = self._all.get(term.leader)
        if contest is None:  # released, and forgotten, while the heartbeat was under way
            return
        if renewed:
            contest.lease.renewed(term.token, sent_at, received_at)
        else:
            contest.lease.refused(term.token, received_at)

    def take_in(self, answer: Heartbeat) -> None:
        for name, contest in list(self._all.items()):
            seen = answer.leaders.get(name)
            if seen is None:
                if name in self._asked:
                    self._later(self._make_again(name))
                continue
            lease = contest.lease
            if lease.phase is Phase.HOLDER and seen.token == lease.token:
                led = name in answer.led
                contest.own = seen._replace(node=self._me, seq=seen.seq + 1) if led else None
            self._observe(contest, seen)
            contest.stir.set()
        self._settle()
        self._forget_idle()

    async def _make_again(self, name: str) -> None:
        await self._remake(name)

    def moments(self) -> list[float]:
        found = []
        for contest in self._all.values():
            if contest.lease.phase is Phase.HOLDER:
                found.append(contest.lease.deadline)
            elif contest.lease.phase is Phase.STEPPING_DOWN:
                found.append(contest.lease.deadline + self._timings.grace)
        return found

    # -- losing ----------------------------------------------------------------------------------
    def watch_loops(self, longest: float) -> None:
        """A leader whose event loop stands still for longer does nothing: let another one lead.
        What runs under it has until the end of the lease, as at every loss. Locks are kept: what
        blocks the loop is what they are held for."""
        leaders = [c for c in self._all.values() if not c.is_lock]
        bids = [bid for c in leaders for bid in (c.holder, *c.waiting) if bid]
        self._loops.ask(bid.loop for bid in bids)
        self._stuck = frozenset(b.loop for b in bids if self._loops.lag(b.loop) > longest)
        for contest in leaders:
            holder, lease = contest.holder, contest.lease
            if holder and holder.loop in self._stuck and lease.phase is Phase.HOLDER:
                lease.step_down(_STUCK)
                self._tell(contest)
                contest.resigning = True
        self._settle()

    def expire(self, now: float) -> None:
        for contest in self._all.values():
            contest.lease.expire(now)
        self._settle()

    def fence(self) -> None:
        for contest in self._all.values():
            contest.lease.step_down("the node was fenced")
        self._settle()

    def quiet(self) -> bool:
        """Nothing runs any more under a term of the identity that is lost."""
        return not any(contest.occupied for contest in self._all.values())

    def start_anew(self) -> None:
        """Under another identity, of which nothing is held yet."""
        for contest in self._all.values():
            if contest.occupied:
                self._overlaps(contest)
            contest.holder = contest.own = None
            contest.bidding = contest.first = False
            contest.look = True
            contest.election.lease = self._new_lease()
            self._compete(contest)

    def _overlaps(self, contest: Contest) -> None:
        self._emit("lease_overlaps", name=contest.name, term=contest.lease.token)

    def _settle(self) -> None:
        """Tell of what was lost, and follow again when nothing runs under it."""
        now = self._env.boot_now()
        for contest in self._all.values():
            lease = contest.lease
            if lease.phase is not Phase.STEPPING_DOWN:
                continue
            if not contest.told:
                self._tell(contest)
            if contest.occupied:
                if not lease.overdue(now):
                    continue
                self._overlaps(contest)
            contest.holder = contest.own = None
            if contest.resigning and now < lease.deadline:
                self._later(self._resign(contest))
            else:
                lease.stopped()
                self._compete(contest)

    def _tell(self, contest: Contest) -> None:
        contest.told = True
        why = contest.lease.why_down
        if not contest.resigning:
            term, name = contest.lease.token, contest.name
            if contest.is_lock:
                self._emit("lock_lost", name=name, scope="lease", why=why, term=term)
            else:
                seconds = contest.lease.believed_seconds(self._env.boot_now())
                self._emit("lease_lost", name=name, term=term, why=why, seconds=seconds)
        if contest.holder:
            contest.holder.lost.set(why)

    async def _release(self, contest: Contest, bid: Bid) -> None:
        """The body has ended: hand over, or give up, or follow again after a loss."""
        lease, now = contest.lease, self._env.boot_now()
        contest.holder = None
        if lease.valid(now) and lease.token == bid.token:
            own, contest.own = contest.own, None
            patient = any(b.patience is Patience.WAIT for b in contest.waiting)
            lease.step_down("released")
            if contest.is_lock and patient and own and contest.handovers < HANDOVERS:
                contest.handovers += 1
                bid.end()
                lease.stopped()
                contest.first, contest.look = True, False
                lease.watch.observe(own, now)
                self._compete(contest)
                return
            await self._resign(contest)
        else:
            self._settle()
        bid.end()

    async def _resign(self, contest: Contest) -> None:
        """Stepping down already, and nothing runs under it."""
        lease = contest.lease
        if lease.phase is not Phase.STEPPING_DOWN:
            return  # done already
        term = Term(contest.name, lease.token or 0)
        if not contest.is_lock:
            why, seconds = lease.why_down, lease.believed_seconds(self._env.boot_now())
            self._emit(
                "lease_resigned", name=term.leader, term=term.token, why=why, seconds=seconds
            )
        lease.stopped()
        lease.watch.forget()
        contest.handovers = 0
        contest.look, contest.first, contest.resigning = True, False, False
        with suppress(errors.LeaseholdError):  # an unknown outcome is as good as an expiry
            async with self._turn:
                seconds = self._timings.call_timeout
                await self._lease_store().resign(term, self._me, seconds)
        self._compete(contest)
        self._forget_idle()

    # -- leaving ---------------------------------------------------------------------------------
    def step_down(self, why: str, *, locks: bool) -> None:
        """Give up the leaders, or the locks, each as soon as its body has ended; take no more."""
        self._closed.add(locks)
        for contest in list(self._all.values()):
            if contest.is_lock is not locks:
                continue
            for bid in contest.waiting:
                bid.refuse(errors.Unavailable(_STOPPED))
            contest.waiting.clear()
            contest.stir.set()
            if contest.lease.phase is Phase.HOLDER:
                contest.resigning = True
                contest.lease.step_down(why)
        self._settle()

    async def close(self) -> None:
        """Bodies get the grace to end; what does not is left to its lease."""
        self.step_down("stopped", locks=False)
        self.step_down("stopped", locks=True)
        give_up_at = self._env.boot_now() + self._timings.grace
        while self._env.boot_now() < give_up_at and (self._work or not self.quiet()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for task in [c.task for c in self._all.values() if c.task]:
            task.cancel()
        while self._work:
            await asyncio.wait(self._work)  # gather() of what has ended never yields
        for contest in self._all.values():
            if contest.holder:
                contest.holder.lost.set("stopped")
        if self._store:
            await self._store.close()
