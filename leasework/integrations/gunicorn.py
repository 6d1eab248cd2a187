"""Hooks for ``gunicorn.conf.py``: each worker runs schedules and jobs in a thread.

They are for applications without a lifespan; see :func:`node`. An application with one needs no
hooks. They work with and without ``--preload``.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from leasework import own_tasks
from leasework.app import App
from leasework.app.load import no_app
from leasework.errors import ReadOnlyServer, Unavailable
from leasework.integrations.background import BackgroundNode
from leasework.telemetry import logger


def node(
    target: str, *, execute: bool = True, queues: Mapping[str, int] | None = None
) -> tuple[Callable[[Any], None], Callable[[Any, Any], None]]:
    """gunicorn's ``post_worker_init`` and ``worker_exit``: each worker takes part from a thread.

    For applications without a lifespan: WSGI applications such as Flask's and Django's under the
    worker classes ``sync`` and ``gthread``, and Django's ASGI application::

        post_worker_init, worker_exit = node("myproject.jobs:app")

    ``target``: ``module:name`` of the App, which each worker imports after it has loaded the
    application. ``execute=False``: elections and schedules only, no jobs. ``queues``: queue → jobs
    at once; default: every queue that a task names, 100 each. A worker whose node cannot start
    does not start either. If only the database does not answer, gunicorn starts another worker.
    """
    running = contextlib.ExitStack()

    def post_worker_init(worker: Any) -> None:
        """gunicorn's ``post_worker_init``: start the worker's node, in a thread."""
        _end_by_exit()
        try:
            app = pkgutil.resolve_name(target)
        except SyntaxError as error:
            if not worker.cfg.reload:
                raise
            logger.error("no node in this worker: %s", error)  # which shows the error as a page
            return
        if not isinstance(app, App):
            raise no_app(target, app)
        try:
            running.enter_context(BackgroundNode(app, execute=execute, queues=queues))
        except (Unavailable, ReadOnlyServer) as error:  # perhaps a failover
            logger.error("this worker cannot start: %s", error)
            sys.exit(1)  # any other error here makes gunicorn end, with all its workers

    def worker_exit(server: Any, worker: Any) -> None:
        """gunicorn's ``worker_exit``: stop the node. Its jobs have ``App(grace=…)`` seconds. Then
        other workers get them, so a thread that still runs one must end with this process."""
        if worker is not None and worker.pid != os.getpid():
            return  # the arbiter calls it for a worker that has vanished
        running.close()
        own_tasks.leave_stuck_threads(sys.exc_info()[1] or 0)

    return post_worker_init, worker_exit


def _end_by_exit() -> None:
    """Let ``worker_exit`` run in workers of uvicorn. When one has stopped, it raises again the
    signal that stopped it, whose default action ends a process without any further code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda *_: sys.exit(0))
