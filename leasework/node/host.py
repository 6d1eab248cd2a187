"""The node's side of the guard: answers the guard's calls, in the guard's thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from leasework.env import assigned_node_id, take_assigned_node_id
from leasework.jobs.executor import Executor
from leasework.jobs.process import ProcessPool
from leasework.jobs.running import Overdue
from leasework.jobs.stacks import stack_of
from leasework.jobs.tasks import Registry
from leasework.lease import messages
from leasework.lease.host import Host
from leasework.loops.recorder import Recorder
from leasework.loops.service import ServiceContext
from leasework.model.states import State
from leasework.node.plan import EXIT_FENCED, NodePlan
from leasework.node.watchdog import Watchdog
from leasework.pg.connection.faults import shortages
from leasework.store.listener import Listener
from leasework.store.nodes import NodeIdentity, Signal
from leasework.store.store import Store

MOST_LIMITED = 100
"""Tasks with limits that a node names in its row."""


@dataclass(eq=False)
class GuardsHost(Host):
    """The node in the guard's thread. Nothing here waits. Constructed in the user's thread."""

    plan: NodePlan
    context: ServiceContext
    registry: Registry
    recorder: Recorder
    processes: ProcessPool
    executor: Executor
    wakeups: Listener
    receive: Callable[[messages.Message], None]
    """Called in the user's loop with the guard's messages."""
    drains: Callable[[], bool]
    """Whether a person may drain this process."""

    def __post_init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        """The user's loop."""
        self.not_returned: list[tuple[UUID, int]] = []
        """Claims to give back: (job, token). The node does it if it stops before that."""
        context = self.context
        self._settings, self._env, self._emit = context.settings, context.env, context.emit
        self._timings = context.settings.timings
        self.watchdog = Watchdog(self._timings.grace, self._emit)
        self._running, self._acker = self.executor.running, self.executor.acker
        self._overdue = Overdue(self._env, self._running, self._emit)
        self._user = threading.get_ident()
        self._assigned = take_assigned_node_id()
        self._chosen = str(assigned_node_id() or "") or None
        """The id that our parent chose, even after it was taken."""
        self._limited = self.registry.limited()[:MOST_LIMITED]
        self._looks: list[Signal] = []
        """Signals of people who want to see a job's stack."""
        self._ping_sent = 0.0
        self._ran_at = self._env.boot_now()
        self._pinging = False
        self._halted = False
        """A person has halted the node's claims, by the guard's last report."""
        self._heard_at = 0.0
        self._shortages, self._refused_at = shortages.count, float("-inf")

    def new_identity(self) -> NodeIdentity:
        self.watchdog.call_off()  # the guard is alive, and the old identity has ended
        assigned, self._assigned = self._assigned, None
        identity = NodeIdentity(
            id=assigned or self._env.new_id(),
            app=self._settings.name,
            release=self.plan.release,
            host=self._env.host,
            pid=self._env.pid,
            version=self.plan.version,
            executes=bool(self.plan.queues),
            tasks=self.registry.known() if self.plan.queues else (),
            queues=self.plan.queues,
            halted=self._halted,
            defines=bool(self.plan.planned),
        )
        self.recorder.identity = identity
        return identity

    def send(self, message: messages.Message) -> None:
        match message:
            case messages.Renewed(deadline):
                if self.plan.hard_exit:
                    left = deadline - self._env.boot_now()
                    self.watchdog.put_off(left + self._timings.grace)
                return
            case messages.Note.GRACE_OVER:
                self._grace_over()
                return
            case messages.Joined(me):
                self._emit("node_started", app=me.app, release=me.release, queues=list(me.queues))
            case messages.Fenced(why):
                self._fenced(why)
            case messages.Signalled(signals):
                self._looks += [s for s in signals if s.kind == "stack"]
            case messages.Halted(halted):
                self._halted = halted
                self._emit("node_halted" if halted else "node_resumed")
        self.in_loop(self.receive, message)

    def _fenced(self, why: str) -> None:
        self._emit("node_fenced", why=why, running=self._running.started())
        if self.plan.hard_exit:
            # the guard is alive, since it calls this: it ends the process itself if necessary
            self.watchdog.put_off(2 * self._timings.grace)
        # kill child processes from this thread, because the user's loop may be blocked
        self.processes.kill_all()

    def _grace_over(self) -> None:
        if not self.plan.hard_exit:
            self._emit("node_overlaps", running=self._running.started())
            return
        self._emit("node_exits", running=self._running.started())
        os._exit(EXIT_FENCED)

    def quiet(self) -> bool:
        return bool(self.loop_gone()) or not self.executor.busy()

    def loop_gone(self) -> str:
        if self.loop.is_closed():
            return "closed"
        now = self._env.boot_now()
        if self.loop.is_running():  # also while a handler blocks it
            self._ran_at = now
        return "stopped" if now - self._ran_at > self._timings.lease else ""

    def unrecorded(self) -> int:
        return self._acker.backlog

    def info(self) -> dict[str, Any]:
        now = self._env.boot_now()
        if shortages.count != self._shortages:  # refused, because the server lacks something
            self._shortages, self._refused_at = shortages.count, now
        return {
            "assigned": self._chosen,
            "drains": self.drains(),
            "halted": self._halted,
            "running": self._running.started(),
            "in_hand": len(self._running),
            "unrecorded": self._acker.backlog,
            "listening": self.wakeups.healthy,
            "deaf_seconds": self._deaf_seconds(),
            "loop_stuck": self._stuck_seconds(),
            "cannot_start": self.processes.starts.trouble,
            "overdue": self._overdue.listing(),
            "long": self._overdue.long(),
            "refused": shortages.newest if now - self._refused_at < 60.0 else "",
            "limits": self.registry.has_limits,
            "limited": self._limited,
        }

    def loop_lag(self) -> float:
        now = self._env.boot_now()
        if self._pinging:
            return now - self._ping_sent
        self._pinging, self._ping_sent = True, now
        self.in_loop(self._pong)
        return 0.0

    def in_loop(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call a function in the user's loop soon."""
        with suppress(RuntimeError):  # the loop is closed: the process is ending
            self.loop.call_soon_threadsafe(call, *arguments)

    def _pong(self) -> None:
        self._pinging = False

    def _stuck_seconds(self) -> float:
        """Return for how long the user's loop has been stuck."""
        lag = self._env.boot_now() - self._ping_sent if self._pinging else 0.0
        return round(lag, 1) if lag > self._timings.stuck else 0.0

    def _deaf_seconds(self) -> float:
        """Return for how long expected wake-ups have not arrived."""
        now = self._env.boot_now()
        expected = self._settings.listen and not self.wakeups.pooled
        if self.wakeups.healthy or not expected or not self._heard_at:
            self._heard_at = now
        return round(now - self._heard_at, 1)

    async def look_after_jobs(self, store: Store, until: float) -> None:
        """Record the requested stacks, give back what a stuck loop cannot start, and take overdue
        jobs away."""
        await self._look_at_stacks(store, until)
        await self._give_back_waiting(store, until)
        for claim in self._overdue.to_take_away():
            job = claim.job
            state = await store.requeue(job.id, job.claim_token, self._env.due_now())
            if state is not State.RUNNING:  # else its handler holds the row: try again later
                if state:
                    self._overdue.taken(claim, state)
                self._overdue.given_up(claim)
                self.in_loop(claim.end, "lost")
            if self._env.boot_now() >= until:
                return

    async def _give_back_waiting(self, store: Store, until: float) -> None:
        """Let other nodes run the jobs that wait in this one while its loop is stuck, and all its
        jobs if the loop is gone."""
        me, left = self.recorder.identity, self.not_returned
        if self.loop_gone():
            self.processes.kill_all()
            self._running.lose()
            left += [pair for pair in self._running.pairs() if pair not in left]
        if self._stuck_seconds():
            left += self.executor.take_waiting(*self.executor.queues.values())
        while me and left and self._env.boot_now() < until:
            batch = left[: self._settings.limits.batch_rows]
            gone = await store.give_back(me.id, batch, self._env.due_now())
            del left[: len(batch)]  # without an answer, they are given back again
            if gone < len(batch):
                self.in_loop(self.receive, messages.Note.CLAIMS_UNKNOWN)

    async def _look_at_stacks(self, store: Store, until: float) -> None:
        """Not in the user's loop, which a handler may block."""
        while self._looks:
            asked = self._looks.pop(0)
            claim = self._running.of_token(asked.token)
            says = stack_of(claim, self._user, self._settings.limits.error_chars)
            me = self.recorder.identity
            assert me
            await store.answer_stack(me.id, asked.job, says, self._env.due_now())
            if self._env.boot_now() >= until:
                return
