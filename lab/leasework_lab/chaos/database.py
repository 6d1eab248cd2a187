"""The database of a campaign: its own PostgreSQL, open to every fault, or a user's by its DSN."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from leasework.embedded import EmbeddedServer, find_binaries, reaper
from leasework.embedded.account import server_account
from leasework.embedded.binaries import BINARIES_SETTING, reachable

_LIBRARIES = (
    "/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
)
_SETTINGS = {"max_connections": "150", "fsync": "on", "shared_buffers": "64MB"}
_REAPER_SECONDS = 5.0


def find_faketime() -> Path | None:
    """The library of Debian's package ``libfaketime``."""
    machine = os.uname().machine
    paths = [Path(pattern.format(machine)) for pattern in _LIBRARIES]
    return next((path for path in paths if path.exists()), None)


class Clock:
    """A wall clock that can be stepped, for every process started with ``environ``. Monotonic
    clocks are not affected."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self.environ = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.offset = 0.0
        self.set(0.0)

    def set(self, seconds: float) -> None:
        """Set the clock this many seconds ahead of the true time."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.3f}s\n")
        new.chmod(0o644)
        new.rename(self._file)
        self.offset = seconds


class Server:
    """The campaign's own server. Its clock can be stepped if libfaketime is installed."""

    def __init__(self, folder: Path, server: EmbeddedServer, clock: Clock | None) -> None:
        self._folder = folder
        self._server = server
        self._stopped: list[int] = []
        self.clock = clock

    @classmethod
    def start(cls, version: str | None = None) -> Self:
        """Start the server, which takes a second or two. Raises EmbeddedError."""
        folder = Path(tempfile.mkdtemp(prefix="lh-chaos-"))
        folder.chmod(0o711)
        library = find_faketime()
        clock = Clock(library, folder / "clock") if library else None
        before = os.environ.get(BINARIES_SETTING)
        try:
            if clock:
                os.environ[BINARIES_SETTING] = str(_wrapped(folder, clock, version))
            server = EmbeddedServer.start(folder / "data", version=version, settings=_SETTINGS)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.environ.pop(BINARIES_SETTING, None)
            if before is not None:
                os.environ[BINARIES_SETTING] = before
        return cls(folder, server, clock)

    @property
    def dsn(self) -> str:
        return self._server.dsn

    @property
    def version(self) -> str:
        return self._server.version

    async def crash(self) -> None:
        """Shut down immediately, and start again with recovery."""
        await asyncio.to_thread(self._server.restart, "immediate")

    def pause(self) -> None:
        """Send SIGSTOP to every process of the server."""
        postmaster = self._server.pid
        os.kill(postmaster, signal.SIGSTOP)  # first, so that it starts no more processes
        self._stopped = [postmaster, *_children(postmaster)]
        for pid in self._stopped[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        stopped, self._stopped = self._stopped, []
        for pid in reversed(stopped):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill_backend(self, pid: int) -> bool:
        """Send SIGKILL to one backend: the postmaster ends all the others, and recovers."""
        if pid not in _children(self._server.pid):
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return True

    def close(self) -> None:
        self.resume()
        self._server.close()
        lock = self._folder / "data" / reaper.REAPER_LOCK
        for _ in range(int(_REAPER_SECONDS / reaper.POLL_SECONDS)):
            if reaper.is_free(lock):
                break
            time.sleep(reaper.POLL_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _wrapped(folder: Path, clock: Clock, version: str | None) -> Path:
    """A bin folder whose ``postgres`` uses the clock."""
    account = server_account(folder / "data" / reaper.PGDATA)
    binaries = reachable(find_binaries(version), account, folder)
    wrapped = folder / "bin"
    wrapped.mkdir()
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in clock.environ.items())
    for program, given in ((binaries.postgres, f"export {exports}\n"), (binaries.initdb, "")):
        script = wrapped / program.name
        script.write_text(f'#!/bin/sh\n{given}exec {shlex.quote(str(program))} "$@"\n')
        script.chmod(0o755)
    wrapped.chmod(0o755)
    return wrapped
