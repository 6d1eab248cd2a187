"""A node in a thread, for processes whose own code has no event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Self

from leasework import own_tasks
from leasework.app import App
from leasework.env import LOOP_FACTORY
from leasework.errors import told
from leasework.telemetry import logger


def _on_error(error: BaseException) -> None:
    logger.error("a task or callback of a handler raised %s", told(error))


class BackgroundNode:
    """Takes part in schedules and jobs, as :meth:`App.node` does, in a thread with an event loop of
    its own::

        with BackgroundNode(app):
            serve()

    Start it after any fork. ``execute=False``: elections and schedules only, no jobs. ``queues``:
    queue → jobs at once; default: every queue that a task names, 100 each. Under gunicorn, use
    :func:`leasework.integrations.gunicorn.node`.
    """

    def __init__(
        self, app: App, *, execute: bool = True, queues: Mapping[str, int] | None = None
    ) -> None:
        self._app = app
        self._node = app.node(execute=execute, queues=queues)
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._end = asyncio.Event()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leasework-node", daemon=True)

    def start(self) -> None:
        """Returns when the node takes part. Raises Unavailable if the database does not answer,
        and ConfigError."""
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """Returns when the node has resigned, and its jobs have ended: they have
        ``App(grace=…)`` seconds to finish. Does nothing if the node does not run."""
        if self._thread.is_alive():
            self._started.result().call_soon_threadsafe(self._end.set)
            self._left.wait()
            self._thread.join(1.0)  # its loop waits for a task that swallows its cancellation

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            own_tasks.run(self._take_part(), "leasework-node", _on_error, LOOP_FACTORY)
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
        finally:
            self._left.set()

    async def _take_part(self) -> None:
        try:
            async with self._node:
                self._started.set_result(asyncio.get_running_loop())
                await self._end.wait()
        finally:
            try:
                await self._app.close()
            finally:
                self._left.set()
