"""Runs the steps of a page: its files are written, its commands typed into one shell.

In a page, a block ``python title="shop.py"`` is a file, and a block ``console`` is commands (lines
after ``$``, gone on with ``>``) with what they print: each line of that must be there in this
order, and ``…`` stands for anything. Other blocks are for reading. A command that only looks is
asked again until it says what the page says, since what it looks at takes its time.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.wait import NeverHappened, until

_FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<body>.*?)^```$", re.M | re.S)
_LOOKS = re.compile(
    r"(python manage\.py )?leasework (status|leaders|nodes|jobs(?! (retry|cancel|discard|signal))|"
    r"schedules|deadlines|locks|events|doctor)|cat |tail |grep "
)
_AT_END = "at the end of "
"""Begins the title of a block that is added to a file."""
PATIENCE_SECONDS = 90.0


@dataclass
class Step:
    command: str
    expected: list[str] = field(default_factory=list)

    @property
    def looks(self) -> bool:
        return bool(_LOOKS.match(self.command)) and not self.command.endswith("&")


@dataclass
class File:
    name: str
    text: str


def steps_of(page: Path) -> Iterator[Step | File]:
    for match in _FENCE.finditer(page.read_text("utf-8")):
        kind, body = match["kind"].strip(), match["body"]
        title = re.search(r'title="([^"]+)"', kind)
        if title:
            yield File(title[1], body)
        elif kind == "console":
            yield from _console(body)


def _console(body: str) -> Iterator[Step]:
    step: Step | None = None
    for line in body.splitlines():
        if line.startswith("$ "):
            if step:
                yield step
            step = Step(line[2:])
        elif line.startswith("> ") or line == ">":
            assert step is not None and not step.expected
            step.command += "\n" + line[2:]
        elif step and line.strip():
            step.expected.append(line)
    if step:
        yield step


def missing(output: str, expected: list[str]) -> str | None:
    """The first expected line that does not come after the ones before it."""
    lines = iter(output.splitlines())
    for wanted in expected:
        pattern = ".*".join(_piece(part) for part in wanted.split("…"))
        if not any(re.search(pattern, line) for line in lines):
            return wanted
    return None


def _piece(part: str) -> str:
    """What stands beside a space is a whole word: ``… 3 …`` is no part of 13 or of 09:30:13."""
    before = r"(?<![\w.:-])" if part.startswith(" ") and part.strip() else ""
    after = r"(?![\w:-])" if part.endswith(" ") and part.strip() else ""
    return before + re.escape(part.strip()) + after


class Shell:
    """One bash in a process group of its own, with its background jobs."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self._log = folder / "shell.log"
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-m"],
            cwd=folder,
            env={**os.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=self._log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._count = 0
        self._seen = 0

    def run(self, command: str, seconds: float = PATIENCE_SECONDS) -> str:
        self._count += 1
        mark = f"--- step {self._count} is done ---"
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{command}\necho; echo '{mark}'\n".encode())
        self._bash.stdin.flush()
        until(
            lambda: f"{mark}\n" in self._fresh() or self._bash.poll() is not None,
            seconds,
            f"the end of: {command}",
        )
        output, done, _ = self._fresh().partition(mark)
        assert done, f"the shell ended at: {command}\n{output}"
        self._seen += len(output) + len(mark) + 1
        return output

    def _fresh(self) -> str:
        return self._log.read_text("utf-8", "replace")[self._seen :]

    def close(self) -> None:
        """End all that the page started: jobs have groups of their own, this is their session."""
        for pid in _session(self._bash.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._bash.wait()
        assert self._bash.stdin is not None
        self._bash.stdin.close()


def _session(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[3]) == leader:
                found.append(int(entry.name))
    return found


def walk(page: Path, folder: Path, environ: dict[str, str]) -> int:
    """Do all that a page says; how many commands. Fails where it does not go as it says."""
    shell, done = Shell(folder, environ), 0
    try:
        for step in steps_of(page):
            if isinstance(step, File):
                file = folder / step.name.removeprefix(_AT_END)
                before = file.read_text("utf-8") if step.name.startswith(_AT_END) else ""
                file.write_text(before + step.text, "utf-8")
                continue
            _do(shell, step)
            done += 1
    finally:
        shell.close()
    return done


def _do(shell: Shell, step: Step) -> None:
    command = step.command.replace("LEASEWORK_DSN=embedded", 'LEASEWORK_DSN="$TEST_DSN"')
    said = ""

    def goes() -> bool:
        nonlocal said
        said = shell.run(command)
        if not step.expected and "Traceback (most recent call last)" in said:
            step.expected.append("nothing")
        return missing(said, step.expected) is None

    with suppress(NeverHappened):
        if goes() or (step.looks and until(goes, PATIENCE_SECONDS, every=0.5)):
            return
    lacks = missing(said, step.expected)
    raise AssertionError(f"$ {step.command}\nthe page says: {lacks}\nit said:\n{said}")


def environ(dsn: str) -> dict[str, str]:
    """What a reader's shell has after the installation, and another database. STEPS_BIN:
    the programs of another environment, into which leasework was installed."""
    programs = os.environ.get("STEPS_BIN") or Path(sys.executable).parent
    return {
        "TEST_DSN": dsn,
        "LEASEWORK_DSN": dsn,
        "NO_COLOR": "1",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
