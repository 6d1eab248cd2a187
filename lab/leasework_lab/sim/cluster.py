"""N processes, a database and clients in virtual time: one run per seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from msgspec import structs

from leasework import telemetry
from leasework.config import Retention, Settings
from leasework.env import Rng, seeded
from leasework.errors import LeaseworkError
from leasework.jobs import tracing
from leasework.node.plan import NodePlan
from leasework_lab.sim import faults
from leasework_lab.sim.check_rest import restless
from leasework_lab.sim.checkers import Watch
from leasework_lab.sim.env import DatabaseClock
from leasework_lab.sim.leases import Leases
from leasework_lab.sim.link import Link, Server
from leasework_lab.sim.loop import VirtualLoop
from leasework_lab.sim.process import Process
from leasework_lab.sim.rows import JobRow, SimDatabase
from leasework_lab.sim.store import SimStore
from leasework_lab.sim.trace import Trace
from leasework_lab.sim.workload import NEW_IN, Workload

FAULT_SECONDS = (5.0, 5.0, 12.0, 20.0)
"""How long there are faults. A lease expires, and is found expired, after six to eight seconds.
Long runs show what is rare; short ones, at half the price, cover the start and the drain."""
DRAIN_SECONDS = 60.0
LEADER_SLACK = 1.0
"""Added to F, because a node that was fenced must join again first."""
CLIENTS = 2


class _Database(SimDatabase):
    """Reports each end of a job to the watch."""

    watch: Watch

    def finish(self, row: JobRow, state: str, *args: Any, **options: Any) -> None:
        super().finish(row, state, *args, **options)
        self.watch.finished(row, state)


@dataclass(frozen=True)
class Result:
    """One run. ``violations`` is empty if every invariant held."""

    seed: int
    profile: str
    violations: list[str]
    counts: dict[str, int]
    seconds: float
    """Seconds of virtual time."""
    trace: list[str] = field(default_factory=list)


class Cluster:
    """``make_store``: makes a SimStore or a mutant of it."""

    def __init__(
        self,
        seed: int,
        loop: VirtualLoop,
        profile: str | None,
        trace: bool,
        make_store: Callable[[SimDatabase], SimStore],
    ) -> None:
        rng = self.rng = seeded(f"leasework-{seed}")
        self.loop = loop
        self.profile = profile or faults.profile_of(rng)
        self.settings = Settings(
            recover_within=rng.choice([9.0, 9.0, 12.0]),
            call_timeout=rng.choice([1.0, 2.0, 5.0]),
            grace=2.0,
            retention=Retention(history_days=0),  # has no influence
        )
        self.clock = DatabaseClock(loop)
        self.furthest_step = 0.0
        self.newest_release = "r1"
        self.db = _Database(self.clock, self._notify)
        story = Trace(loop.time) if trace else None
        self.watch = self.db.watch = Watch(self.db, loop.time, self.settings.grace, trace=story)
        self.aimed: list[faults.Fault] = []
        """Faults that strike at the next acquisition or renewal, between effect and answer."""
        self.brink: tuple[Process, float] | None = None
        """The process that is to come close to its end, from its next renewal on."""
        self.server = Server(loop, make_store(self.db), self._observe)
        self.work = Workload(self.watch, loop, self._fork(), self.settings)
        hosts = rng.choice([2, 3, 3, 4])
        self.server.note = self.watch.note if trace else None
        names = [f"p{n}" for n in range(hosts)] + [f"client {n}" for n in range(CLIENTS)]
        self.links = [self._link(name) for name in names]
        hard_exit = rng.random() < 0.5
        self.fault_seconds = rng.choice(FAULT_SECONDS)
        plan = NodePlan("0", "r1", {"default": rng.choice([2, 10])}, self.work.planned("r1"))
        self.processes = [
            Process(n, loop, self.links[n], self._fork(), self.settings, plan,
                    self.work, self.watch, hard_exit)
            for n in range(hosts)
        ]  # fmt: skip
        self.watch.processes = self.processes
        self.leases = Leases(self.watch, seeded(f"leases-{seed}"))
        for process in self.processes:
            process.on_joined = self.leases.begin
        lease = self.settings.timings.lease
        self.injector = faults.Injector(self)
        self.script = faults.script(rng, self.profile, hosts, self.fault_seconds, lease)

    def _fork(self) -> Rng:
        return seeded(self.rng.getrandbits(62))

    def _link(self, name: str) -> Link:
        rng = self._fork()
        return Link(self.server, rng, faults.weather(rng, self.profile), name=name)

    def _notify(self, message: str) -> None:
        for link in self.links:
            for wakeups in list(link.wakeups):
                wakeups.deliver(message)

    def _observe(self, name: str, args: tuple[Any, ...], answer: Any, who: str) -> None:
        self.watch.statement(name, args, answer, who)
        if name == "acquire" and answer:
            self.leases.acquired(args[0], args[1].id)
            self._strike(args[1].id)
        elif name == "heartbeat":
            brink = self.brink and not self.injector.spared
            if brink and self.brink and self.brink[0].is_node(args[0]):
                self.injector.renewed(*self.brink)
                self.brink = None
            self._strike(args[0])

    def _strike(self, node: UUID) -> None:
        """A node acquired or renewed something: strike with the faults aimed at that."""
        for process in self.processes if self.aimed else ():
            if process in self.injector.spared:
                continue
            if process.alive and process.is_node(node):
                faults.strike(process, self.aimed.pop(), self.later)
                return

    def later(self, seconds: float, act: Callable[[], Any]) -> None:
        self.loop.call_later(seconds, act, context=self.server.context)

    def step_clock(self, seconds: float) -> None:
        self.clock.step(seconds)
        self.furthest_step = max(self.furthest_step, self.clock.stepped)

    # -- one run ---------------------------------------------------------------------------------
    async def run(self) -> None:
        for process in self.processes:
            self.later(self.rng.random() * 2, process.start)
        if self.profile == "calm":
            last = self.processes[-1]
            last.plan = structs.replace(
                last.plan, release=NEW_IN, planned=self.work.planned(NEW_IN)
            )
        clients = [
            asyncio.ensure_future(self.work.client(link, self.fault_seconds))
            for link in self.links[-CLIENTS:]
        ]
        injector = self.injector
        for fault in self.script:
            self.later(fault.at, partial(injector.apply, fault))
        calm = self.profile in ("calm", "deploy")
        if not calm and self.leases.used and self.rng.random() < 0.3:
            self.later(self.rng.random() * self.fault_seconds, self.leases.forget)
        await asyncio.sleep(self.fault_seconds)
        injector.end()
        if self.watch.trace:
            self.watch.trace.fault("none any more")
        await self._failover()
        await self._drain(clients)
        self.watch.last_look()
        if self.profile in ("calm", "deploy"):
            self._nothing_happened()

    async def _failover(self) -> None:
        """Failover: wait for a leader, at most F, and for all leases to have had a holder. F counts
        while a process can be elected. A call that began during the faults may delay that by its
        whole timeout."""
        began, bound = self.loop.time(), self._bound(self.settings.timings.failover)
        latest = began + self.settings.call_timeout
        before = self.leases.granted.copy()
        while True:
            if not any(process.joined and process.trusts() for process in self.processes):
                began = min(self.loop.time(), latest)
            nobody_leads = not any(process.leads() for process in self.processes)
            free = self.leases.never_had(before)
            if not nobody_leads and not free:
                return
            if nobody_leads and self.loop.time() > began + bound:
                self.watch.wrong(f"Failover: no leader for {bound:.2f} s after the faults")
                return
            if free and self.loop.time() > began + bound + free[1]:
                self.watch.wrong(f"Failover: nobody had {free[0]} {bound + free[1]:.2f} s after")
                return
            await asyncio.sleep(0.1)

    async def _drain(self, clients: Sequence[asyncio.Future[None]]) -> None:
        """Wait until all accepted work has ended; what dead nodes held must be free in time."""
        began, bound = self.loop.time(), self._bound(self.settings.recover_within)
        held = self.watch.held()
        while self.loop.time() < began + DRAIN_SECONDS:
            if held and self.loop.time() > self._well_since() + bound:
                self.watch.free_again(held, bound)
                held = {}
            still = not self.watch.busy() and all(client.done() for client in clients)
            if still and not self._unsettled():
                return
            await asyncio.sleep(0.5)

    def _well_since(self) -> float:
        """When the leader could begin to see silent nodes: once it had joined. A call that began
        during the faults may have delayed that by its whole timeout."""
        joined = [self.watch.joined_at[repr(p)] for p in self.processes if p.leads()]
        latest = self.fault_seconds + self.settings.call_timeout
        return max(self.fault_seconds, min([latest, *joined]))

    def _bound(self, seconds: float) -> float:
        """How long after the last fault something must have happened, in seconds."""
        return seconds + LEADER_SLACK

    def _unsettled(self) -> bool:
        return any(self.watch.stuck()) or any(restless(self.db, self.processes))

    def _nothing_happened(self) -> None:
        """Without faults there is one term and no alarm; a deployment hands over."""
        counts = self.watch.counts
        terms = [name for name, _ in self.db.terms if name == self.settings.name]
        if self.profile == "calm" and len(terms) != 1:
            self.watch.wrong(f"Calm: {len(terms)} terms")
        for kind in ("lease_lost", "lock_lost", "node_fenced", "claim_unknown"):
            if counts[kind]:
                self.watch.wrong(f"Calm: {counts[kind]} {kind}")
        for (job, _), attempt in self.db.attempts.items():
            row = self.db.done[job].job if job in self.db.done else self.db.jobs[job]
            # a handler that refuses to end, or leaves a transaction open, is left behind
            if attempt.outcome == "crashed" and row.task not in ("stubborn", "effect"):
                self.watch.wrong(f"Calm: {row.task} {job} was left behind")

    def unhandled(self, loop: Any, context: dict[str, Any]) -> None:
        """An error that nobody caught, as reported by asyncio."""
        self.watch.wrong(f"unhandled: {context.get('exception')!r} {context.get('message')}")

    async def end(self) -> None:
        """End all remaining work before the loop closes."""
        self.loop.set_exception_handler(lambda loop, context: None)
        self.server.up = False
        me = asyncio.current_task()
        for _ in range(50):
            for process in self.processes:
                process.release_all()
            tasks = [task for task in self.loop.unfinished() if task is not me]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=1.0)


@contextmanager
def _listening(watch: Watch) -> Iterator[None]:
    """Send nodes' events to the watch instead of the log, whose records are expensive. Switch off
    tracing, so that a run is the same on every machine."""
    log, otel = telemetry.log, tracing.otel

    def listen(event: telemetry.Event, worker_id: str) -> None:
        watch.event(event.kind, worker_id, event.fields)

    telemetry.log, tracing.otel = listen, None
    try:
        yield
    finally:
        telemetry.log, tracing.otel = log, otel


def run_seed(
    seed: int,
    *,
    profile: str | None = None,
    trace: bool = False,
    make_store: Callable[[SimDatabase], SimStore] = SimStore,
) -> Result:
    """Run one seed, with the same result each time. ``profile``: one of faults.PROFILES; by
    default the seed chooses."""
    loop = VirtualLoop()
    cluster = Cluster(seed, loop, profile, trace, make_store)
    watch = cluster.watch
    loop.set_exception_handler(cluster.unhandled)
    with _listening(watch):
        try:
            loop.run_until_complete(cluster.run())
        except LeaseworkError as error:
            watch.wrong(f"the run broke off: {error}")
        finally:
            seconds, violations = loop.time(), list(watch.violations)
            lines = watch.trace.lines if watch.trace else []
            watch.trace = None
            loop.run_until_complete(cluster.end())
            loop.close()
    counts = {
        **watch.counts,
        "statements": cluster.server.statements,
        "enqueues": cluster.work.enqueues,
        "jobs": len(cluster.db.done),
        "terms": len(cluster.db.terms),
        "unknown": sum(link.unknown for link in cluster.links),
        "ticks": len(cluster.db.ticks),
    }
    return Result(seed, cluster.profile, violations, counts, seconds, lines)
