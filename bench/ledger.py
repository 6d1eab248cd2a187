"""What ran, in memory that outlives its process: each run of a handler leaves a number there.

A file that is mapped: the harness reads it while the worker runs, and after a kill -9.
"""

from __future__ import annotations

import array
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

_HEAD = 8
"""Cells before the entries; the first one is the count of entries."""


class Ledger:
    """Cells of 64 bits in ``folder``, one file per process that runs handlers."""

    def __init__(self, path: Path, cells: int = 0) -> None:
        self.path = path
        if cells:
            with path.open("wb") as file:
                file.truncate((_HEAD + cells) * 8)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._cells = memoryview(self._map).cast("q")

    @classmethod
    def of_this_process(cls, folder: str, entries: int) -> Ledger:
        """``entries``: how many runs it has room for; one more is an IndexError."""
        return cls(Path(folder) / f"{os.getpid()}.ledger", 2 * entries)

    def recorder(self, timed: bool = False) -> Callable[[int], None]:
        """``ran(number)``: about 100 ns, the same for everybody; ``timed`` notes
        CLOCK_MONOTONIC in ns beside the number."""
        if timed:
            return self._timed_recorder()
        cells, count = self._cells, 0

        def ran(number: int) -> None:
            nonlocal count
            cells[_HEAD + count] = number
            count += 1
            cells[0] = count

        return ran

    def _timed_recorder(self) -> Callable[[int], None]:
        cells, count, now = self._cells, 0, time.monotonic_ns

        def ran(number: int) -> None:
            nonlocal count
            at = _HEAD + 2 * count
            cells[at] = number
            cells[at + 1] = now()
            count += 1
            cells[0] = count

        return ran

    @property
    def count(self) -> int:
        return self._cells[0]

    def numbers(self) -> list[int]:
        return list(self._cells[_HEAD : _HEAD + self.count])

    def timed(self) -> list[tuple[int, int]]:
        """(number, ns) of each run."""
        flat = array.array("q", self._cells[_HEAD : _HEAD + 2 * self.count])
        return list(zip(flat[::2], flat[1::2], strict=True))


class Ledgers:
    """All ledgers of a folder, as the harness sees them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[Path, Ledger] = {}

    def all(self) -> list[Ledger]:
        for path in self._folder.glob("*.ledger"):
            if path not in self._open and path.stat().st_size:
                self._open[path] = Ledger(path)
        return list(self._open.values())

    @property
    def count(self) -> int:
        return sum(ledger.count for ledger in self.all())

    def numbers(self) -> list[int]:
        return [number for ledger in self.all() for number in ledger.numbers()]

    def timed(self) -> list[tuple[int, int]]:
        return [entry for ledger in self.all() for entry in ledger.timed()]
