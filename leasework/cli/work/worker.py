"""One worker process, from its first log line to a clean stop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

import click

from leasework import errors, own_tasks
from leasework.app import App
from leasework.app.load import load_app
from leasework.cli.work.logs import set_up_logging
from leasework.env import ASSIGNED_NODE, assigned_node_id
from leasework.node import Node
from leasework.node.plan import EXIT_DRAINED, EXIT_DRAINED_ALONE
from leasework.telemetry import Emit, log, make_event

_PYTHONS_THRESHOLD = (700, 10, 10)
_HANGUP: int | None = getattr(signal, "SIGHUP", None)  # not on Windows
_STOP_SIGNALS = tuple(n for n in (signal.SIGTERM, signal.SIGINT, _HANGUP) if n is not None)


class _Stop:
    """The first signal requests a clean stop, the second one ends the process at once. A handler
    may block the event loop, and in C code the main thread too. A thread therefore also receives
    each signal, through the wake-up file. Both count separately, because the application may
    redirect that file. Under a supervisor, only the parent insists, with SIGKILL: Ctrl-C reaches
    the whole group, and an init system may send SIGTERM to all processes before the parent passes
    its own on."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._handled: list[int] = []
        self._heard: list[int] = []
        self._supervised = _supervised()
        self.starting = asyncio.current_task()
        """The task to cancel while the node starts."""
        self.code = 0

    def listen(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(
            target=self._hear, args=(reader,), name="leasework-signals", daemon=True
        ).start()
        for number in _STOP_SIGNALS:
            if number == signal.SIGINT and self._supervised:
                signal.signal(number, lambda *_: None)  # programs inherit what is ignored
                signal.siginterrupt(number, False)
            elif number != _HANGUP or signal.getsignal(number) is not signal.SIG_IGN:  # by nohup
                signal.signal(number, self._on_signal)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a child that a handler forks: signals to it are not for the worker."""
        signal.set_wakeup_fd(-1)
        for number in _STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        if not self._supervised:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._act(number, self._handled)

    def _hear(self, reader: int) -> None:
        while numbers := os.read(reader, 64):
            for number in numbers:
                if number in _STOP_SIGNALS and not (number == signal.SIGINT and self._supervised):
                    self._act(number, self._heard)

    def _act(self, number: int, before: list[int]) -> None:
        insists = bool(before) and number != _HANGUP  # an init system sends it after SIGTERM
        if number != _HANGUP:
            before.append(number)
        if insists and not self._supervised:
            with suppress(OSError):  # its reader may be gone
                os.write(2, b"leasework: second signal: exiting at once\n")
            os._exit(128 + number)
        with suppress(RuntimeError):  # the loop is closed: the process is ending
            self._loop.call_soon_threadsafe(self._ask, signal.Signals(number).name)

    def drain(self, alone: bool) -> None:
        """Drain, as requested through the database: by ``leasework worker --drain``, or, if
        ``alone``, by a person for this node only."""
        self._ask("drain")
        if self._supervised and self.code != EXIT_DRAINED:  # so that it is not started again
            self.code = EXIT_DRAINED_ALONE if alone else EXIT_DRAINED

    def _ask(self, name: str) -> None:
        if not self.asked.is_set():
            self._tell(name)
            self.asked.set()
            if self.starting:
                self.starting.cancel()


def _supervised() -> bool:
    """Is our parent the one that gave us our identity? (It leaves the environment later, and a node
    of the application's own may have taken it already.)"""
    given = os.environ.get(ASSIGNED_NODE, "").endswith(f":{os.getppid()}")
    return given or assigned_node_id() is not None


def run_worker(
    target: str, options: dict[str, Any], queues: dict[str, int] | None, *, execute: bool
) -> NoReturn:
    """Run until a signal, and exit with the status. ``options`` override the code's settings. A
    handler's error in the loop ends no other job."""
    emits: list[Emit] = []

    def on_error(error: BaseException) -> None:
        if not emits:
            raise error
        emits[0]("loop_stopped", error=errors.told(error))

    try:
        app = load_app(target, options)
        _collect_seldom()
        work = own_tasks.exit_after(_serve(app, queues, execute, emits))
        own_tasks.run(work, "leasework-worker", on_error)
    except BaseException as error:
        own_tasks.leave_stuck_threads(error)
        raise


def _collect_seldom() -> None:
    """Collect garbage less often. A claim creates thousands of objects that live for milliseconds,
    and with Python's default threshold the collector takes a twentieth of a short job's time."""
    if gc.get_threshold() == _PYTHONS_THRESHOLD:  # otherwise the application has set its own
        gc.collect()
        gc.freeze()
        gc.set_threshold(5_000, *_PYTHONS_THRESHOLD[1:])


async def _serve(app: App, queues: dict[str, int] | None, execute: bool, emits: list[Emit]) -> int:
    """Run the node until a stop is requested. ``emits`` receives the node's emitter."""
    node: Node | None = None

    def worker_id() -> str:
        # looked up for each line: after fencing itself, the node gets another identity
        identity = node.recorder.identity if node else None
        return identity.worker_id if identity else f"{app.env.host}:{app.env.pid}:-"

    set_up_logging(app.settings.log, worker_id)

    def tell(name: str) -> None:
        event = make_event("worker_stopping", {"signal": name}, app.env.boot_now())
        log(event, worker_id())
        if name == "SIGINT" and sys.stderr.isatty():
            seconds = f"{app.settings.grace:g} s"
            click.echo(
                f"Waiting up to {seconds} for running jobs. Ctrl-C again exits at once.", err=True
            )

    stop = _Stop(tell)
    stop.listen()
    try:
        taking_part = app.node(queues=queues, execute=execute, hard_exit=True, on_drain=stop.drain)
        async with taking_part as node:
            stop.starting = None
            emits.append(node.recorder.emit)
            await stop.asked.wait()
        return stop.code
    except asyncio.CancelledError:
        if stop.starting is None or not stop.asked.is_set():
            raise
        return stop.code
    finally:
        await app.close()
