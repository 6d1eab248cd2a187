"""Hooks for ``gunicorn.conf.py``: the arbiter certifies the death of its workers.

    from leasework.integrations.gunicorn import child_exit, pre_fork

With them, a killed worker's leadership and jobs continue elsewhere within a second instead of a
lease later. They use ``LEASEWORK_DSN`` (``embedded`` too) and ``LEASEWORK_SCHEMA``; for an
application that names its database in code, see :func:`certificates`. Workers without an event loop
take part with :func:`node`. All work with and without ``--preload``.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Unpack
from uuid import UUID
from weakref import WeakSet

from leasework import own_tasks
from leasework.app import App
from leasework.app.load import no_app
from leasework.config import ConfigureGiven, Settings
from leasework.env import ASSIGNED_NODE, Env, assign_node_id
from leasework.errors import ConfigError, ReadOnlyServer, Unavailable
from leasework.integrations.background import BackgroundNode
from leasework.telemetry import logger

_ATTRIBUTE = "leasework_node_id"
"""Set on gunicorn's worker object, so that it survives a reload of the configuration."""


class Certificates:
    """The two hooks, and the helper process behind them; see :func:`certificates`."""

    def __init__(self, options: ConfigureGiven) -> None:
        self._options = options
        self._env = Env()
        self._settings: Settings | None = None
        self._helper: subprocess.Popen[bytes] | None = None

    def pre_fork(self, server: Any, worker: Any) -> None:
        """gunicorn's ``pre_fork``: choose the identity of the worker before it is forked.

        Raises ConfigError if no database is named; gunicorn then does not start.
        """
        if self._helper is None or self._helper.poll() is not None:
            self._start_helper()
        node = self._env.new_id()
        setattr(worker, _ATTRIBUTE, node)
        # the worker's node takes it from there; the arbiter removes it after the fork
        os.environ[ASSIGNED_NODE] = assign_node_id(node)

    def child_exit(self, server: Any, worker: Any) -> None:
        """gunicorn's ``child_exit``: the worker was reaped. Returns at once."""
        node: UUID | None = getattr(worker, _ATTRIBUTE, None)
        if node is None:
            return
        line = f"{node} {worker.pid}\n".encode()
        if not self._write(line):
            self._start_helper()
            if not self._write(line):
                logger.error("no certificate for worker %s: its lease must expire", worker.pid)

    def _load(self) -> Settings:
        return Settings.load(self._options)

    def _start_helper(self) -> None:
        if self._settings is None:
            self._settings = self._load()
        if not self._settings.dsn:
            raise ConfigError(
                "leasework's gunicorn hooks need a database",
                do="Set LEASEWORK_DSN, or use certificates(dsn='postgresql://…')",
            )
        self.drop_helper()
        _alive.add(self)
        # -P and our own paths: a module beside the configuration must not shadow others
        path = os.pathsep.join(folder for folder in sys.path if folder)
        self._helper = subprocess.Popen(
            [sys.executable, "-P", "-m", "leasework.integrations.certifier"],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._helper.stdin
        os.set_blocking(self._helper.stdin.fileno(), False)  # a full pipe must not stop the arbiter
        self._write(self._settings.to_text().encode() + b"\n")

    def _write(self, line: bytes) -> bool:
        helper = self._helper
        if helper is None or helper.stdin is None:
            return False
        try:
            # less than PIPE_BUF, so all or nothing, even from inside a signal handler
            return os.write(helper.stdin.fileno(), line) == len(line)
        except OSError:
            return False

    def drop_helper(self) -> None:
        """Close our end of its pipe: the helper finishes its work and ends."""
        helper, self._helper = self._helper, None
        if helper and helper.stdin:
            with contextlib.suppress(OSError):
                helper.stdin.close()


def certificates(**options: Unpack[ConfigureGiven]) -> Certificates:
    """Hooks for an application whose database is not (only) in the environment.

    ``options``: ``dsn``, ``schema``, … as for ``App``. Raises ConfigError for unknown ones.
    """
    Settings.load(options)
    return Certificates(options)


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


_default = Certificates({})
"""With the settings of the environment, which it reads before the first fork."""
pre_fork, child_exit = _default.pre_fork, _default.child_exit
_alive: WeakSet[Certificates] = WeakSet()


def _after_fork_in_child() -> None:
    """Let the helper see the end of its pipe when the arbiter ends, even if workers live on."""
    for hooks in list(_alive):
        hooks.drop_helper()
    _alive.clear()


def _after_fork_in_parent() -> None:
    """Keep one worker's identity from reaching anything else that the arbiter starts."""
    if _alive:
        os.environ.pop(ASSIGNED_NODE, None)


os.register_at_fork(after_in_child=_after_fork_in_child, after_in_parent=_after_fork_in_parent)
