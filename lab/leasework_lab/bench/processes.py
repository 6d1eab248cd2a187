"""Worker processes of a measurement, and the CPU time of any process on this machine."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from leasework.errors import LeaseworkError

# Workers must import the same modules as we do, not those of the current folder.
_START = (
    "import sys; sys.path[:] = sys.argv[1:]; from leasework_lab.bench.worker import main; main()"
)
_TAIL_CHARS = 2000


class MeasurementFailed(LeaseworkError):
    """Jobs were lost, ran twice or did not finish, so there is no figure."""


class Worker:
    """One worker process; ``log`` is its output."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid

    def check(self) -> None:
        """Raises MeasurementFailed, with the end of the log, if it has ended."""
        if self._process.returncode is not None:
            raise MeasurementFailed(
                f"a worker ended with exit code {self._process.returncode}",
                got=self._log.read_text(errors="replace")[-_TAIL_CHARS:],
            )

    async def stop(self, seconds: float) -> None:
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def workers(dsn: str, count: int, folder: Path, grace: float) -> AsyncIterator[list[Worker]]:
    """Start ``count`` workers; stop them at the end (killed after ``grace`` seconds)."""
    started: list[Worker] = []
    try:
        for _ in range(count):
            log = folder / f"worker-{len(started) + 1}.log"
            with log.open("ab") as out:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    _START,
                    *sys.path,
                    stdin=asyncio.subprocess.PIPE,  # closes when we end, in whatever way
                    stdout=out,
                    stderr=out,
                    env={**_clean_environment(), "LEASEWORK_DSN": dsn},
                    process_group=0,  # Ctrl-C is for us: we stop the workers cleanly
                )
            started.append(Worker(process, log))
        yield started
    finally:
        await asyncio.gather(*[worker.stop(grace) for worker in started])


def _clean_environment() -> dict[str, str]:
    """The environment without the caller's settings: the defaults are measured."""
    return {k: v for k, v in os.environ.items() if not k.startswith("LEASEWORK_")}


def cpu_seconds(pids: Iterable[int], name: str = "") -> float | None:
    """CPU seconds of these local processes and their children; None if they are not on this machine
    or the system does not report it. Processes whose command does not start with ``name`` are
    skipped, because they belong to somebody else."""
    total, seen = 0.0, False
    for pid in pids:
        seconds = _cpu_seconds(pid, name)
        if seconds is not None:
            total, seen = total + seconds, True
    return total if seen else None


def _cpu_seconds(pid: int, name: str) -> float | None:
    try:
        folder = Path(f"/proc/{pid}")
        if name and not (folder / "cmdline").read_text(errors="replace").startswith(name):
            return None
        threads = [_thread_seconds(thread) for thread in (folder / "task").iterdir()]
        below = [
            _cpu_seconds(int(child), "") or 0.0
            for path in folder.glob("task/*/children")
            for child in path.read_text().split()
        ]
    except (OSError, ValueError, IndexError):
        return None
    return sum(threads) + sum(below)


def _thread_seconds(thread: Path) -> float:
    """In nanoseconds where the kernel counts them, else in clock ticks."""
    try:
        return int((thread / "schedstat").read_text().split()[0]) / 1e9
    except OSError:
        fields = (thread / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
