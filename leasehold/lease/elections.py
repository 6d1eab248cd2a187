"""The elections in which a guard stands: seek, settle, resign. Belongs to the guard's loop.

The duties of an application's own leader are single fenced statements: none can begin once
:meth:`Elections.term` says no, and one under way holds the fence. So a lost term is followed by
the next candidacy at once. What users hold may run on for a while: see
:mod:`leasehold.lease.contests`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from uuid import UUID

from leasehold import errors
from leasehold.config import Timings
from leasehold.env import Env
from leasehold.lease.membership import Election, Host, Membership, acquiring
from leasehold.model.lease import Lease, Phase, Seen, Timeline
from leasehold.ports import Heartbeat, Store, Term
from leasehold.telemetry import Emit


class Elections:
    """By name; ``stands`` says whether this process may become a leader at this moment."""

    def __init__(
        self,
        store: Callable[[], Store],
        membership: Callable[[], Membership],
        stands: Callable[[], bool],
        env: Env,
        timings: Timings,
        emit: Emit,
        host: Host,
        timeline: Timeline,
    ) -> None:
        self._store = store
        self._membership = membership
        self._stands = stands
        self._env = env
        self._timings = timings
        self._emit = emit
        self._host = host
        self._timeline = timeline
        self._all: dict[str, Election] = {}

    def __iter__(self) -> Iterator[Election]:
        return iter(self._all.values())

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def stand(self, name: str) -> Election:
        if name not in self._all:
            self._all[name] = Election(name, self._new_lease())
        return self._all[name]

    def _new_lease(self) -> Lease:
        me = self._membership().identity.id
        return Lease(me, self._timings, timeline=self._timeline)

    def start_anew(self) -> None:
        """Under another identity, of which nothing is held yet."""
        for election in self:
            election.lease, election.not_before = self._new_lease(), 0.0

    # -- asked, also from other threads ----------------------------------------------------------
    def term(self, name: str, now: float) -> Term | None:
        election = self._all.get(name)
        return election.term if election and election.lease.valid(now) else None

    def leads(self, name: str, now: float) -> bool:
        election = self._all.get(name)
        return election is not None and election.lease.valid(now)

    def held(self) -> dict[str, int]:
        """Name → term of what this process believes to lead, for people."""
        terms = [election.term for election in list(self._all.values())]
        return {term.leader: term.token for term in terms if term}

    # -- the heartbeat ---------------------------------------------------------------------------
    def to_renew(self, now: float) -> list[Term]:
        return [e.term for e in self if e.lease.valid(now) and e.term]

    def watched(self) -> list[str]:
        return list(self._all)

    def renewed(self, term: Term, renewed: bool, sent_at: float, received_at: float) -> None:
        lease = self._all[term.leader].lease
        if renewed:
            lease.renewed(term.token, sent_at, received_at)
        else:
            lease.refused(term.token, received_at)

    async def take_in(self, answer: Heartbeat, received_at: float) -> bool:
        """What the heartbeat showed; True when an election's rows were made again."""
        remade = False
        for name, election in self._all.items():
            seen = answer.leaders.get(name)
            if seen is None:
                await self._remake(name)
                remade = True
                continue
            if election.lease.watch.seen != seen:
                election.lease.jitter = self._timings.jitter * self._env.rng.random()
            election.lease.observe(seen, received_at)
        self.settle()
        return remade

    def moments(self) -> list[float]:
        """When there is something to do next, by the boot clock."""
        found = []
        for election in self:
            if self._stands():
                found.append(max(election.lease.may_act_at(), election.not_before))
            if election.lease.phase is Phase.HOLDER:
                found.append(election.lease.deadline)
        return found

    # -- winning ---------------------------------------------------------------------------------
    async def seek(self) -> bool:
        """Acquire what is free and may be taken now; True when it was tried."""
        tried = False
        for name, election in self._all.items():
            now = self._env.boot_now()
            seen = election.lease.wants(now)
            if seen is None or not self._membership().valid(now) or not self._stands():
                continue
            if now < election.not_before:
                continue
            tried = True
            if seen.node != election.lease.me:  # a row that names us is ours as soon as we ask
                election.not_before = now + 2 * self._timings.renew
            try:
                with acquiring(election.lease):
                    token = await self._acquire(name, seen, self._membership().lease.deadline - now)
            except errors.Unavailable as error:  # no renewal, and nothing else waits for it
                self._emit("renew_failed", error=str(error))
                continue
            election.not_before = 0.0
            if token and election.lease.acquired(token, now, self._env.boot_now()):
                self._emit("lease_acquired", name=name, term=token)
                self._host.leadership(name, gained=True)
                if not self._stands():  # we were stopped while we asked
                    await self.resign(election, "stopped")
        return tried

    async def _acquire(self, name: str, seen: Seen, seconds: float) -> int | None:
        try:
            return await self._store().acquire(
                name,
                self._membership().identity,
                seen,
                self._timings.lease,
                min(self._timings.call_timeout, seconds),
                self._env.due_now(),
            )
        except errors.QueryFailed:
            await self._remake(name)  # its fence may have been deleted by hand
            raise

    async def _remake(self, name: str) -> None:
        if await self._store().ensure_election(name, self._timings.lease):
            self._emit("lease_remade", name=name)

    # -- losing ----------------------------------------------------------------------------------
    def expire(self, now: float) -> None:
        for election in self:
            election.lease.expire(now)
        self.settle()

    def fence(self) -> None:
        """The node's lease is lost, and with it all of them."""
        for election in self:
            election.lease.step_down("the node was fenced")
        self.settle()

    def settle(self) -> None:
        """Tell of the leaderships that were lost, and follow again."""
        for election in self:
            if election.lease.phase is Phase.STEPPING_DOWN:
                self._emit(
                    "lease_lost",
                    name=election.name,
                    term=election.lease.token,
                    why=election.lease.why_down,
                    seconds=election.lease.believed_seconds(self._env.boot_now()),
                )
                election.lease.stopped()
                self._host.leadership(election.name, gained=False)

    async def resign(self, election: Election, why: str) -> None:
        term = election.term
        if term is None:
            return
        election.lease.step_down(why)
        election.lease.stopped()
        self._host.leadership(election.name, gained=False)
        seconds = election.lease.believed_seconds(self._env.boot_now())
        self._emit("lease_resigned", name=election.name, term=term.token, why=why, seconds=seconds)
        with suppress(errors.LeaseholdError):  # an unknown outcome is as good as an expiry
            me: UUID = self._membership().identity.id
            await self._store().resign(term, me, self._timings.call_timeout)

    async def resign_all(self, why: str) -> None:
        for election in self:
            await self.resign(election, why)
