"""The database of a campaign: its own PostgreSQL, open to every fault, or a user's by its DSN."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from leasework_lab.server import LabServer

_LIBRARIES = (
    "/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
)
_SETTINGS = {"max_connections": "150", "fsync": "on", "shared_buffers": "64MB"}


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

    def __init__(self, version: str | None = None) -> None:
        """Start the server, which takes a second or two. Raises EmbeddedError."""
        self._folder = Path(tempfile.mkdtemp(prefix="lh-chaos-"))
        self._folder.chmod(0o711)
        self._stopped: list[int] = []
        library = find_faketime()
        self.clock = Clock(library, self._folder / "clock") if library else None
        environ = self.clock.environ if self.clock else {}
        try:
            self._server = LabServer.start(
                version, _SETTINGS, prefix="lh-chaos-server-", environ=environ
            )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

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
        shutil.rmtree(self._folder, ignore_errors=True)


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
