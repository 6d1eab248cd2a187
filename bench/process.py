"""A process of a contender, started in its own environment."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]
SIDE = Path(__file__).with_name("side.py").resolve()
"""Of this checkout, also for a contender of another one, so that all are measured in one way."""


def commit(root: Path) -> str:
    """What is checked out there; "-dirty" when anything but the results of measures was changed."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True).stdout

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
    return git("describe", "--always").strip() + ("-dirty" if changed else "")


class SideFailed(Exception):
    """The contender's process ended badly; its log is in the message."""


@dataclass(frozen=True)
class Contender:
    """``module`` of bench.contenders, run by ``python``; ``settings`` says which ones it has."""

    name: str
    module: str
    settings: str
    python: str = sys.executable
    packages: tuple[str, ...] = ()
    """What of PyPI is in the environment that ``python`` is of."""
    share: float = 1.0
    """Of the jobs of a drain: a slow one gets fewer, so that a slice stays short."""
    work: tuple[tuple[str, Any], ...] = ()
    """Options of its workers."""
    redis: bool = False
    """It works on a redis, not on the Postgres."""
    root: Path = ROOT
    """The checkout whose ``bench.contenders`` and ``leasework`` it has."""


class Side:
    """One call of a contender: ``go()``, then ``answer()`` or ``stop()``."""

    def __init__(self, contender: Contender, verb: str, **options: Any) -> None:
        self.contender = contender
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the process)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LEASEWORK_")}
        command = [contender.python, "-P", SIDE, contender.module, verb]
        self.process = subprocess.Popen(
            [*command, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=contender.root,
            env={**environment, "PYTHONPATH": str(contender.root)},
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()
        self._log.close()

    def ready(self, seconds: float = 60.0) -> Self:
        """Everything is imported."""
        self._line(seconds)
        return self

    def go(self) -> Self:
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self

    def check(self) -> None:
        """Raises SideFailed when it has ended."""
        if self.process.poll() is not None:
            raise SideFailed(self._report("ended"))

    def answer(self, seconds: float = 300.0) -> Any:
        line = self._line(seconds)
        if self.process.wait(30) != 0:
            raise SideFailed(self._report("failed"))
        return json.loads(line)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> None:
        self.process.send_signal(number)
        self.stopped(number, seconds)

    def stopped(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> None:
        """Wait until it has ended at this signal."""
        if self.process.wait(seconds) not in (0, -number) and number == signal.SIGTERM:
            raise SideFailed(self._report("did not stop well"))

    def _line(self, seconds: float) -> str:
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise SideFailed(self._report(f"said nothing for {seconds:g} s"))
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(30)
            raise SideFailed(self._report("ended"))
        return line

    def _report(self, what: str) -> str:
        self._log.seek(0)
        return f"{self.contender.name} {what} ({self.process.poll()}):\n{self._log.read()[-3000:]}"


def call(contender: Contender, verb: str, **options: Any) -> Any:
    """Run a verb to its end."""
    with Side(contender, verb, **options) as side:
        return side.ready().go().answer()
