"""A file to which handlers of all processes append what they did, one line each."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    what: str
    key: str
    """A job's id, or a tick's moment."""
    attempt: int
    pid: int
    release: str
    at: float
    """Seconds since the epoch, of the writing process's clock."""


def note(what: str, key: object = "", attempt: int = 0) -> None:
    """Append one entry to the file that ``JOURNAL`` names."""
    release = os.environ.get("LEASEWORK_RELEASE") or "-"
    line = f"{what} {key or '-'} {attempt} {os.getpid()} {release} {time.time():.6f}\n"
    file = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())  # appended as a whole
    finally:
        os.close(file)


def entries(path: Path, what: str | None = None) -> list[Entry]:
    """What was noted so far, in the order in which it was written."""
    if not path.exists():
        return []
    words = [line.split() for line in path.read_text().splitlines()]
    found = [
        Entry(w[0], w[1], int(w[2]), int(w[3]), w[4], float(w[5])) for w in words if len(w) == 6
    ]
    return [entry for entry in found if what in (None, entry.what)]
