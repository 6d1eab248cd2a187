"""One worker process: from its first line of log to a clean stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

from leasehold.cli.load import load_app
from leasehold.cli.logs import set_up_logging
from leasehold.env import ASSIGNED_NODE

if TYPE_CHECKING:
    from leasehold.app import App
    from leasehold.node import Node

_logger = logging.getLogger("leasehold.worker")
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Stop:
    """The first signal asks for a clean stop, the second one ends the process at once.

    Python-level handlers and not the loop's, so that a handler which blocks the loop does not
    keep the second signal out.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._count = 0
        self._loop = asyncio.get_running_loop()

    def listen(self) -> None:
        """Child of a supervisor: Ctrl-C reaches the whole group, and the parent decides."""
        for number in _STOP_SIGNALS:
            if number == signal.SIGINT and _supervised():
                signal.signal(number, signal.SIG_IGN)
            else:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            os.write(2, b"leasehold: a second signal: exit at once\n")
            os._exit(128 + number)
        self._loop.call_soon_threadsafe(self._ask, signal.Signals(number).name)

    def _ask(self, name: str) -> None:
        _logger.info("worker_stopping signal=%s", name)
        self.asked.set()


def _supervised() -> bool:
    """Did our parent give us our identity? (It is taken from the environment later.)"""
    return os.environ.get(ASSIGNED_NODE, "").endswith(f":{os.getppid()}")


def run_worker(
    target: str, options: dict[str, Any], queues: dict[str, int] | None, *, execute: bool
) -> int:
    """Run until a signal; the exit status. ``options`` are settings that win over the code's."""
    app = load_app(target)
    if options:
        app.configure(**options)
    code = asyncio.run(_serve(app, queues, execute))
    _leave_stuck_threads(code)
    return code


async def _serve(app: App, queues: dict[str, int] | None, execute: bool) -> int:
    node: Node | None = None

    def worker_id() -> str:
        # asked for each line: after a self-fencing the node goes on under another identity
        identity = node.recorder.identity if node else None
        return identity.worker_id if identity else f"{app.env.host}:{app.env.pid}:-"

    set_up_logging(app.settings.log, worker_id)
    stop = _Stop()
    stop.listen()
    try:
        async with app.node(queues=queues, execute=execute, hard_exit=True) as node:
            await stop.asked.wait()
        return 0
    finally:
        await app.close()


def _leave_stuck_threads(code: int) -> None:
    """A handler's thread that does not end would keep the process: its time is over."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread()]
    if any(thread.is_alive() and not thread.daemon for thread in others):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
