"""Histories: what each process did and was told, one JSON object per line, written by itself.

Times are CLOCK_BOOTTIME, which all processes of a machine share. A line is a single write(2), so a
killed process leaves whole lines and loses none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from leasework.env import Env

Line = dict[str, Any]


class Writer:
    """``note(kind, field=value …)``, from any thread of one process."""

    def __init__(self, path: Path, env: Env) -> None:
        self._env = env
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def note(self, kind: str, **fields: Any) -> None:
        self.note_at(self._env.boot_now(), kind, **fields)

    def note_at(self, at: float, kind: str, **fields: Any) -> None:
        """Write a line with a time that the caller has read."""
        line = json.dumps({"kind": kind, "at": at, **fields}, default=str) + "\n"
        os.write(self._fd, line.encode())

    def close(self) -> None:
        os.close(self._fd)


@dataclass
class Process:
    """One process from its start to its end."""

    name: str
    """The name of its place in the campaign, such as ``node1``; its successors share it."""
    role: str
    pid: int
    started_at: float
    ended_at: float | None = None
    how: str = ""
    """``killed``, ``stopped``, or how it ended by itself."""
    code: int | None = None
    """Its exit status, however it ended; negative: a signal."""
    hard_exit: bool = False
    """Whether its node may end the process, and has a watchdog."""
    lines: list[Line] = field(default_factory=list)

    def of(self, *kinds: str) -> Iterator[Line]:
        return (line for line in self.lines if line["kind"] in kinds)

    def __str__(self) -> str:
        return f"{self.name} ({self.pid})"


@dataclass
class Fault:
    """An injected fault. ``target``: a process's name, or ``database`` for all."""

    kind: str
    target: str
    start: float
    end: float
    words: str = ""
    counted: bool = True
    """False if nobody knows whether it hit anything: it excuses failures, but shows nothing."""


@dataclass
class Campaign:
    """Everything recorded about one run."""

    profile: str
    seed: int
    began_at: float
    healed_at: float
    """When the last fault ended."""
    ended_at: float
    processes: list[Process] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    rows: list[Line] = field(default_factory=list)
    """The leader's row as the campaign saw it: one line per change of ``node, token, seq``."""
    drained: bool = False
    load: float = 0.0
    """The machine's load average when the faults ended."""
    stopping_at: float = 0.0
    """When the nodes were told to stop."""
    clock: datetime | None = None
    """The database's time shortly before that; None if it did not answer."""
    own_tasks: bool = True
    """False for a user's application, whose tasks are unknown."""

    def nodes(self) -> list[Process]:
        return [process for process in self.processes if process.role == "node"]

    def producers(self) -> list[Process]:
        return [process for process in self.processes if process.role == "producer"]


def read(path: Path) -> list[Line]:
    """The lines of one process, in the order in which it wrote them."""
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text().splitlines()]
