"""Kills the process that started it, unless it is put off in time.

Run as a script, by path and with ``python -I -S``: only the standard library, no clock to read.
It is told over stdin, a line each time, how many seconds to wait from now on; a negative number
is "until further notice", the end of the input is the end. The argument is the grace in seconds.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path


def stopped(pid: int) -> bool:
    """By SIGSTOP or a debugger. Where the system does not say: no."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] in ("T", "t")


def watch(grace: float) -> None:
    """One look at the deadline, a second one half a grace later: then it had time to put us off.

    A process that was stopped gets its whole grace from when it goes on: it lost its lease, and
    its guard ends what must end.
    """
    parent = os.getppid()
    left: float | None = None
    second_look, seen_late = grace / 2, False
    while True:
        if select.select([0], [], [], left)[0]:
            told = os.read(0, 65536)
            if not told:
                return
            seconds = float(told.split()[-1])
            left = seconds if seconds >= 0 else None
            second_look, seen_late = grace / 2, False
        elif os.getppid() != parent:
            return
        elif stopped(parent):
            left, second_look, seen_late = grace, grace, False
        elif seen_late:
            os.kill(parent, signal.SIGKILL)
            return
        else:
            left, seen_late = second_look, True


if __name__ == "__main__":
    watch(float(sys.argv[1]))
