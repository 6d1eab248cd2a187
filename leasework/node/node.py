"""The node: its services, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, ClassVar
from uuid import UUID

from leasework import errors, own_tasks
from leasework.config import Settings
from leasework.duties.deadlines import DeadlineSweeper
from leasework.duties.leading import leader_duties
from leasework.duties.syncer import Syncer
from leasework.env import LOOP_FACTORY, Env
from leasework.jobs.acker import Acker
from leasework.jobs.attempt import Attempts
from leasework.jobs.executor import Executor, LocalQueue
from leasework.jobs.failed_starts import Starts
from leasework.jobs.limited import LimitedClaimer
from leasework.jobs.process import ProcessPool
from leasework.jobs.producer import Claimer, Producer, Sleepers
from leasework.jobs.running import Running
from leasework.jobs.tasks import Registry
from leasework.lease import messages
from leasework.lease.guard import Guard
from leasework.loops.recorder import Recorder
from leasework.loops.service import Loop, Outage, Service, ServiceContext
from leasework.model.outcome import Stopped
from leasework.node.host import GuardsHost
from leasework.node.plan import NodePlan, Tools
from leasework.node.reach import reach_database, registered
from leasework.store.listener import Handlers
from leasework.store.nodes import NodeIdentity, Signal


class Node:
    """A process's part in running an application. Call ``start``, then ``stop``. It belongs to one
    event loop and one process."""

    on_drain: Callable[[bool], None] | None = None
    """Called to end the process after its jobs. A worker process sets it, a web worker does not.
    True: a person drains this process alone. False: a person drains the whole application."""

    host_type: ClassVar[type[GuardsHost]] = GuardsHost

    def __init__(
        self, plan: NodePlan, tools: Tools, registry: Registry, settings: Settings, env: Env
    ) -> None:
        self._plan = plan
        self._tools = tools
        self._registry = registry
        self._settings = settings
        self._env = env
        self._store = tools.store
        self._loop = asyncio.get_running_loop()
        self._joined: asyncio.Future[None] = self._loop.create_future()
        self._stopping = False
        self._given_back = 0
        self._cancelled = 0
        self._limited: LimitedClaimer | None = None
        """Claims jobs with limits, if the application has limits or fair queues."""
        self._build()

    def _build(self) -> None:
        settings, env, tools = self._settings, self._env, self._tools
        slots = sum(self._plan.queues.values()) or 1
        self.recorder = Recorder(env, self._store)
        emit = self._emit = self.recorder.emit
        context = self.context = ServiceContext(settings, env, emit, self._store, tools.users)
        self.running = Running()
        starts = Starts(env, emit)
        self.processes = ProcessPool(context, slots, starts, lambda: self.attempts.worker_id)
        self.acker = Acker(context, self._registry, self.running, slots)
        self.attempts = Attempts(
            context,
            self._registry,
            tools.on_connection,
            lambda: self.guard.membership,
            self.processes.run,
            slots,
            starts,
        )
        self.executor = Executor(
            context, self.running, self.acker, lambda: self.guard.membership, self.attempts
        )
        for name, count in self._plan.queues.items():
            claim = self._plan.claims.get(name, "rows")
            self.executor.queues[name] = LocalQueue(name, count, claim)
        handlers: dict[str, Callable[[str], None]] = {}
        self.wakeups = tools.wakeups(handlers, emit)
        host = self._host = self._make_host()
        self.guard = Guard(tools.guard_store, env, settings.timings, emit, host)
        self._sleepers = Sleepers(self._store, self.guard)
        not_tasks = self.attempts.not_tasks
        self._claimer = Claimer(context, tools.claims, self.guard, self.executor, not_tasks)
        self._build_loops()
        handlers |= self._handlers()

    def _build_loops(self) -> None:
        context, plan = self.context, self._plan
        self._producer = Producer(
            context,
            self.executor,
            self._claimer,
            self.acker,
            self._sleepers,
            lambda: self.wakeups.healthy,
        )
        if self._registry.has_limits:
            self._limited = LimitedClaimer(
                context, self.executor, self._claimer, self.acker, self._registry
            )
        self._claim_loop = Loop(self._producer, self._env, self._emit)
        self._duties = leader_duties(context, self.guard, lambda: self._loops["deadlines"].wake())
        services: list[Service] = [self.recorder, self.acker, DeadlineSweeper(context, self.leads)]
        if plan.planned:
            on_change = self._duties["periodic"].wake
            services.append(Syncer(context, plan.release, plan.planned, self.guard, on_change))
        if self._limited:
            services.append(self._limited)
        self._loops = {each.name: Loop(each, self._env, self._emit) for each in services}
        self.recorder.wake = self._loops["recorder"].wake_from_any_thread

    def _make_host(self) -> GuardsHost:
        return self.host_type(
            self._plan,
            self.context,
            self._registry,
            self.recorder,
            self.processes,
            self.executor,
            self.wakeups,
            self.receive,
            lambda: self.on_drain is not None,
        )

    def leads(self) -> bool:
        """Return whether this process leads its application at this moment."""
        return self.guard.leads()

    async def start(self) -> None:
        """Join the application, and return when the node holds its lease. Raises ServerError if
        leasework cannot work with the database, and Unavailable if the database does not answer
        within ``call_timeout``, or if this process cannot register within ``recover_within`` after
        that."""
        await reach_database(self._store, self._settings, self._env, self._emit)
        self._start_guard()
        try:
            self.wakeups.start()
            await registered(self._joined, self._settings)
        except BaseException:
            # also if the start is cancelled: a guard alone would lead without its duties
            await asyncio.shield(self._leave())
            raise
        outage = Outage(lambda: self._store.database_now(self._env.due_now()))
        for loop in self._all_loops():
            loop.outage = outage
            loop.on_back = self._on_database_back
            loop.start()

    async def stop(self) -> None:
        """Stop claiming, resign, give back waiting jobs, drain, cancel, record, and leave."""
        if self._stopping:
            return
        self._stopping = True
        await self._claim_loop.stop()
        if self._limited:
            self._limited = None
            await self._loops["limits"].stop()
        await self._in_guard(self.guard.resign_all("stopped"))
        await asyncio.gather(*[own_tasks.start(d.stop()) for d in self._duties.values()])
        await self._give_back(self.executor.take_waiting())
        await self._drain()
        await self._leave()

    async def _give_back(self, claims: list[tuple[UUID, int]]) -> None:
        node = self.guard.membership.identity.id
        for start in range(0, len(claims), self._settings.limits.batch_rows):
            batch = claims[start : start + self._settings.limits.batch_rows]
            try:
                self._given_back += await self._store.give_back(node, batch, self._env.due_now())
            except errors.LeaseworkError:  # once more at the end; else another node rescues them
                self._host.not_returned += batch

    async def _drain(self) -> None:
        if not await self.executor.wait_idle(self._settings.grace):
            self._cancelled = self.executor.busy()
            self.executor.end_all("stopping")
            # limited, because a thread cannot be ended, and a handler may ignore cancellation
            await self.executor.wait_idle(self._settings.timings.grace + 1.0)
            for claim in self.running.snapshot():
                over = claim.ended or claim.completed_elsewhere  # it has an outcome
                if claim.started_at is not None and not over:
                    self.acker.put(claim, Stopped(), self._env.boot_now())
                    self._given_back += 1
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.call_timeout):
                while self.acker.backlog:
                    if not self._loops["acker"].lost:  # else it tries again by itself, less often
                        self._loops["acker"].wake()
                    await asyncio.sleep(0.005)

    async def _leave(self) -> None:
        await self.processes.close()
        self.attempts.close()
        for loop in self._loops.values():
            await loop.stop()
        # Jobs that did not end in time or could not be recorded. Once this node's row is deleted, a
        # rescue would count them as crashed. Their tokens refuse what these runs still write.
        left = self.executor.busy()
        await self._give_back([*self._host.not_returned, *self.running.pairs()])
        given_back, cancelled = self._given_back, self._cancelled
        self._emit("node_stopped", given_back=given_back, cancelled=cancelled, running=left)
        with suppress(errors.LeaseworkError):
            while await self.recorder.tick(self._env.due_now()) == 0.0:
                pass
        self._host.watchdog.close()  # nothing runs any more, so the rest may take longer
        self.guard.stop()
        await own_tasks.in_thread_of_its_own(self._thread.join, self._settings.call_timeout)
        await self.wakeups.stop()

    def _start_guard(self) -> None:
        self._thread = threading.Thread(target=self._guard, name="leasework-guard", daemon=True)
        self._thread.start()

    def _guard(self) -> None:
        try:
            with asyncio.Runner(loop_factory=LOOP_FACTORY) as runner:
                runner.run(self.guard.run())
        except BaseException as error:  # otherwise start() would wait for it forever
            text = errors.told(error)
            self._emit("service_failed", service="guard", error=text)
            refused = messages.Refused(errors.Unavailable(f"the guard ended: {text}"))
            self._host.send(refused)

    async def _in_guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the guard's loop and wait for it."""
        if not self._thread.is_alive():
            work.close()
            return
        future = asyncio.run_coroutine_threadsafe(work, self.guard.loop)
        await asyncio.wrap_future(future)

    def receive(self, message: messages.Message) -> None:
        """Act on a message of the guard."""
        match message:
            case messages.Joined(identity):
                self._on_joined(identity)
            case messages.Refused(error):
                if not self._joined.done():
                    self._joined.set_exception(error)
            case messages.Fenced():
                self.executor.take_waiting()
                self.executor.end_all("lost")
            case messages.Note.ANSWERS:
                self._on_database_back()
            case messages.Note.LEADS | messages.Note.LEADS_NOT:
                for loop in [*self._duties.values(), self._loops["deadlines"]]:
                    loop.wake()
            case messages.Note.NODES_CHANGED:
                self._duties["rescuer"].wake()
                if "syncer" in self._loops:
                    self._loops["syncer"].wake()
            case messages.Halted(halted):
                self._claimer.halted = halted
                self._wake_all()
            case messages.Paused(pauses):
                self._claimer.pause(pauses)
                self._producer.pauses_changed()
                self._wake_all()
            case messages.Note.FAILED_OVER:
                # it may have lost acknowledged commits: completions, so that a finished job is this
                # node's again; claims; and the sleeping queues in this node's row
                self._claimer.doubt()
                self._sleepers.forget()
                self._producer.look()
            case messages.Note.MUTED:
                self.wakeups.check()
            case messages.Note.CLAIMS_UNKNOWN:
                self._claimer.doubt()
                self._claim_loop.wake()
            case messages.Signalled(signals):
                self._on_signals(signals)

    def _on_joined(self, identity: NodeIdentity) -> None:
        self.attempts.worker_id = identity.worker_id
        self._sleepers.forget()
        if not self._joined.done():
            self._joined.set_result(None)
        self._wake_all()

    def _on_signals(self, signals: tuple[Signal, ...]) -> None:
        for signal in signals:
            if signal.kind == "drain" and self.on_drain:
                self._drained(self.on_drain, signal.token == 1)
            if signal.kind == "cancel":
                self.running.cancel(signal.token)

    def _drained(self, on_drain: Callable[[bool], None], alone: bool) -> None:
        try:
            on_drain(alone)
        except Exception as error:  # from the user's code
            self._emit("callback_failed", name="on_drain", error=errors.told(error))

    def _handlers(self) -> Handlers:
        """What a notification of each kind leads to."""

        def on_jobs(queue: str) -> None:
            self._producer.look(queue)
            if self._limited:
                self._limited.look(queue)

        def on_death(_: str) -> None:
            self._duties["rescuer"].wake()
            self.guard.poke()

        def on_schedules(app: str) -> None:
            if app == self._settings.name:
                self._duties["periodic"].wake()

        def on_signal(node: str) -> None:
            if node == str(self.guard.membership.identity.id):
                self.guard.poke()

        return {
            "q": on_jobs if self._limited else self._producer.look,
            "d": on_death,
            "e": lambda _: self.guard.poke(),
            "l": lambda subject: self.guard.lock_is_free(subject),
            "s": on_schedules,
            "c": on_signal,
        }

    def _wake_all(self) -> None:
        for loop in self._all_loops():
            loop.wake()

    def _on_database_back(self) -> None:
        for loop in self._all_loops():
            if loop.lost:
                loop.wake()

    def _all_loops(self) -> list[Loop]:
        return [self._claim_loop, *self._loops.values(), *self._duties.values()]
