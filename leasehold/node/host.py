"""What the guard asks of its node and tells it, in the guard's thread."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from leasehold import errors
from leasehold.config import Settings
from leasehold.env import Env, assigned_node_id
from leasehold.jobs.acker import Acker
from leasehold.jobs.executor import Executor
from leasehold.jobs.overdue import Overdue
from leasehold.jobs.process import ProcessPool
from leasehold.jobs.running import Running
from leasehold.jobs.stacks import stack_of
from leasehold.jobs.starts import Starts
from leasehold.jobs.tasks import Registry
from leasehold.lease.guard import Guard
from leasehold.loops.recorder import Recorder
from leasehold.model.states import State
from leasehold.node.plan import EXIT_FENCED, NodePlan
from leasehold.node.watchdog import Watchdog
from leasehold.ports import NodeIdentity, Signal, Wakeups
from leasehold.telemetry import Emit


class GuardsHost(ABC):
    """One half of the node; nothing here waits. What belongs to the user's loop is passed on."""

    _plan: NodePlan
    _registry: Registry
    _settings: Settings
    _env: Env
    _emit: Emit
    _starts: Starts
    _watchdog: Watchdog
    _overdue: Overdue
    _assigned: Any
    _user: int
    """The number of the user's thread."""
    _looks: list[Signal]
    """Stacks that somebody wants to see."""
    _ping_sent = 0.0
    _halted = False
    """A person wants no more claims: as the guard was told last."""
    _pinging = False
    _heard_at = 0.0
    recorder: Recorder
    on_drain: Callable[[bool], None] | None = None
    """Ends the process, after its jobs; a process of its own sets it, a web worker does not. True:
    it alone was asked, False: all of the application."""
    guard: Guard
    running: Running
    executor: Executor
    acker: Acker
    processes: ProcessPool
    wakeups: Wakeups

    @abstractmethod
    def _in_loop(self, call: Callable[..., Any], *arguments: Any) -> None: ...

    @abstractmethod
    def _on_joined(self, identity: NodeIdentity) -> None: ...

    @abstractmethod
    def _on_refused(self, error: errors.LeaseholdError) -> None: ...

    @abstractmethod
    def _on_fenced(self) -> None: ...

    @abstractmethod
    def _on_leadership(self) -> None: ...

    @abstractmethod
    def _on_nodes_changed(self) -> None: ...

    @abstractmethod
    def _on_halted(self, halted: bool) -> None: ...

    @abstractmethod
    def _on_failed_over(self) -> None: ...

    @abstractmethod
    def _on_signals(self, signals: tuple[Signal, ...]) -> None: ...

    def _pong(self) -> None:
        self._pinging = False

    # -- Host ------------------------------------------------------------------------------------
    def new_identity(self) -> NodeIdentity:
        self._watchdog.call_off()  # nothing of the identity before can hang any more
        assigned, self._assigned = self._assigned, None
        identity = NodeIdentity(
            id=assigned or self._env.new_id(),
            app=self._settings.name,
            release=self._plan.release,
            host=self._env.host,
            pid=self._env.pid,
            version=self._plan.version,
            executes=bool(self._plan.queues),
            tasks=self._registry.names() if self._plan.queues else (),
            queues=self._plan.queues,
            halted=self._halted,
        )
        self.recorder.identity = identity
        return identity

    def joined(self, identity: NodeIdentity) -> None:
        self.recorder.identity = identity
        self._emit(
            "node_started",
            app=identity.app,
            release=identity.release,
            queues=list(identity.queues),
        )
        self._in_loop(self._on_joined, identity)

    def refused(self, error: errors.LeaseholdError) -> None:
        self._in_loop(self._on_refused, error)

    def fenced(self, why: str) -> None:
        self._emit("node_fenced", why=why, running=self.running.started())
        if self._plan.hard_exit:
            # the guard lives, or it would not call: it ends the process itself if it must
            self._watchdog.put_off(2 * self._settings.timings.grace)
        # child processes end from here: the user's loop may be blocked
        self.processes.kill_all()
        self._in_loop(self._on_fenced)

    def quiet(self) -> bool:
        return not self.executor.busy()

    def unrecorded(self) -> int:
        return self.acker.backlog

    def grace_over(self) -> None:
        if not self._plan.hard_exit:
            self._emit("node_overlaps", running=self.running.started())
            return
        self._emit("node_exits", running=self.running.started())
        os._exit(EXIT_FENCED)

    def leadership(self, name: str, gained: bool) -> None:
        self._in_loop(self._on_leadership)

    def signals(self, signals: tuple[Signal, ...]) -> None:
        self._looks += [s for s in signals if s.kind == "stack"]
        self._in_loop(self._on_signals, tuple(s for s in signals if s.kind != "stack"))

    def halted(self, halted: bool) -> None:
        self._halted = halted
        self._emit("node_halted" if halted else "node_resumed")
        self._in_loop(self._on_halted, halted)

    def nodes_changed(self) -> None:
        self._in_loop(self._on_nodes_changed)

    def failed_over(self) -> None:
        self._in_loop(self._on_failed_over)

    def loop_lag(self) -> float:
        now = self._env.boot_now()
        if self._pinging:
            return now - self._ping_sent
        self._pinging, self._ping_sent = True, now
        self._in_loop(self._pong)
        return 0.0

    def _deaf_seconds(self) -> float:
        """For how long no wake-ups come that should."""
        now = self._env.boot_now()
        expected = self._settings.listen and not self.wakeups.pooled
        if self.wakeups.healthy or not expected or not self._heard_at:
            self._heard_at = now
        return round(now - self._heard_at, 1)

    def info(self) -> dict[str, Any]:
        return {
            "assigned": str(assigned_node_id() or "") or None,
            "drains": self.on_drain is not None,
            "halted": self._halted,
            "leads": {**self.guard.elections.held(), **self.guard.contests.held()},
            "running": self.running.started(),
            "in_hand": len(self.running),
            "unrecorded": self.acker.backlog,
            "listening": self.wakeups.healthy,
            "pooled": self.wakeups.pooled,
            "deaf_seconds": self._deaf_seconds(),
            "cannot_start": self._starts.trouble,
            "overdue": self._overdue.listing(),
        }

    def renewed(self) -> None:
        if self._plan.hard_exit:
            left = self.guard.membership.lease.deadline - self._env.boot_now()
            self._watchdog.put_off(left + self._settings.timings.grace)

    async def _look_at_stacks(self, until: float) -> None:
        """Here and not in the user's loop: a handler may block that."""
        while self._looks:
            asked = self._looks.pop(0)
            claim = self.running.of_token(asked.token)
            most = self._settings.limits.error_chars
            await self.guard.answer_stack(asked.job, await stack_of(claim, self._user, most))
            if self._env.boot_now() >= until:
                return

    async def look_after_jobs(self, until: float) -> None:
        await self._look_at_stacks(until)
        for claim in self._overdue.to_take_away():
            state = await self.guard.requeue(claim.job.id, claim.job.claim_token)
            if state is not State.RUNNING:  # else its handler holds it: at the next look
                if state:
                    self._overdue.taken(claim, state)
                self._overdue.given_up(claim)
                self._in_loop(claim.end, "lost")
            if self._env.boot_now() >= until:
                return
