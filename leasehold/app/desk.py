"""Lends leaders and locks a guard: that of a node in this process, or of a light node."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace

from leasehold.config import ON_DEMAND_SECONDS, Settings
from leasehold.env import Env
from leasehold.lease.guard import Guard
from leasehold.node.light import LightNode, LightTools, MakeWakeups
from leasehold.pg.connection.listener import Listener
from leasehold.pg.stores.store import PgStore
from leasehold.version import VERSION

LINGER_SECONDS = 2.0
"""A light node stays so long after its last user: the next one may come at once."""


def guard_store(settings: Settings, role: str) -> PgStore:
    """For the guard's thread, where no call may keep the guard from fencing itself in time.
    ``role``: ``guard`` for the heartbeat, or ``lease`` for what users hold, on a connection that
    is opened on demand."""
    limited = replace(settings, call_timeout=settings.timings.call_timeout)
    return PgStore(limited, role, 1, None if role == "guard" else ON_DEMAND_SECONDS)


class Desk:
    """Safe from any thread. ``located`` gives the settings, in the light node's loop."""

    def __init__(self, located: Callable[[], Awaitable[Settings]]) -> None:
        self._located = located
        self._env = Env()
        self._lock = threading.Lock()
        self._begun: Future[None] | None = None
        """A light node is being started, by a thread of its own, for all who wait for one."""
        self._nodes: list[Guard] = []
        self._stopping: set[int] = set()
        self._light: LightNode | None = None
        self._users = 0
        self._pid = os.getpid()
        self._timer: threading.Timer | None = None

    @contextmanager
    def served_by(self, guard: Guard) -> Iterator[Callable[[], None]]:
        """While the block runs, this node serves. Call what it gives when the node begins to
        stop: then it gives locks still, to jobs that come to their end, but no leaders."""
        self._after_fork()
        self._nodes.append(guard)
        try:
            yield lambda: self._stopping.add(id(guard))
        finally:
            self._nodes.remove(guard)
            self._stopping.discard(id(guard))

    async def take(self, *, leader: bool) -> Guard:
        """Give it back with :meth:`give_back`. Raises what the database says when it refuses,
        Unavailable when it does not answer within ``call_timeout``."""
        while leader and self._stopping:  # noqa: ASYNC110 - told by another thread
            await asyncio.sleep(0.05)
        if guard := self._of_node():
            return guard
        while (guard := self._join_light()) is None:
            await asyncio.wrap_future(self._begin())
        return guard

    def _of_node(self) -> Guard | None:
        self._after_fork()
        return self._nodes[-1] if self._nodes else None

    def _join_light(self) -> Guard | None:
        """The one that runs already."""
        with self._lock:
            if self._light is None:
                return None
            self._users += 1
            if self._timer:
                self._timer.cancel()
            return self._light.guard

    def _begin(self) -> Future[None]:
        """It ends when there is a light node to join, or with why there is none."""
        with self._lock:
            if self._begun is None:
                begun: Future[None] = Future()
                begun.set_running_or_notify_cancel()  # whoever gives up gives up alone
                # a thread of its own: the loop's executor has few, which others need as well
                threading.Thread(
                    target=self._start, args=(begun,), name="leasehold-start", daemon=True
                ).start()  # it waits for us to be done here
                self._begun = begun
            return self._begun

    def _start(self, begun: Future[None]) -> None:
        try:
            light = LightNode(self._tools(), self._env, VERSION)
            light.start()
        except BaseException as error:
            with self._lock:
                self._begun = None
            begun.set_exception(error)
            return
        with self._lock:
            self._begun, self._light = None, light
            self._linger()  # those who asked may have given up
        atexit.register(self.close)
        begun.set_result(None)

    def _tools(self) -> LightTools:
        return LightTools(self._located, guard_store, self._store)

    def _store(self, settings: Settings) -> tuple[PgStore, MakeWakeups]:
        # it listens; what it writes besides are a few events
        store = PgStore(settings, "work", 1, None if settings.listen else ON_DEMAND_SECONDS)
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
        self._timer = threading.Timer(LINGER_SECONDS, self._close_if_idle)
        self._timer.daemon = True
        with suppress(RuntimeError):  # no thread is to be had: it stays until the next one goes
            self._timer.start()

    def _close_if_idle(self) -> None:
        with self._lock:
            if self._light and self._light.guard.contests.busy():
                self._linger()  # it watches a lock that somebody tried to get, and may again
                return
        self.close_idle()

    def close_idle(self) -> None:
        """End the light node unless somebody uses it. In no loop: it waits for its end."""
        with self._lock:
            if self._users or not self._light:
                return
            light, self._light = self._light, None
            if self._timer:
                self._timer.cancel()
        self._end(light)

    def is_open(self) -> bool:
        """A node of this app runs, or is being started, in this process."""
        self._after_fork()
        return bool(self._nodes or self._light or self._begun)

    def close(self) -> None:
        """End the light node, if there is one. In no loop: it waits for its end."""
        with self._lock:
            light, self._light = self._light, None
            self._users = 0
            if self._timer:
                self._timer.cancel()
        if light:
            self._end(light)

    def _end(self, light: LightNode) -> None:
        if self._pid == os.getpid():
            atexit.unregister(self.close)
            light.stop()

    def _after_fork(self) -> None:
        """A fork has neither our threads nor our connections."""
        if self._pid != os.getpid():
            self.__init__(self._located)  # type: ignore[misc]
