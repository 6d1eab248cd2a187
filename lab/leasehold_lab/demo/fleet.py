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

from leasehold.app.certify import Certifier
from leasehold.config import Settings
from leasehold.env import ASSIGNED_NODE, Env, assign_node_id
from leasehold_lab.chaos.proxy import FaultProxy

_MARGIN_SECONDS = 5.0
"""Beyond the workers' own grace, until those that remain are killed."""
_LOG_LINES = 15

# What is imported must come from where our own modules came from, not from the current folder.
_START = (
    "import sys; sys.path[:] = sys.argv[1:]; from leasehold_lab.demo.worker import main; main()"
)


@dataclass(eq=False)
class Worker:
    """One process, with the identity that we chose for it."""

    node: UUID
    """... and for which it is certified dead, whatever identity it took since."""
    identity: UUID
    worker_id: str
    """As in every view: ``host:pid:short-id``. A process that lost its lease takes part again
    under another identity: this and ``identity`` are the ones it was seen under last."""
    process: asyncio.subprocess.Process
    log: Path
    started_at: float
    """CLOCK_BOOTTIME, like ``ended_at``."""
    release: str = ""
    link: FaultProxy | None = None
    """Its way to the database, when that can be cut."""
    killed: bool = False
    """By us."""
    retired: bool = False
    """It was told to end."""
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
        """It takes part, and nothing is done to it."""
        return self.alive and not (self.killed or self.retired or self.frozen or self.cut)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)

    def cut_off(self) -> None:
        """Nothing it sends arrives, and nothing is told to it: as with a cable pulled."""
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
    """``workers`` in the order of their start, the dead ones too. Logs go to ``folder``.
    ``links``: each gets a way to the database that can be cut."""

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
        """The process, under whichever of its identities."""
        host, pid, _ = (worker_id or "::").rsplit(":", 2)
        if host != self._env.host:
            return None
        return next((w for w in reversed(self.workers) if str(w.pid) == pid), None)

    async def spawn(self, release: str = "") -> Worker:
        """``release``: the deployment that it is of; "": none is named."""
        node = self._env.new_id()
        log = self._folder / f"worker-{len(self.workers) + 1}.log"
        link = None
        if self._links:
            link = await FaultProxy(self._settings.dsn).__aenter__()
        dsn = link.dsn if link else self._settings.dsn
        named = {"LEASEHOLD_RELEASE": release} if release else {}
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _START,
                *sys.path,
                stdin=subprocess.PIPE,  # ends when we end, however that is
                stdout=out,
                stderr=out,
                env={
                    **os.environ,
                    "LEASEHOLD_DSN": dsn,
                    ASSIGNED_NODE: assign_node_id(node),
                    **named,
                },
                process_group=0,  # Ctrl-C is for us: we end them in good order
            )
        worker_id = f"{self._env.host}:{process.pid}:{str(node)[-6:]}"
        began = self._env.boot_now()
        worker = Worker(node, node, worker_id, process, log, began, release, link)
        self.workers.append(worker)
        return worker

    def note_ends(self) -> None:
        """Write down when those ended that have ended since."""
        for worker in self.workers:
            if not worker.alive and worker.ended_at is None:
                worker.ended_at = self._env.boot_now()

    def retire(self, worker: Worker) -> None:
        """SIGTERM: it finishes what it has, and ends."""
        worker.retired = True
        worker.mend()
        worker.thaw()
        with suppress(ProcessLookupError):
            worker.process.send_signal(signal.SIGTERM)

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
        ended = {w for w in self.workers if not (w.alive or w.killed or w.retired)}
        fallen = ended - self._fallen
        self._fallen |= fallen
        return [] if self._stopping else sorted(fallen, key=lambda worker: worker.pid)

    async def stop(self) -> list[Worker]:
        """SIGTERM to all, later SIGKILL to those that are still there: these are returned."""
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
        """SIGKILL to all that is left."""
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
