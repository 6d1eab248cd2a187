"""A light node: a guard without queues, for the leaders and locks of a process without a node. Its
thread and event loop outlive each loop and thread of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from leasework import errors
from leasework.config import Settings
from leasework.env import LOOP_FACTORY, Env, assigned_node_id, take_assigned_node_id
from leasework.lease import messages
from leasework.lease.guard import Guard
from leasework.lease.host import Host
from leasework.loops.recorder import Recorder
from leasework.loops.service import Loop
from leasework.node.reach import reach_database, registered
from leasework.store.listener import Handlers, Listener
from leasework.store.nodes import NodeIdentity
from leasework.store.store import Store
from leasework.telemetry import Emit

MakeWakeups = Callable[[Handlers, Emit], Listener]


@dataclass(eq=False)
class LightNode(Host):
    """Call ``start`` in any thread, which sets ``guard``, and ``stop`` in any thread but the light
    node's. The three functions are called in the light node's loop."""

    _located: Callable[[], Awaitable[Settings]]
    _guard_store: Callable[[Settings, str], Store]
    _work_store: Callable[[Settings], tuple[Store, MakeWakeups]]
    _env: Env
    _version: str
    guard: Guard = field(init=False)

    def __post_init__(self) -> None:
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="leasework-light", daemon=True)

    def start(self) -> None:
        """Return when this node holds its lease. Errors: see :meth:`Node.start`."""
        self._thread.start()
        self._started.wait()
        if self._error:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        """Release all leases and leave, within ``call_timeout`` seconds."""
        self.guard.stop()
        self._thread.join(self._call_timeout)

    def _run(self) -> None:
        try:
            if shared := asyncio._get_running_loop():  # gevent: its threads share one loop
                asyncio.run_coroutine_threadsafe(self._main(), shared).result()
            else:
                with asyncio.Runner(loop_factory=LOOP_FACTORY) as runner:
                    runner.run(self._main())
        except BaseException as error:  # start() raises it
            self._error = error
        self._started.set()

    async def _main(self) -> None:
        settings = await self._located()
        self._call_timeout = settings.call_timeout
        store, wakeups = self._work_store(settings)
        try:
            await self._serve(settings, store, wakeups)
        finally:
            await store.close()

    async def _serve(self, settings: Settings, store: Store, wakeups: MakeWakeups) -> None:
        self._recorder = Recorder(self._env, store)
        emit = self._recorder.emit
        await reach_database(store, settings, self._env, emit)
        self._joined = asyncio.get_running_loop().create_future()
        make_store = partial(self._guard_store, settings)
        self.guard = Guard(make_store, self._env, settings.timings, emit, self)
        recording = Loop(self._recorder, self._env, emit)
        self._recorder.wake = recording.wake_from_any_thread
        handlers = {"l": self.guard.lock_is_free, "e": self._on_open_election}
        self._wakeups = wakeups(handlers, emit)
        guarding = asyncio.ensure_future(self.guard.run())
        recording.start()
        self._wakeups.start()
        try:
            joining = asyncio.ensure_future(registered(self._joined, settings))
            await asyncio.wait({joining, guarding}, return_when=asyncio.FIRST_COMPLETED)
            if guarding.done() and not self._joined.done():  # otherwise start() would wait for it
                joining.cancel()
                await guarding
                raise errors.Unavailable("this process's guard stopped before it held a lease")
            await joining
            self._started.set()
            await guarding
        finally:
            self.guard.stop()
            await asyncio.gather(guarding, return_exceptions=True)
            await self._wakeups.stop()
            await recording.stop()
            with suppress(errors.LeaseworkError):
                while await self._recorder.tick(self._env.due_now()) == 0.0:
                    pass

    def _on_open_election(self, name: str) -> None:
        if name in self.guard.contests:
            self.guard.poke()

    def new_identity(self) -> NodeIdentity:
        """Return an identity without an application: this node neither schedules nor works."""
        identity = NodeIdentity(
            id=self._env.new_id(), app="", release="", host=self._env.host, pid=self._env.pid,
            version=self._version, executes=False, tasks=(), queues={},
        )  # fmt: skip
        self._recorder.identity = identity
        return identity

    def info(self) -> dict[str, Any]:
        """For a parent that certifies the death of this process."""
        return {"assigned": str(assigned_node_id() or take_assigned_node_id() or "") or None}

    def send(self, message: messages.Message) -> None:
        match message:
            case messages.Joined() if not self._joined.done():
                self._joined.set_result(None)
            case messages.Refused(error) if not self._joined.done():
                self._joined.set_exception(error)
            case messages.Fenced(why):
                self._recorder.emit("node_fenced", why=why, running=[])
