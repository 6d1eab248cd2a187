"""Hooks for ``gunicorn.conf.py``: the arbiter certifies the death of its workers.

    from leasehold.integrations.gunicorn import child_exit, pre_fork

With them a killed worker's leadership and jobs go on elsewhere within a second, and not a lease
later. The database is ``LEASEHOLD_DSN`` (``embedded`` too) and ``LEASEHOLD_SCHEMA``; where the
application names them in its code, name them here as well:

    hooks = certificates(dsn="postgresql://…", schema="leasehold")
    pre_fork, child_exit = hooks.pre_fork, hooks.child_exit

Hooks of your own call these, at any point of theirs:

    def child_exit(server, worker):
        hooks.child_exit(server, worker)
        statsd.incr("worker.exit")

The same with and without ``--preload``. The certificates are written by a small helper process,
which starts with the first worker and ends with the arbiter: a thread in the arbiter would be
alive at its forks, and a lock that it holds at such a moment is never released in the new worker.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Any
from uuid import UUID
from weakref import WeakSet

from leasehold.app.certify import settings_to_text
from leasehold.config import Settings
from leasehold.env import ASSIGNED_NODE, Env, assign_node_id
from leasehold.errors import ConfigError
from leasehold.telemetry import logger

_ATTRIBUTE = "leasehold_node_id"
"""On gunicorn's worker object, so that it outlives a reload of the configuration."""


class Certificates:
    """The two hooks, and the helper process behind them; see :func:`certificates`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._env = Env()
        self._settings: Settings | None = None
        self._helper: subprocess.Popen[bytes] | None = None
        _alive.add(self)

    def pre_fork(self, server: Any, worker: Any) -> None:
        """gunicorn's ``pre_fork``: choose the identity of the worker that is about to be forked.

        Raises ConfigError when no database is named: gunicorn does not start then.
        """
        if self._helper is None or self._helper.poll() is not None:
            self._start_helper()
        node = self._env.new_id()
        setattr(worker, _ATTRIBUTE, node)
        # the worker's node takes it from there; the arbiter forgets it after the fork
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

    # -- the helper ------------------------------------------------------------------------------
    def _start_helper(self) -> None:
        if self._settings is None:
            self._settings = Settings.load(self._options)
        if not self._settings.dsn:
            raise ConfigError(
                "leasehold's gunicorn hooks need to know the database",
                do="Set LEASEHOLD_DSN, or use certificates(dsn='postgresql://…')",
            )
        self.drop_helper()
        # -P, and our own paths: a module beside the configuration must not shadow another
        path = os.pathsep.join(folder for folder in sys.path if folder)
        self._helper = subprocess.Popen(
            [sys.executable, "-P", "-m", "leasehold.integrations.certifier"],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._helper.stdin
        os.set_blocking(self._helper.stdin.fileno(), False)  # a full pipe must not stop the arbiter
        self._write(settings_to_text(self._settings).encode() + b"\n")

    def _write(self, line: bytes) -> bool:
        helper = self._helper
        if helper is None or helper.stdin is None:
            return False
        try:
            # less than PIPE_BUF: all of it or nothing, also from inside a signal handler
            return os.write(helper.stdin.fileno(), line) == len(line)
        except OSError:
            return False

    def drop_helper(self) -> None:
        """Close our end of its pipe: when it has done what it was told, it ends."""
        helper, self._helper = self._helper, None
        if helper and helper.stdin:
            with contextlib.suppress(OSError):
                helper.stdin.close()


def certificates(**options: Any) -> Certificates:
    """Hooks for an application whose database is not (only) in the environment.

    ``options``: ``dsn``, ``schema``, … as of ``App``. Raises ConfigError for unknown ones.
    """
    Settings.load(options)
    return Certificates(options)


def pre_fork(server: Any, worker: Any) -> None:
    """``Certificates.pre_fork`` with the settings of the environment."""
    _default().pre_fork(server, worker)


def child_exit(server: Any, worker: Any) -> None:
    """``Certificates.child_exit`` with the settings of the environment."""
    _default().child_exit(server, worker)


_alive: WeakSet[Certificates] = WeakSet()
_from_environment: list[Certificates] = []


def _default() -> Certificates:
    if not _from_environment:
        _from_environment.append(certificates())
    return _from_environment[0]


def _after_fork_in_child() -> None:
    """The helper must see the end of its pipe when the arbiter ends, whoever lives on."""
    for hooks in list(_alive):
        hooks.drop_helper()
    _alive.clear()


def _after_fork_in_parent() -> None:
    """What was meant for one worker must not reach anything else that the arbiter starts."""
    if _alive:
        os.environ.pop(ASSIGNED_NODE, None)


os.register_at_fork(after_in_child=_after_fork_in_child, after_in_parent=_after_fork_in_parent)
