"""Lends guards to leaders and locks: the guard of a node in this process, or of a light node."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace

from leasework.config import ON_DEMAND_SECONDS, Settings
from leasework.env import Env
from leasework.lease.guard import Guard
from leasework.node.light import LightNode, MakeWakeups
from leasework.store.listener import Listener
from leasework.store.store import Store
from leasework.tuning import Tuning
from leasework.version import VERSION


def guard_store(settings: Settings, role: str) -> Store:
    """Make a store for the guard's thread. Its calls are short enough for the guard to fence itself
    in time. ``role`` is ``guard`` (for the heartbeat) or ``lease`` (for leaders and locks, on a
    connection that is opened on demand)."""
    limited = replace(settings, call_timeout=settings.timings.call_timeout)
    return Store(limited, role, 1, None if role == "guard" else ON_DEMAND_SECONDS)


class Desk:
    """Lends guards, safe from any thread. ``located`` returns the settings; it runs in the light
    node's loop."""

    def __init__(self, located: Callable[[], Awaitable[Settings]]) -> None:
        self._located = located
        self._env = Env()
        self._lock = threading.Lock()
        self._begun: Future[None] | None = None
        """The light node that a thread is starting, for all that wait for one."""
        self._nodes: list[Guard] = []
        self._stopping: set[int] = set()
        self._light: LightNode | None = None
        self._users = 0
        self._pid = os.getpid()
        self._timer: threading.Timer | None = None

    @contextmanager
    def served_by(self, guard: Guard) -> Iterator[Callable[[], None]]:
        """Lend this node's guard while the block runs. Call the function that this yields when the
        node begins to stop: from then on the guard serves locks, for the last jobs, but no
        leaders."""
        self._after_fork()
        self._nodes.append(guard)
        try:
            yield lambda: self._stopping.add(id(guard))
        finally:
            self._nodes.remove(guard)
            self._stopping.discard(id(guard))

    async def take(self, *, leader: bool) -> Guard:
        """Lend a guard until :meth:`give_back`. Raises ServerError if the database refuses, and
        Unavailable if it does not answer within ``call_timeout`` seconds."""
        while leader and self._stopping:  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.05)
        self._after_fork()
        if self._nodes:
            return self._nodes[-1]
        while (guard := self._join_light()) is None:
            await self._located()  # first: it may change the settings
            await asyncio.wrap_future(self._begin())
        return guard

    def _join_light(self) -> Guard | None:
        """Return the guard of the light node that already runs, if there is one."""
        with self._lock:
            if self._light is None:
                return None
            self._users += 1
            if self._timer:
                self._timer.cancel()
            return self._light.guard

    def _begin(self) -> Future[None]:
        """Start a light node, unless one is being started. The future ends when the node can be
        joined, or with the error."""
        with self._lock:
            if self._begun:
                return self._begun
            begun = self._begun = Future()
            begun.set_running_or_notify_cancel()  # one waiter must not cancel it for the others
        try:
            # its own thread: the loop's executor has few, and other code needs them; without the
            # lock, because with gevent, others go on meanwhile, in this thread
            threading.Thread(
                target=self._start, args=(begun,), name="leasework-start", daemon=True
            ).start()
        except BaseException as error:
            self._fail(begun, error)
        return begun

    def _fail(self, begun: Future[None], error: BaseException) -> None:
        with self._lock:
            self._begun = None
        begun.set_exception(error)

    def _start(self, begun: Future[None]) -> None:
        try:
            light = LightNode(self._located, guard_store, self._work_store, self._env, VERSION)
            light.start()
        except BaseException as error:
            self._fail(begun, error)
            return
        with self._lock:
            self._begun, self._light = None, light
            self._linger()  # all that waited for it may have given up
        atexit.register(self.close)
        begun.set_result(None)

    def _work_store(self, settings: Settings) -> tuple[Store, MakeWakeups]:
        # it listens, and writes a few events
        store = Store(settings, "work", 1, None if settings.listen else ON_DEMAND_SECONDS)
        return store, lambda wake, emit: Listener(settings, self._env, store, wake, emit)

    def give_back(self, guard: Guard) -> None:
        with self._lock:
            if self._light is None or guard is not self._light.guard:
                return
            self._users -= 1
            if self._users == 0:
                self._linger()

    def _linger(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = threading.Timer(Tuning.linger_seconds, self._close_if_idle)
        self._timer.daemon = True
        with suppress(RuntimeError):  # no thread can start: the node stays until the next timer
            self._timer.start()

    def _close_if_idle(self) -> None:
        with self._lock:
            if self._light and self._light.guard.contests.busy():
                self._linger()  # it watches a lock after a failed attempt, for the next one
                return
        self.close(only_idle=True)

    def is_open(self) -> bool:
        """Return whether a node of this app runs or is being started in this process."""
        self._after_fork()
        return bool(self._nodes or self._light or self._begun)

    def close(self, only_idle: bool = False) -> None:
        """Stop the light node, if there is one, and wait for it. With ``only_idle``, keep it if
        somebody uses it. Do not call this in a loop."""
        with self._lock:
            if only_idle and self._users:
                return
            light, self._light = self._light, None
            self._users = 0
            if self._timer:
                self._timer.cancel()
        if light and self._pid == os.getpid():
            atexit.unregister(self.close)
            light.stop()

    def _after_fork(self) -> None:
        """Start anew in a forked child, which has none of the parent's threads."""
        if self._pid != os.getpid():
            self.__init__(self._located)  # type: ignore[misc]
