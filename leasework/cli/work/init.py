"""A parent for a worker that would be process 1 of its container."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress

in_child = False
"""This process continues process 1, which passes signals on."""
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
        # no shell would continue what Ctrl-Z stops; programs inherit this
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with suppress(OSError):
            os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, before)


def continue_in_child() -> None:
    """Return in a child. This process passes signals on, reaps orphans, and ends as the child
    does."""
    global in_child
    awaited = {*_PASSED_ON, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.fork()
    if child == 0:
        in_child = True
        os.setpgid(0, 0)
        _take_terminal()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)
        return
    while True:
        number = signal.sigwait(awaited)
        if number != signal.SIGCHLD:
            os.kill(child, number)
            continue
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == child:
                code = os.waitstatus_to_exitcode(found[1])
                os._exit(code if code >= 0 else 128 - code)
