"""Starts real Python processes, watches their logs, and always ends them.

Each process leads its own process group, so that its children end with it. It is reaped only in
:meth:`Process.close`, so its pid is not reused before.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from tests.support.wait import NeverHappened, until

ROOT = Path(__file__).resolve().parents[2]
# Settings of the developer's shell must not affect the process under test.
PRIVATE = ("LEASEWORK_NODE_ID", "LEASEWORK_DSN")


class Process:
    """A running process. Its stdout and stderr go to ``log``."""

    def __init__(self, popen: subprocess.Popen[bytes], name: str, log: Path) -> None:
        self._popen = popen
        self._status: int | None = None
        self._closed = False
        self.name = name
        self.log = log
        self.pid = popen.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def returncode(self) -> int | None:
        """The exit status. None while the process runs. A negative number is the signal that ended
        it."""
        if self._status is None and not self._closed:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            ended = os.waitid(os.P_PID, self.pid, flags)
            if ended is not None:
                by_exit = ended.si_code == os.CLD_EXITED
                self._status = ended.si_status if by_exit else -ended.si_status
        return self._status

    @property
    def running(self) -> bool:
        return not self._closed and self.returncode is None

    def kill(self, sig: int = signal.SIGKILL, *, group: bool = False) -> None:
        """Send a signal to the process, or to its whole group."""
        if self._closed:
            raise ProcessLookupError(f"{self.name} was closed")
        (os.killpg if group else os.kill)(self.pid, sig)

    def stop(self) -> None:
        """Stop the process (SIGSTOP) until :meth:`resume`. It keeps its locks and connections."""
        self.kill(signal.SIGSTOP)

    def resume(self) -> None:
        self.kill(signal.SIGCONT)

    def wait(self, timeout: float = 10.0) -> int:
        """Wait until the process has ended, and return the exit status."""
        until(
            lambda: self.returncode is not None,
            timeout,
            f"the end of {self.name} (pid {self.pid}); its output ends with:\n{self.tail()}",
        )
        assert self._status is not None
        return self._status

    def wait_for(self, pattern: str, timeout: float = 10.0, *, count: int = 1) -> re.Match[str]:
        """Wait until a regular expression has matched ``count`` times, and return the last
        match."""
        wanted = re.compile(pattern, re.MULTILINE)

        def found() -> re.Match[str] | None:
            ended = self.returncode is not None  # first: then the output is complete
            matches = list(wanted.finditer(self.output))
            if len(matches) >= count:
                return matches[count - 1]
            if ended:
                raise NeverHappened(
                    f"{self.name} ended with {self.returncode} before {pattern!r} came "
                    f"{count} time(s); its output ends with:\n{self.tail()}"
                )
            return None

        try:
            match = until(found, timeout, f"{pattern!r} from {self.name}")
        except NeverHappened as error:
            if not self.running:
                raise
            raise NeverHappened(f"{error}; its output ends with:\n{self.tail()}") from None
        assert match is not None
        return match

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.output.splitlines()[-lines:]) or "(no output)"

    def close(self) -> None:
        """Kill the whole process group, including what the process left behind, and reap the
        process."""
        if self._closed:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):  # only the zombie is left
            os.killpg(self.pid, signal.SIGKILL)
        until(lambda: self.returncode is not None, 10, f"the end of {self.name}")
        self._closed = True
        self._popen.wait()


class Processes:
    """Starts processes, and ends all of them when the ``with`` block ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[Process] = []

    def start(
        self,
        *args: str,
        code: str | None = None,
        name: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Start Python: ``start("script.py")``, ``start("-m", "leasework", …)`` or
        ``start(code="…")``."""
        command = [sys.executable, "-u", *(["-c", code] if code else []), *args]
        return self.run(command, name=name or f"python{len(self.all)}", env=env)

    def run(
        self, command: Sequence[str], *, name: str, env: Mapping[str, str] | None = None
    ) -> Process:
        """Start any command in the same way."""
        base = {k: v for k, v in os.environ.items() if k not in PRIVATE}
        base["PYTHONPATH"] = str(ROOT)
        base["PYTHONUNBUFFERED"] = "1"
        base["PYTHONFAULTHANDLER"] = "1"
        log = self._log(name)
        with log.open("wb") as out:
            popen = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**base, **(env or {})},
                start_new_session=True,
                # a shell starts background processes with SIGINT ignored, and they never restore it
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
            )
        process = Process(popen, name, log)
        self.all.append(process)
        return process

    def _log(self, name: str) -> Path:
        known = {p.log.name for p in self.all}
        number, file = 1, f"{name}.log"
        while file in known:
            number += 1
            file = f"{name}-{number}.log"
        return self.folder / file

    def report(self) -> str:
        """Return all logs, for the report of a failed test."""
        return "\n".join(
            f"--- {p.name} (pid {p.pid}, {p.log.name})\n{p.tail(80)}" for p in self.all
        )

    def close(self) -> None:
        for process in reversed(self.all):
            process.close()

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
