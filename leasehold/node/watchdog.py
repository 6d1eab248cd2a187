"""Ends a worker process whose guard cannot: C code that holds the GIL stops every thread.

A process of its own watches, because a timer inside this one cannot tell a process that hangs
from one that was stopped (SIGSTOP, a debugger, a frozen container) and goes on: the first must
end, the second must lose its lease, say so, and work on.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from leasehold.telemetry import Emit

_SCRIPT = Path(__file__).with_name("watcher.py")
_WAIT_SECONDS = 5.0


class Watchdog:
    """``put_off`` again and again; whoever does not in time is killed. ``grace`` in seconds."""

    def __init__(self, grace: float, emit: Emit) -> None:
        self._grace = grace
        self._emit = emit
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = False
        self._closed = False

    def put_off(self, seconds: float) -> None:
        """The process ends ``seconds`` from now, unless this is called again."""
        if not self._closed:
            # the watcher looks twice, half a grace apart
            self._tell(max(0.0, seconds - self._grace / 2))

    def call_off(self) -> None:
        """Until the next ``put_off``."""
        if self._process:
            self._tell(-1.0)

    def close(self) -> None:
        """For good."""
        self.call_off()
        self._closed = True
        process, self._process = self._process, None
        if process:
            with suppress(OSError, subprocess.TimeoutExpired):
                assert process.stdin
                process.stdin.close()
                process.wait(_WAIT_SECONDS)

    def _tell(self, seconds: float) -> None:
        for _ in range(2):  # it may have been killed: once more with a new one
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
            [sys.executable, "-I", "-S", str(_SCRIPT), str(self._grace)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # what ends our group by Ctrl-C is no matter of its own
        )
