"""The node's side of the guard: answers the guard's calls, in the guard's thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from leasework.env import assigned_node_id, take_assigned_node_id
from leasework.jobs.acker import Acker
from leasework.jobs.executor import Executor
from leasework.jobs.failed_starts import Starts
from leasework.jobs.overdue import Overdue
from leasework.jobs.process import ProcessPool
from leasework.jobs.running import Running
from leasework.jobs.stacks import stack_of
from leasework.jobs.tasks import Registry
from leasework.lease import news
from leasework.lease.host import Host
from leasework.loops.recorder import Recorder
from leasework.loops.service import ServiceContext
from leasework.model.states import State
from leasework.node.plan import EXIT_FENCED, NodePlan
from leasework.node.watchdog import Watchdog
from leasework.ports import NodeIdentity, Signal, Store, Wakeups


@dataclass(eq=False)
class GuardsHost(Host):
    """The node in the guard's thread. Nothing here waits. Constructed in the user's thread."""

    plan: NodePlan
    context: ServiceContext
    registry: Registry
    recorder: Recorder
    watchdog: Watchdog
    starts: Starts
    overdue: Overdue
    running: Running
    processes: ProcessPool
    acker: Acker
    executor: Executor
    wakeups: Wakeups
    hear: Callable[[news.News], None]
    """Called in the user's loop with what the guard tells."""
    drains: Callable[[], bool]
    """Whether a person may drain this process."""
    loop: asyncio.AbstractEventLoop
    """The user's loop."""
    in_loop: Callable[..., None]
    """Calls a function in the user's loop soon."""
    not_returned: list[tuple[UUID, int]]
    """Claims to give back: (job, token). The node does it if it stops before that."""

    def __post_init__(self) -> None:
        context = self.context
        self._settings, self._env, self._emit = context.settings, context.env, context.emit
        self._user = threading.get_ident()
        self._assigned = take_assigned_node_id()
        self._looks: list[Signal] = []
        """Signals of people who want to see a job's stack."""
        self._ping_sent = 0.0
        self._ran_at = self._env.boot_now()
        self._pinging = False
        self._halted = False
        """A person has halted the node's claims, by the guard's last report."""
        self._heard_at = 0.0

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

    # -- what the guard tells --------------------------------------------------------------------
    def tell(self, item: news.News) -> None:
        match item:
            case news.Renewed(deadline):
                if self.plan.hard_exit:
                    left = deadline - self._env.boot_now()
                    self.watchdog.put_off(left + self._settings.timings.grace)
                return
            case news.GraceOver():
                self._grace_over()
                return
            case news.Joined(me):
                self._emit("node_started", app=me.app, release=me.release, queues=list(me.queues))
            case news.Fenced(why):
                self._fenced(why)
            case news.Signalled(signals):
                self._looks += [s for s in signals if s.kind == "stack"]
            case news.Halted(halted):
                self._halted = halted
                self._emit("node_halted" if halted else "node_resumed")
        self.in_loop(self.hear, item)

    def _fenced(self, why: str) -> None:
        self._emit("node_fenced", why=why, running=self.running.started())
        if self.plan.hard_exit:
            # the guard is alive, since it calls this: it ends the process itself if necessary
            self.watchdog.put_off(2 * self._settings.timings.grace)
        # kill child processes from this thread, because the user's loop may be blocked
        self.processes.kill_all()

    def _grace_over(self) -> None:
        if not self.plan.hard_exit:
            self._emit("node_overlaps", running=self.running.started())
            return
        self._emit("node_exits", running=self.running.started())
        os._exit(EXIT_FENCED)

    # -- what the guard asks ---------------------------------------------------------------------
    def quiet(self) -> bool:
        return bool(self.loop_gone()) or not self.executor.busy()

    def loop_gone(self) -> str:
        if self.loop.is_closed():
            return "closed"
        now = self._env.boot_now()
        if self.loop.is_running():  # also while a handler blocks it
            self._ran_at = now
        return "stopped" if now - self._ran_at > self._settings.timings.lease else ""

    def unrecorded(self) -> int:
        return self.acker.backlog

    def info(self) -> dict[str, Any]:
        return {
            "assigned": str(assigned_node_id() or "") or None,
            "drains": self.drains(),
            "halted": self._halted,
            "running": self.running.started(),
            "in_hand": len(self.running),
            "unrecorded": self.acker.backlog,
            "listening": self.wakeups.healthy,
            "pooled": self.wakeups.pooled,
            "deaf_seconds": self._deaf_seconds(),
            "loop_stuck": self._stuck_seconds(),
            "cannot_start": self.starts.trouble,
            "overdue": self.overdue.listing(),
        }

    def loop_lag(self) -> float:
        now = self._env.boot_now()
        if self._pinging:
            return now - self._ping_sent
        self._pinging, self._ping_sent = True, now
        self.in_loop(self._pong)
        return 0.0

    def _pong(self) -> None:
        self._pinging = False

    def _stuck_seconds(self) -> float:
        """Return for how long the user's loop has been stuck."""
        lag = self._env.boot_now() - self._ping_sent if self._pinging else 0.0
        return round(lag, 1) if lag > self._settings.timings.stuck else 0.0

    def _deaf_seconds(self) -> float:
        """Return for how long expected wake-ups have not arrived."""
        now = self._env.boot_now()
        expected = self._settings.listen and not self.wakeups.pooled
        if self.wakeups.healthy or not expected or not self._heard_at:
            self._heard_at = now
        return round(now - self._heard_at, 1)

    # -- over the guard's own connection ---------------------------------------------------------
    async def look_after_jobs(self, store: Store, until: float) -> None:
        """Record the requested stacks, give back what a stuck loop cannot start, and take overdue
        jobs away."""
        await self._look_at_stacks(store, until)
        await self._give_back_waiting(store, until)
        for claim in self.overdue.to_take_away():
            job = claim.job
            state = await store.requeue(job.id, job.claim_token, self._env.due_now())
            if state is not State.RUNNING:  # else its handler holds the row: try again later
                if state:
                    self.overdue.taken(claim, state)
                self.overdue.given_up(claim)
                self.in_loop(claim.end, "lost")
            if self._env.boot_now() >= until:
                return

    async def _give_back_waiting(self, store: Store, until: float) -> None:
        """Let other nodes run the jobs that wait in this one while its loop is stuck, and all its
        jobs if the loop is gone."""
        me, left = self.recorder.identity, self.not_returned
        if self.loop_gone():
            self.processes.kill_all()
            self.running.lose()
            left += [pair for pair in self.running.pairs() if pair not in left]
        if self._stuck_seconds():
            left += self.executor.take_waiting(*self.executor.queues.values())
        while me and left and self._env.boot_now() < until:
            batch = left[: self._settings.limits.batch_rows]
            gone = await store.give_back(me.id, batch, self._env.due_now())
            del left[: len(batch)]  # without an answer, they are given back again
            if gone < len(batch):
                self.in_loop(self.hear, news.ClaimsUnknown())

    async def _look_at_stacks(self, store: Store, until: float) -> None:
        """Not in the user's loop, which a handler may block."""
        while self._looks:
            asked = self._looks.pop(0)
            claim = self.running.of_token(asked.token)
            says = stack_of(claim, self._user, self._settings.limits.error_chars)
            me = self.recorder.identity
            assert me
            await store.answer_stack(me.id, asked.job, says, self._env.due_now())
            if self._env.boot_now() >= until:
                return
