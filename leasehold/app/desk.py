"""Where leaders and locks are asked for: the node of this process, or a light one of their own."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from leasehold import __version__
from leasehold.config import Settings
from leasehold.node.light import LightNode, LightTools, MakeWakeups
from leasehold.pg.listener import Listener
from leasehold.pg.store import PgStore
from leasehold.services.guard import Guard

if TYPE_CHECKING:
    from leasehold.app.core import App

LINGER_SECONDS = 2.0
"""A light node stays so long after its last user: the next one may come at once."""


class Desk:
    """Safe from any thread."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._failed: tuple[int, BaseException | None] = 0, None
        """How many starts of a light node have failed, and why the last one did."""
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
        """Give it back with :meth:`give_back`. Raises what the database says when it cannot
        serve us, Unavailable when it does not answer within ``call_timeout``."""
        while leader and self._stopping:  # noqa: ASYNC110 - told by another thread
            await asyncio.sleep(0.05)
        if guard := self._of_node():
            return guard
        if guard := self._join_light():
            return guard
        taken: Future[Guard] = Future()
        # of its own: the loop's default executor has few threads, which others need as well
        threading.Thread(
            target=self._take_light, args=(taken,), name="leasehold-start", daemon=True
        ).start()
        try:
            return await asyncio.wrap_future(taken)
        except asyncio.CancelledError:
            taken.add_done_callback(self._give_back_unwanted)  # the thread goes on
            raise

    def _take_light(self, taken: Future[Guard]) -> None:
        if not taken.set_running_or_notify_cancel():
            return
        try:
            taken.set_result(self._of_light())
        except BaseException as error:
            taken.set_exception(error)

    def _give_back_unwanted(self, taken: Future[Guard]) -> None:
        if not taken.cancelled() and taken.exception() is None:
            self.give_back(taken.result())

    def take_in_thread(self, *, leader: bool) -> Guard:
        """The same without a loop."""
        pause = threading.Event()
        while leader and self._stopping:
            pause.wait(0.05)
        return self._of_node() or self._of_light()

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

    def _of_light(self) -> Guard:
        failed, _ = self._failed
        with self._starting:
            if guard := self._join_light():
                return guard
            count, error = self._failed
            if count != failed and error:
                raise error  # it was tried while we waited
            light = LightNode(self._tools(), self._app.env, __version__)
            try:
                light.start()
            except BaseException as why:
                self._failed = count + 1, why
                raise
            atexit.register(self.close)
            with self._lock:
                self._light = light
                self._users += 1
            return light.guard

    def _tools(self) -> LightTools:
        app = self._app
        return LightTools(
            settings=app.located,
            # no call of the guard may keep it from fencing itself in time
            guard_store=lambda settings: PgStore(
                replace(settings, call_timeout=settings.timings.call_timeout), "guard"
            ),
            store=self._store,
        )

    def _store(self, settings: Settings) -> tuple[PgStore, MakeWakeups]:
        store = PgStore(settings, "work")
        return store, lambda wake, emit: Listener(settings, self._app.env, store, wake, emit)

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
        self._timer.start()

    def _close_if_idle(self) -> None:
        with self._lock:
            if self._users or not self._light:
                return
            if self._light.guard.contests.busy():
                self._linger()  # it watches a lock that somebody tried to get, and may again
                return
            light, self._light = self._light, None
        self._end(light)

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
            light.stop(self._app.settings.call_timeout)

    def _after_fork(self) -> None:
        """A fork has neither our threads nor our connections."""
        if self._pid != os.getpid():
            app = self._app
            self.__init__(app)  # type: ignore[misc]
