"""The node's side of the guard: answers the guard's calls, in the guard's thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from leasehold import errors
from leasehold.config import Settings
from leasehold.env import Env, assigned_node_id, take_assigned_node_id
from leasehold.jobs.acker import Acker
from leasehold.jobs.executor import Executor
from leasehold.jobs.overdue import Overdue
from leasehold.jobs.process import ProcessPool
from leasehold.jobs.running import Running
from leasehold.jobs.stacks import stack_of
from leasehold.jobs.starts import Starts
from leasehold.jobs.tasks import Registry
from leasehold.lease.guard import Guard
from leasehold.lease.host import Host
from leasehold.loops.recorder import Recorder
from leasehold.model.states import State
from leasehold.node.plan import EXIT_FENCED, NodePlan
from leasehold.node.watchdog import Watchdog
from leasehold.ports import NodeIdentity, Signal, Wakeups


class UsersSide(Protocol):
    """The node in the user's loop. These methods are called there, for the guard's thread."""

    on_drain: Callable[[bool], None] | None

    def on_joined(self, identity: NodeIdentity) -> None: ...

    def on_refused(self, error: errors.LeaseholdError) -> None: ...

    def on_fenced(self) -> None: ...

    def on_leadership(self) -> None: ...

    def on_nodes_changed(self) -> None: ...

    def on_halted(self, halted: bool) -> None: ...

    def on_failed_over(self) -> None: ...

    def on_signals(self, signals: tuple[Signal, ...]) -> None: ...


@dataclass(frozen=True)
class Parts:
    """The node's services that GuardsHost uses."""

    recorder: Recorder
    watchdog: Watchdog
    starts: Starts
    overdue: Overdue
    running: Running
    processes: ProcessPool
    acker: Acker
    executor: Executor
    wakeups: Wakeups


class GuardsHost(Host):
    """The node in the guard's thread. Nothing here waits. Constructed in the user's thread."""

    guard: Guard
    """Set after the guard was constructed, which asks for an identity first."""

    def __init__(
        self,
        plan: NodePlan,
        registry: Registry,
        settings: Settings,
        env: Env,
        parts: Parts,
        node: UsersSide,
        in_loop: Callable[..., None],
    ) -> None:
        self._plan = plan
        self._registry = registry
        self._settings = settings
        self._env = env
        self._parts = parts
        self._emit = parts.recorder.emit
        self._node = node
        self._in_loop = in_loop
        """Calls a function in the user's loop soon."""
        self._user = threading.get_ident()
        self._assigned = take_assigned_node_id()
        self._looks: list[Signal] = []
        """Signals of people who want to see a job's stack."""
        self._ping_sent = 0.0
        self._pinging = False
        self._halted = False
        """A person has halted the node's claims, by the guard's last report."""
        self._heard_at = 0.0

    def _pong(self) -> None:
        self._pinging = False

    def new_identity(self) -> NodeIdentity:
        self._parts.watchdog.call_off()  # the guard is alive, and the old identity has ended
        assigned, self._assigned = self._assigned, None
        identity = NodeIdentity(
            id=assigned or self._env.new_id(),
            app=self._settings.name,
            release=self._plan.release,
            host=self._env.host,
            pid=self._env.pid,
            version=self._plan.version,
            executes=bool(self._plan.queues),
            tasks=self._registry.known() if self._plan.queues else (),
            queues=self._plan.queues,
            halted=self._halted,
        )
        self._parts.recorder.identity = identity
        return identity

    def joined(self, identity: NodeIdentity) -> None:
        self._parts.recorder.identity = identity
        self._emit(
            "node_started",
            app=identity.app,
            release=identity.release,
            queues=list(identity.queues),
        )
        self._in_loop(self._node.on_joined, identity)

    def refused(self, error: errors.LeaseholdError) -> None:
        self._in_loop(self._node.on_refused, error)

    def fenced(self, why: str) -> None:
        self._emit("node_fenced", why=why, running=self._parts.running.started())
        if self._plan.hard_exit:
            # the guard is alive, since it calls this: it ends the process itself if necessary
            self._parts.watchdog.put_off(2 * self._settings.timings.grace)
        # kill child processes from this thread, because the user's loop may be blocked
        self._parts.processes.kill_all()
        self._in_loop(self._node.on_fenced)

    def quiet(self) -> bool:
        return not self._parts.executor.busy()

    def unrecorded(self) -> int:
        return self._parts.acker.backlog

    def grace_over(self) -> None:
        if not self._plan.hard_exit:
            self._emit("node_overlaps", running=self._parts.running.started())
            return
        self._emit("node_exits", running=self._parts.running.started())
        os._exit(EXIT_FENCED)

    def leadership(self, name: str, gained: bool) -> None:
        self._in_loop(self._node.on_leadership)

    def signals(self, signals: tuple[Signal, ...]) -> None:
        self._looks += [s for s in signals if s.kind == "stack"]
        self._in_loop(self._node.on_signals, tuple(s for s in signals if s.kind != "stack"))

    def halted(self, halted: bool) -> None:
        self._halted = halted
        self._emit("node_halted" if halted else "node_resumed")
        self._in_loop(self._node.on_halted, halted)

    def nodes_changed(self) -> None:
        self._in_loop(self._node.on_nodes_changed)

    def failed_over(self) -> None:
        self._in_loop(self._node.on_failed_over)

    def loop_lag(self) -> float:
        now = self._env.boot_now()
        if self._pinging:
            return now - self._ping_sent
        self._pinging, self._ping_sent = True, now
        self._in_loop(self._pong)
        return 0.0

    def _deaf_seconds(self) -> float:
        """Return for how long expected wake-ups have not arrived."""
        now = self._env.boot_now()
        expected = self._settings.listen and not self._parts.wakeups.pooled
        if self._parts.wakeups.healthy or not expected or not self._heard_at:
            self._heard_at = now
        return round(now - self._heard_at, 1)

    def info(self) -> dict[str, Any]:
        return {
            "assigned": str(assigned_node_id() or "") or None,
            "drains": self._node.on_drain is not None,
            "halted": self._halted,
            "leads": self.guard.held(),
            "running": self._parts.running.started(),
            "in_hand": len(self._parts.running),
            "unrecorded": self._parts.acker.backlog,
            "listening": self._parts.wakeups.healthy,
            "pooled": self._parts.wakeups.pooled,
            "deaf_seconds": self._deaf_seconds(),
            "cannot_start": self._parts.starts.trouble,
            "overdue": self._parts.overdue.listing(),
        }

    def renewed(self) -> None:
        if self._plan.hard_exit:
            left = self.guard.membership.lease.deadline - self._env.boot_now()
            self._parts.watchdog.put_off(left + self._settings.timings.grace)

    async def _look_at_stacks(self, until: float) -> None:
        """Record the requested stacks. Not in the user's loop, which a handler may block."""
        while self._looks:
            asked = self._looks.pop(0)
            claim = self._parts.running.of_token(asked.token)
            most = self._settings.limits.error_chars
            await self.guard.answer_stack(asked.job, await stack_of(claim, self._user, most))
            if self._env.boot_now() >= until:
                return

    async def look_after_jobs(self, until: float) -> None:
        await self._look_at_stacks(until)
        for claim in self._parts.overdue.to_take_away():
            state = await self.guard.requeue(claim.job.id, claim.job.claim_token)
            if state is not State.RUNNING:  # else its handler holds the row: try again later
                if state:
                    self._parts.overdue.taken(claim, state)
                self._parts.overdue.given_up(claim)
                self._in_loop(claim.end, "lost")
            if self._env.boot_now() >= until:
                return
