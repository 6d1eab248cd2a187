"""The demo's worker processes: started, watched, broken for real, and declared dead."""

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

from leasework.app.certify import Certifier
from leasework.config import Settings
from leasework.env import ASSIGNED_NODE, Env, assign_node_id
from leasework_lab.chaos.proxy import FaultProxy

_MARGIN_SECONDS = 5.0
"""Added to the workers' own grace before the remaining ones are killed."""
_LOG_LINES = 15

# Workers must import the same modules as we do, not those of the current folder.
_START = (
    "import sys; sys.path[:] = sys.argv[1:]; from leasework_lab.demo.worker import main; main()"
)


@dataclass(eq=False)
class Worker:
    """One process, with the identity that we chose for it."""

    node: UUID
    """The identity for which it is certified dead, even if it has taken another since."""
    identity: UUID
    worker_id: str
    """As in every view: ``host:pid:short-id``. A process that lost its lease rejoins under another
    identity; this and ``identity`` are the latest that it was seen under."""
    process: asyncio.subprocess.Process
    log: Path
    started_at: float
    """CLOCK_BOOTTIME, like ``ended_at``."""
    release: str = ""
    link: FaultProxy | None = None
    """Its connection to the database, if that can be cut."""
    killed: bool = False
    """We killed it."""
    retired: bool = False
    """It was told to stop."""
    frozen: bool = False
    cut: bool = False
    ended_at: float | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    @property
    def well(self) -> bool:
        """Is it running, and is no fault hitting it?"""
        return self.alive and not (self.killed or self.retired or self.frozen or self.cut)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)

    def cut_off(self) -> None:
        """Let nothing pass in either direction, as with an unplugged cable."""
        if self.link:
            self.link.hole(True, True)
            self.cut = True

    def mend(self) -> None:
        self.cut = False
        if self.link:
            self.link.heal()

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:]) or "(it wrote nothing)"


class Fleet:
    """``workers``: in the order of their start, including dead ones. ``folder``: for their logs.
    ``links``: give each one a connection to the database that can be cut."""

    def __init__(
        self, settings: Settings, env: Env, certifier: Certifier, folder: Path, links: bool = False
    ) -> None:
        self._settings = settings
        self._env = env
        self._certifier = certifier
        self._folder = folder
        self._links = links
        self._stopping = False
        self._fallen: set[Worker] = set()
        self.workers: list[Worker] = []

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.alive and not worker.killed]

    @property
    def links(self) -> bool:
        return self._links

    def find(self, worker_id: str | None) -> Worker | None:
        """The process with this worker_id, under any of its identities."""
        host, pid, _ = (worker_id or "::").rsplit(":", 2)
        if host != self._env.host:
            return None
        return next((w for w in reversed(self.workers) if str(w.pid) == pid), None)

    async def spawn(self, release: str = "") -> Worker:
        """Start a worker. ``release``: the deployment that it belongs to, or ""."""
        node = self._env.new_id()
        log = self._folder / f"worker-{len(self.workers) + 1}.log"
        link = None
        if self._links:
            link = await FaultProxy(self._settings.dsn).__aenter__()
        dsn = link.dsn if link else self._settings.dsn
        named = {"LEASEWORK_RELEASE": release} if release else {}
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _START,
                *sys.path,
                stdin=subprocess.PIPE,  # closes when we end, in whatever way
                stdout=out,
                stderr=out,
                env={
                    **os.environ,
                    "LEASEWORK_DSN": dsn,
                    ASSIGNED_NODE: assign_node_id(node),
                    **named,
                },
                process_group=0,  # Ctrl-C is for us: we stop the workers cleanly
            )
        worker_id = f"{self._env.host}:{process.pid}:{str(node)[-6:]}"
        began = self._env.boot_now()
        worker = Worker(node, node, worker_id, process, log, began, release, link)
        self.workers.append(worker)
        return worker

    def note_ends(self) -> None:
        """Record the time at which processes were found to have ended."""
        for worker in self.workers:
            if not worker.alive and worker.ended_at is None:
                worker.ended_at = self._env.boot_now()

    def retire(self, worker: Worker) -> None:
        """SIGTERM: it finishes its jobs and exits."""
        worker.retired = True
        worker.mend()
        worker.thaw()
        with suppress(ProcessLookupError):
            worker.process.send_signal(signal.SIGTERM)

    def kill(self, worker: Worker) -> float:
        """Send SIGKILL. Returns the time (CLOCK_BOOTTIME) just before."""
        worker.killed = True
        before = self._env.boot_now()
        worker.process.send_signal(signal.SIGKILL)
        return before

    def certify(self, worker: Worker) -> None:
        """Certify its death, which we know as its parent, so that nobody waits for its lease."""
        self._certifier.report(worker.node, f"exit code {worker.process.returncode}")

    def newly_fallen(self) -> list[Worker]:
        """Processes that ended by themselves, each reported once."""
        ended = {w for w in self.workers if not (w.alive or w.killed or w.retired)}
        fallen = ended - self._fallen
        self._fallen |= fallen
        return [] if self._stopping else sorted(fallen, key=lambda worker: worker.pid)

    async def stop(self) -> list[Worker]:
        """SIGTERM to all, later SIGKILL to those that remain; the latter are returned."""
        self._stopping = True
        alive = [worker for worker in self.workers if worker.alive]
        for worker in alive:
            self.retire(worker)
        ends = [asyncio.ensure_future(worker.process.wait()) for worker in alive]
        seconds = self._settings.grace + self._settings.timings.grace + _MARGIN_SECONDS
        if ends:
            await asyncio.wait(ends, timeout=seconds)
        late = [worker for worker in alive if worker.alive]
        await self.end()
        return late

    async def end(self) -> None:
        """SIGKILL to all that remain."""
        self._stopping = True
        alive = [worker for worker in self.workers if worker.alive]
        for worker in alive:
            with suppress(ProcessLookupError):
                worker.process.kill()
        await asyncio.gather(*[worker.process.wait() for worker in alive])
        self.note_ends()
        for worker in self.workers:
            if worker.link:
                await worker.link.close()
