"""The demo's worker processes: started, watched, killed for real, and declared dead."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from leasehold.app.certify import Certifier
from leasehold.config import Settings
from leasehold.env import ASSIGNED_NODE, Env, assign_node_id

_MARGIN_SECONDS = 5.0
"""Beyond the workers' own grace, until those that remain are killed."""
_LOG_LINES = 15

# What is imported must come from where our own modules came from, not from the current folder.
_START = (
    "import sys; sys.path[:] = sys.argv[1:]; from leasehold.cli.demo.worker import main; main()"
)


@dataclass(eq=False)
class Worker:
    """One process, with the identity that we chose for it."""

    node: UUID
    worker_id: str
    """As in every view: ``host:pid:short-id``."""
    process: asyncio.subprocess.Process
    log: Path
    killed: bool = False
    """By us."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:]) or "(it wrote nothing)"


class Fleet:
    """``workers`` in the order of their start, the dead ones too. Logs go to ``folder``."""

    def __init__(self, settings: Settings, env: Env, certifier: Certifier, folder: Path) -> None:
        self._settings = settings
        self._env = env
        self._certifier = certifier
        self._folder = folder
        self._stopping = False
        self._fallen: set[Worker] = set()
        self.workers: list[Worker] = []

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.alive and not worker.killed]

    def find(self, worker_id: str | None) -> Worker | None:
        return next((w for w in self.workers if w.worker_id == worker_id), None)

    async def spawn(self) -> Worker:
        node = self._env.new_id()
        log = self._folder / f"worker-{len(self.workers) + 1}.log"
        dsn = self._settings.dsn
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _START,
                *sys.path,
                stdin=subprocess.PIPE,  # ends when we end, however that is
                stdout=out,
                stderr=out,
                env={**os.environ, "LEASEHOLD_DSN": dsn, ASSIGNED_NODE: assign_node_id(node)},
                process_group=0,  # Ctrl-C is for us: we end them in good order
            )
        worker_id = f"{self._env.host}:{process.pid}:{str(node)[-6:]}"
        worker = Worker(node, worker_id, process, log)
        self.workers.append(worker)
        return worker

    def kill(self, worker: Worker) -> float:
        """SIGKILL; the moment (CLOCK_BOOTTIME) just before it."""
        worker.killed = True
        before = self._env.boot_now()
        worker.process.send_signal(signal.SIGKILL)
        return before

    def certify(self, worker: Worker) -> None:
        """As its parent we know that it is dead, and say so: nobody waits for its lease."""
        self._certifier.report(worker.node, f"exit code {worker.process.returncode}")

    def newly_fallen(self) -> list[Worker]:
        """Processes that ended without our doing, each told once."""
        fallen = {w for w in self.workers if not w.alive and not w.killed} - self._fallen
        self._fallen |= fallen
        return [] if self._stopping else sorted(fallen, key=lambda worker: worker.pid)

    async def stop(self) -> list[Worker]:
        """SIGTERM to all, later SIGKILL to those that are still there: these are returned."""
        self._stopping = True
        alive = [worker for worker in self.workers if worker.alive]
        for worker in alive:
            with suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGTERM)
        ends = [asyncio.ensure_future(worker.process.wait()) for worker in alive]
        seconds = self._settings.grace + self._settings.timings.grace + _MARGIN_SECONDS
        if ends:
            await asyncio.wait(ends, timeout=seconds)
        late = [worker for worker in alive if worker.alive]
        await self.end()
        return late

    async def end(self) -> None:
        """SIGKILL to all that is left."""
        self._stopping = True
        alive = [worker for worker in self.workers if worker.alive]
        for worker in alive:
            with suppress(ProcessLookupError):
                worker.process.kill()
        await asyncio.gather(*[worker.process.wait() for worker in alive])
