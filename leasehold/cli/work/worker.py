"""One worker process: from its first line of log to a clean stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from leasehold import errors, own
from leasehold.cli.work.load import load_app
from leasehold.cli.work.logs import set_up_logging
from leasehold.env import ASSIGNED_NODE
from leasehold.node.plan import EXIT_DRAINED, EXIT_DRAINED_ALONE
from leasehold.telemetry import Emit, log, make_event

if TYPE_CHECKING:
    from leasehold.app import App
    from leasehold.node import Node

_PYTHONS_THRESHOLD = (700, 10, 10)
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Stop:
    """The first signal asks for a clean stop, the second one ends the process at once.

    A handler may block the loop, and the main thread in C code with it, where Python's own
    handlers do not run: a thread hears of each signal through the wake-up file as well. Both
    count for themselves (the application may take the wake-up file for another loop).

    Under a supervisor it is the parent who insists, by SIGKILL: Ctrl-C reaches the whole group,
    and an init system may send SIGTERM to all its processes before the parent passes its on.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._handled = 0
        self._heard = 0
        self._supervised = _supervised()
        self.code = 0

    def listen(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(
            target=self._hear, args=(reader,), name="leasehold-signals", daemon=True
        ).start()
        for number in _STOP_SIGNALS:
            if number == signal.SIGINT and self._supervised:
                signal.signal(number, signal.SIG_IGN)
            else:
                signal.signal(number, self._on_signal)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a child that a handler forks: what is sent to it is not for the worker."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if not self._supervised:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._handled += 1
        self._act(number, self._handled)

    def _hear(self, reader: int) -> None:
        while numbers := os.read(reader, 64):
            for number in numbers:
                if number in _STOP_SIGNALS:
                    self._heard += 1
                    self._act(number, self._heard)

    def _act(self, number: int, count: int) -> None:
        if count > 1 and not self._supervised:
            os.write(2, b"leasehold: a second signal: exit at once\n")
            os._exit(128 + number)
        with suppress(RuntimeError):  # the loop is closed: the process is going down
            self._loop.call_soon_threadsafe(self._ask, signal.Signals(number).name)

    def drain(self, alone: bool) -> None:
        """Asked through the database, by ``leasehold worker --drain``; ``alone``: by a person, of
        this node."""
        self._ask("drain")
        if self._supervised and self.code != EXIT_DRAINED:  # so that it is not started again
            self.code = EXIT_DRAINED_ALONE if alone else EXIT_DRAINED

    def _ask(self, name: str) -> None:
        if not self.asked.is_set():
            self._tell(name)
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
    _collect_seldom()
    code = _run(app, queues, execute)
    _leave_stuck_threads(code)
    return code


def _run(app: App, queues: dict[str, int] | None, execute: bool) -> int:
    """As ``asyncio.run``, but only our own end ends the loop. A handler can stop it, or let an
    exception through it from a task or callback of its own: that is no reason to leave its job and
    its neighbours."""
    emits: list[Emit] = []
    process = own.generation()
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        serving = loop.run_until_complete(_started(_serve(app, queues, execute, emits)))
        while True:
            try:
                return loop.run_until_complete(serving)
            except BaseException as error:
                own.leave_if_copy(process, error)
                if serving.done() or loop.is_closed() or not emits:
                    raise
                emits[0]("loop_stopped", error=errors.told(error))


async def _started(work: Coroutine[Any, Any, int]) -> asyncio.Task[int]:
    return own.start(work, name="leasehold-worker")


def _collect_seldom() -> None:
    """What the application imported stays, and a claim makes some thousand objects that live for
    milliseconds: with Python's default the collector takes a twentieth of a short job's time."""
    if gc.get_threshold() == _PYTHONS_THRESHOLD:  # else the application has its own idea
        gc.collect()
        gc.freeze()
        gc.set_threshold(5_000, *_PYTHONS_THRESHOLD[1:])


async def _serve(app: App, queues: dict[str, int] | None, execute: bool, emits: list[Emit]) -> int:
    """``emits`` gets the node's, once it works."""
    node: Node | None = None

    def worker_id() -> str:
        # asked for each line: after a self-fencing the node goes on under another identity
        identity = node.recorder.identity if node else None
        return identity.worker_id if identity else f"{app.env.host}:{app.env.pid}:-"

    set_up_logging(app.settings.log, worker_id)

    def tell(name: str) -> None:
        event = make_event("worker_stopping", {"signal": name}, app.env.boot_now())
        log(event, worker_id())

    stop = _Stop(tell)
    stop.listen()
    try:
        taking_part = app.node(queues=queues, execute=execute, hard_exit=True, on_drain=stop.drain)
        async with taking_part as node:
            emits.append(node.recorder.emit)
            await stop.asked.wait()
        return stop.code
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
