"""Kills a worker process whose guard cannot act, because C code that holds the GIL stops it too.

Another process watches, because a timer inside this one could not tell a hang, which must end it,
from a stop (SIGSTOP, a debugger), after which it must lose its lease and continue (ADR 9).
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from importlib.resources import files

from leasework.telemetry import Emit
from leasework.tuning import Tuning

_SCRIPT = files("leasework.node").joinpath("watcher.py").read_text("utf-8")
"""Not its path: the package may be in a zip file."""


class Watchdog:
    """Kills this process unless it calls ``put_off`` in time. ``grace`` is in seconds."""

    def __init__(self, grace: float, emit: Emit) -> None:
        self._grace = grace
        self._emit = emit
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = False
        self._closed = False

    def put_off(self, seconds: float) -> None:
        """Let the process live for ``seconds`` from now, or until the next call."""
        if not self._closed:
            # the watcher checks twice, half a grace apart
            self._tell(max(0.0, seconds - self._grace / 2))

    def call_off(self) -> None:
        """Suspend the watchdog until the next ``put_off``."""
        if self._process:
            self._tell(-1.0)

    def close(self) -> None:
        """End the watchdog."""
        self.call_off()
        self._closed = True
        process, self._process = self._process, None
        if process:
            with suppress(OSError, subprocess.TimeoutExpired):
                assert process.stdin
                process.stdin.close()
                process.wait(Tuning.watchdog_leave_seconds)

    def _tell(self, seconds: float) -> None:
        for _ in range(2):  # the watcher may have been killed: try again with a new one
            try:
                if self._process is None:
                    self._process = self._start()
                assert self._process.stdin
                self._process.stdin.write(f"{seconds:.3f}\n".encode())
                return
            except OSError as error:
                self._process = None
                if not self._failed:
                    self._emit("service_failed", service="watchdog", error=str(error))
                self._failed = True

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SCRIPT, str(self._grace)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # so that Ctrl-C for this process group does not end it
        )
