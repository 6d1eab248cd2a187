"""A simulated process: the real Node, with its guard as a separate task in the one event loop.

All differences from production are here: there is no second thread, no child process, and no exit
of the whole simulation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from leasework.config import Settings
from leasework.env import Env
from leasework.jobs.tasks import Registry
from leasework.lease import messages
from leasework.node.host import GuardsHost
from leasework.node.node import Node
from leasework.node.plan import NodePlan, Tools
from leasework.store.nodes import NodeIdentity


class _GuardTask:
    """Stands for the guard's thread; joining it waits for the task."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def is_alive(self) -> bool:
        return not self._task.done()

    def join(self, timeout: float | None = None) -> asyncio.Future[Any]:
        return asyncio.ensure_future(asyncio.wait({self._task}, timeout=timeout))


class _SimHost(GuardsHost):
    on_belief: Callable[[], None]
    exit: Callable[[], None] | None
    first: Callable[[NodeIdentity], None]
    work_context: Context
    _assigned_as = ""

    def new_identity(self) -> NodeIdentity:
        identity = super().new_identity()
        if not self._assigned_as:
            self._assigned_as = str(identity.id)
            self.first(identity)
        return identity

    def info(self) -> dict[str, Any]:
        return {**super().info(), "assigned": self._assigned_as}

    def send(self, message: messages.Message) -> None:
        if isinstance(message, messages.Renewed) or message == messages.Note.LEADS:
            self.on_belief()
        super().send(message)

    def in_loop(self, call: Callable[..., Any], *arguments: Any) -> None:
        self.loop.call_soon(call, *arguments, context=self.work_context)

    def _grace_over(self) -> None:
        if self.exit is None:
            super()._grace_over()
            return
        self._emit("node_exits", running=self._running.started())
        self.exit()


class SimNode(Node):
    """``on_belief`` is called whenever a lease is gained or renewed; ``exit`` ends the process
    where a worker would exit hard."""

    host_type = _SimHost

    def __init__(
        self,
        plan: NodePlan,
        tools: Tools,
        registry: Registry,
        settings: Settings,
        env: Env,
        contexts: tuple[Context, Context],
        on_belief: Callable[[], None],
        exit: Callable[[], None] | None,
        on_end: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._work_context, self._guard_context = contexts
        self._on_belief = on_belief
        self._exit = exit
        self.on_end = on_end
        """Called when a task ends that nobody waits for, whose error would otherwise be lost."""
        self.first_id: Any = None
        """The identity by which its parent certifies its death."""
        self.env = env
        self.begun = False
        """Its guard was started. If its start then fails, it cannot start again."""
        self.contending: set[asyncio.Task[None]] = set()
        """Tasks that stand for user code which wants leaders and locks."""
        super().__init__(plan, tools, registry, settings, env)

    def in_guard(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call it in the guard, as if from another thread."""
        self._loop.call_soon(call, *arguments, context=self._guard_context)

    def _start_guard(self) -> None:
        self.begun = True
        loop = asyncio.get_running_loop()
        task = loop.create_task(self.guard.run(), context=self._guard_context)
        task.add_done_callback(self.on_end, context=self._guard_context)
        self._thread: Any = _GuardTask(task)

    def _make_host(self) -> GuardsHost:
        host = super()._make_host()
        assert isinstance(host, _SimHost)
        host.on_belief, host.exit, host.first = self._on_belief, self._exit, self._note_first
        host.work_context = self._work_context
        return host

    def _note_first(self, identity: NodeIdentity) -> None:
        self.first_id = identity.id
