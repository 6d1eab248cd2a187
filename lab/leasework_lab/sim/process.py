"""One host of the cluster: its clock, its link to the database, and its current process. Processes
crash, pause, stop and start again; the host stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from uuid import UUID

from msgspec import structs

from leasework.config import Settings
from leasework.env import Rng, seeded
from leasework.errors import LeaseworkError
from leasework.model.lease import Phase
from leasework.node.plan import NodePlan, Tools
from leasework_lab.sim.checkers import Watch
from leasework_lab.sim.env import SimClock, sim_env
from leasework_lab.sim.host import SimNode
from leasework_lab.sim.link import FaultyStore, Link, SimWakeups
from leasework_lab.sim.loop import Place, VirtualLoop, context_of
from leasework_lab.sim.transaction import OnTransaction
from leasework_lab.sim.workload import Workload, registry

CERTIFY_SECONDS = 1.0


class Process:
    """``alive``: neither crashed nor stopped."""

    def __init__(
        self,
        number: int,
        loop: VirtualLoop,
        link: Link,
        rng: Rng,
        settings: Settings,
        plan: NodePlan,
        work: Workload,
        watch: Watch,
        hard_exit: bool,
    ) -> None:
        self.number = number
        self.link = link
        self.plan = plan
        self.node: SimNode | None = None
        self.alive = False
        self.joined = False
        """Whether it may be stopped."""
        self.on_joined: Callable[[Process, SimNode], None] = lambda process, node: None
        self.resumed_at = -1.0
        self.stopped_at = 0.0
        """When its last clean stop was requested."""
        self._loop = loop
        self._rng = rng
        self._settings = settings
        self.work = work
        self._watch = watch
        self._hard_exit = hard_exit
        self._starts = 0
        clock = SimClock(loop, 1 + rng.uniform(-1e-3, 1e-3), rng.choice([1.0, 5e5, 1e7]))
        self._clock = clock
        self._places: list[Place] = []
        self.graveyard: list[Place] = []
        """The places of crashed processes, with what they left behind."""

    def __repr__(self) -> str:
        return f"p{self.number}.{self._starts}"

    # -- for the checkers ------------------------------------------------------------------------
    def leads(self) -> bool:
        return bool(self.alive and self.node and self.node.leads())

    def believes(self, node: UUID, ago: float = 0.0) -> bool:
        """Does it trust the lease of this identity now, or, as far as it can tell, ``ago`` seconds
        before?"""
        if not self.alive or self.node is None:
            return False
        membership = self.node.guard.membership
        return membership.identity.id == node and membership.valid(self._clock.boot_now() - ago)

    def knows(self, timeline: int) -> bool:
        """Has it seen the server's current timeline?"""
        return self.node is not None and self.node.guard.membership.timeline == timeline

    def boot_now(self) -> float:
        """The time by its own clock."""
        return self._clock.boot_now()

    def trusts(self) -> tuple[UUID, float] | None:
        """The identity whose lease it holds, and its deadline by its own clock."""
        if not self.alive or self.node is None:
            return None
        me = self.node.guard.membership
        holds = me.lease.phase is Phase.HOLDER
        return (me.identity.id, me.lease.deadline) if holds else None

    def is_node(self, node: UUID) -> bool:
        return self.node is not None and self.node.guard.membership.identity.id == node

    def holds(self, token: int) -> bool:
        return bool(self.alive and self.node and self.node.running.of_token(token))

    @property
    def paused(self) -> bool:
        return any(place.paused for place in self._places)

    # -- life and death --------------------------------------------------------------------------
    def start(self, release: str | None = None) -> None:
        """Start a process here, perhaps of another release."""
        self._starts += 1
        self.link.name = repr(self)
        self.alive, self.joined = True, False
        self.node = None  # the previous process's beliefs are gone
        self.link.wakeups.clear()
        if release:
            planned = self.work.planned(release)
            self.plan = structs.replace(self.plan, release=release, planned=planned)
        work = Place(f"{self!r}-work", self)
        guard = Place(f"{self!r}-guard", self)
        self._places = [work, guard]
        context, guard_context = context_of(work), context_of(guard)
        self._context = context
        self._run(self._life(context, guard_context)).add_done_callback(self.ended, context=context)

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._loop.create_task(work, context=self._context)

    def ended(self, task: asyncio.Task[None]) -> None:
        """Report a task's error: nobody waits for it, and the garbage collector is off."""
        if not task.cancelled() and (error := task.exception()):
            self._watch.wrong(f"{self}: one of its tasks failed with {error!r}")

    async def _life(self, work: Any, guard: Any) -> None:
        call_timeout = self._settings.call_timeout
        rng = seeded(self._rng.getrandbits(62))
        env = sim_env(self._clock, rng, f"h{self.number}", self._starts)
        tools = Tools(
            FaultyStore.over(self.link, call_timeout),
            FaultyStore.over(self.link, call_timeout),
            FaultyStore.over(self.link, call_timeout),
            lambda role: FaultyStore.over(self.link, call_timeout, "guard"),
            lambda handlers, emit: SimWakeups(self.link, handlers),
            OnTransaction(),
        )
        node: SimNode | None = None
        while True:
            if node is None or node.begun:
                node = self.node = SimNode(
                    self.plan,
                    tools,
                    registry(self.plan.release),
                    self._settings,
                    env,
                    (work, guard),
                    self._watch.belief,
                    self.exit_hard if self._hard_exit else None,
                    self.ended,
                )
            with suppress(LeaseworkError):  # in production, its supervisor would restart it
                await node.start()
                self.joined = True
                self.on_joined(self, node)
                return

    def crash(self) -> UUID | None:
        """End at once; what it has sent is still on its way. Returns its first identity."""
        first = self.node.first_id if self.node else None
        self.alive = self.joined = False
        self.link.wakeups.clear()
        self._watch.crashed(self)
        for place in self._places:
            place.paused = True
        self.graveyard += self._places
        self._places = []
        return first

    def exit_hard(self) -> None:
        """Called by its guard if work continues after the grace. Its supervisor starts another."""
        self._watch.counts["hard_exit"] += 1
        server = self.link.server
        self.crash()
        server.loop.call_later(1.0, self._start_again, context=server.context)

    def _start_again(self) -> None:
        if not self.alive:
            self.start()

    def certify(self, first: UUID | None) -> None:
        """Certify its death as its parent, which has a connection of its own."""
        if first is not None and self.link.server.up:
            args = (first, CERTIFY_SECONDS)
            self.link.server.execute("certify", args, {"process": True}, "parent")

    def stop(self, then: Callable[[], None]) -> None:
        """Stop cleanly, as on SIGTERM; call ``then`` when it has ended."""
        node = self.node
        if not self.joined or node is None:
            return
        self.joined = False
        self.stopped_at = self._loop.time()

        def ended(task: asyncio.Task[None]) -> None:
            if self.node is not node or task.cancelled():
                return
            self.alive = False
            if error := task.exception():
                self._watch.wrong(f"{self} could not stop: {error!r}")
            then()

        self._run(node.stop()).add_done_callback(ended, context=self.link.server.context)

    def pause(self, *, guard: bool = True) -> None:
        """Stop it (SIGSTOP), or block only its event loop."""
        for place in self._places[: 2 if guard else 1]:
            place.paused = True

    def resume(self) -> None:
        self.resumed_at = self._loop.time()
        for place in self._places:
            self._loop.resume(place)

    def release_all(self) -> None:
        """At the very end: let everything finish."""
        for place in [*self._places, *self.graveyard]:
            self._loop.resume(place)
