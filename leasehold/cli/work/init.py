"""A parent for a worker that would be process 1 of its container."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress

_PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)


def leave_process_one() -> None:
    """If this is process 1, continue in a child of it. The kernel delivers no signal to process 1
    that it does not handle, and no SIGKILL from its own container: a signal during the start would
    be lost, and the watchdog could not end a worker that hangs. Nobody would reap orphans either.
    """
    if os.getpid() == 1 and threading.active_count() == 1:
        continue_in_child()


def _take_terminal() -> None:
    """Become the group in front, which may read, and which alone gets Ctrl-C."""
    if os.isatty(0):
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with suppress(OSError):
            os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, before)


def continue_in_child() -> None:
    """Return in a child. This process passes signals on, reaps orphans, and ends as the child
    does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        _take_terminal()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        return

    def pass_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):  # it has just been reaped
            os.kill(child, number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
