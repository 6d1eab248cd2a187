"""The node's side of the guard: answers the guard's calls, in the guard's thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from leasehold.env import assigned_node_id, take_assigned_node_id
from leasehold.jobs.acker import Acker
from leasehold.jobs.executor import Executor
from leasehold.jobs.failed_starts import Starts
from leasehold.jobs.overdue import Overdue
from leasehold.jobs.process import ProcessPool
from leasehold.jobs.running import Running
from leasehold.jobs.stacks import stack_of
from leasehold.jobs.tasks import Registry
from leasehold.lease import news
from leasehold.lease.host import Condition
from leasehold.loops.recorder import Recorder
from leasehold.loops.service import ServiceContext
from leasehold.model.states import State
from leasehold.node.plan import EXIT_FENCED, NodePlan
from leasehold.node.watchdog import Watchdog
from leasehold.ports import NodeIdentity, Signal, Store, Wakeups


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


class GuardsHost:
    """The node in the guard's thread. Nothing here waits. Constructed in the user's thread.

    ``hear`` is called in the user's loop with what the guard tells. ``drains``: a person may drain
    this process. ``in_loop`` calls a function in the user's loop soon.
    """

    def __init__(
        self,
        plan: NodePlan,
        context: ServiceContext,
        registry: Registry,
        parts: Parts,
        hear: Callable[[news.News], None],
        drains: Callable[[], bool],
        in_loop: Callable[..., None],
    ) -> None:
        self._plan = plan
        self._settings, self._env, self._emit = context.settings, context.env, context.emit
        self._registry = registry
        self._parts = parts
        self._hear = hear
        self._drains = drains
        self._in_loop = in_loop
        self._user = threading.get_ident()
        self._assigned = take_assigned_node_id()
        self._looks: list[Signal] = []
        """Signals of people who want to see a job's stack."""
        self._ping_sent = 0.0
        self._pinging = False
        self._halted = False
        """A person has halted the node's claims, by the guard's last report."""
        self._heard_at = 0.0

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

    # -- what the guard tells --------------------------------------------------------------------
    def tell(self, item: news.News) -> None:
        match item:
            case news.Renewed(deadline):
                if self._plan.hard_exit:
                    left = deadline - self._env.boot_now()
                    self._parts.watchdog.put_off(left + self._settings.timings.grace)
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
        self._in_loop(self._hear, item)

    def _fenced(self, why: str) -> None:
        self._emit("node_fenced", why=why, running=self._parts.running.started())
        if self._plan.hard_exit:
            # the guard is alive, since it calls this: it ends the process itself if necessary
            self._parts.watchdog.put_off(2 * self._settings.timings.grace)
        # kill child processes from this thread, because the user's loop may be blocked
        self._parts.processes.kill_all()

    def _grace_over(self) -> None:
        if not self._plan.hard_exit:
            self._emit("node_overlaps", running=self._parts.running.started())
            return
        self._emit("node_exits", running=self._parts.running.started())
        os._exit(EXIT_FENCED)

    # -- what the guard asks ---------------------------------------------------------------------
    def condition(self) -> Condition:
        parts = self._parts
        return Condition(
            quiet=not parts.executor.busy(),
            unrecorded=parts.acker.backlog,
            loop_lag=self._loop_lag(),
            info={
                "assigned": str(assigned_node_id() or "") or None,
                "drains": self._drains(),
                "halted": self._halted,
                "running": parts.running.started(),
                "in_hand": len(parts.running),
                "unrecorded": parts.acker.backlog,
                "listening": parts.wakeups.healthy,
                "pooled": parts.wakeups.pooled,
                "deaf_seconds": self._deaf_seconds(),
                "cannot_start": parts.starts.trouble,
                "overdue": parts.overdue.listing(),
            },
        )

    def _loop_lag(self) -> float:
        now = self._env.boot_now()
        if self._pinging:
            return now - self._ping_sent
        self._pinging, self._ping_sent = True, now
        self._in_loop(self._pong)
        return 0.0

    def _pong(self) -> None:
        self._pinging = False

    def _deaf_seconds(self) -> float:
        """Return for how long expected wake-ups have not arrived."""
        now = self._env.boot_now()
        expected = self._settings.listen and not self._parts.wakeups.pooled
        if self._parts.wakeups.healthy or not expected or not self._heard_at:
            self._heard_at = now
        return round(now - self._heard_at, 1)

    # -- over the guard's own connection ---------------------------------------------------------
    async def look_after_jobs(self, store: Store, until: float) -> None:
        """Record the requested stacks, and take overdue jobs away."""
        await self._look_at_stacks(store, until)
        for claim in self._parts.overdue.to_take_away():
            job = claim.job
            state = await store.requeue(job.id, job.claim_token, self._env.due_now())
            if state is not State.RUNNING:  # else its handler holds the row: try again later
                if state:
                    self._parts.overdue.taken(claim, state)
                self._parts.overdue.given_up(claim)
                self._in_loop(claim.end, "lost")
            if self._env.boot_now() >= until:
                return

    async def _look_at_stacks(self, store: Store, until: float) -> None:
        """Not in the user's loop, which a handler may block."""
        while self._looks:
            asked = self._looks.pop(0)
            claim = self._parts.running.of_token(asked.token)
            says = await stack_of(claim, self._user, self._settings.limits.error_chars)
            me = self._parts.recorder.identity
            assert me
            await store.answer_stack(me.id, asked.job, says, self._env.due_now())
            if self._env.boot_now() >= until:
                return
