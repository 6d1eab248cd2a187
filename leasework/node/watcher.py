"""Kills its parent process, unless the parent puts it off in time.

It runs with ``python -I -S -c`` and reads no clock. Each line of stdin is the number of seconds to
wait from now; a negative one suspends it. The argument is the grace in seconds.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path


def stopped(pid: int) -> bool:
    """Return whether SIGSTOP or a debugger has stopped the process. False if the system does not
    say."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] in ("T", "t")


def watch(grace: float) -> None:
    """Check at the deadline, and again half a grace later, so that the parent has time to put the
    watcher off. Kill the parent at the second check. A parent that was stopped gets its whole grace
    when it continues: it has lost its lease, and its guard ends the work."""
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
