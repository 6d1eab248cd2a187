"""The watcher: keeps the picture up to date, and notices when a process ends by itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from leasework.errors import Unavailable
from leasework.store.rows import NodeView
from leasework_lab.demo.fleet import Worker
from leasework_lab.demo.show import LAST_TICKS, Row, Screen
from leasework_lab.demo.stage import Stage
from leasework_lab.demo.tables import Look

_LOOK_SECONDS = 0.25
_DEAD_ROWS = 2


class Watcher:
    """``joined`` is set when all initial processes have joined and one of them leads."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self._stage = stage
        self._screen = screen
        self._look: Look | None = None
        self._leader: Worker | None = None
        self._term = 0
        self._nodes: frozenset[Worker] = frozenset()
        self.joined = asyncio.Event()
        self.first_job_seconds: float | None = None

    async def run(self) -> None:
        while True:
            with suppress(Unavailable):
                await self.see()
            self.refresh()
            self._watch_processes()
            await asyncio.sleep(_LOOK_SECONDS)

    async def see(self) -> None:
        """Read the state from the database."""
        stage = self._stage
        reports = await stage.demo.app.reports()
        self._nodes = self._take_in(await reports.nodes(100))
        self._look = await stage.demo.evidence.look(LAST_TICKS)
        self._leader, term = await stage.leader()
        if self._leader and term != self._term and not stage.killing:
            if not stage.deaths or self._term:
                self._tell_of_leader(term)
            self._term = term
        if self.first_job_seconds is None and self._look.jobs_done:
            self.first_job_seconds = stage.seconds
            stage.tell(f"the first job has run, {stage.seconds:.1f} s after the start")
        if self._leader and self._nodes.issuperset(stage.fleet.workers):
            self.joined.set()

    def _take_in(self, rows: list[NodeView]) -> frozenset[Worker]:
        """The live nodes' processes. One that lost its lease now has another identity."""
        found = set()
        for row in rows:  # the newest last
            worker = self._stage.fleet.find(row.worker_id)
            if worker:
                worker.identity, worker.worker_id = row.id, row.worker_id
                found.add(worker)
        return frozenset(found)

    def _tell_of_leader(self, term: int) -> None:
        told = any(f"(term {term})" in text for _, text in self._stage.picture.stories)
        if self._leader and not told:
            self._stage.tell(f"pid {self._leader.pid} leads (term {term})")

    def refresh(self) -> None:
        """Redraw with what was read last."""
        picture, look = self._stage.picture, self._look
        picture.seconds = self._stage.seconds
        picture.enqueued = len(self._stage.enqueued)
        workers = self._stage.fleet.workers
        dead = [worker for worker in workers if not worker.alive][-_DEAD_ROWS:]
        picture.rows = [self._row(worker) for worker in workers if worker.alive or worker in dead]
        if look:
            # a job may be done before our enqueue has returned
            picture.jobs_done = min(look.jobs_done, picture.enqueued)
            picture.ticks_done = look.ticks_done
            picture.ticks = look.ticks
        self._screen.update(picture)

    def _row(self, worker: Worker) -> Row:
        running = self._look.running.get(worker.worker_id, (0, 0))[0] if self._look else 0
        if not worker.alive:
            return Row(worker.pid, "killed" if worker.killed else "ended")
        if worker.frozen or worker.cut:
            return Row(worker.pid, "frozen" if worker.frozen else "cut off", None, running)
        if worker is self._leader:
            return Row(worker.pid, "leads", self._term, running)
        return Row(worker.pid, self._state(worker), None, running)

    def _state(self, worker: Worker) -> str:
        if worker.retired:
            return "stopping"
        return "follows" if worker in self._nodes else "starting"

    def _watch_processes(self) -> None:
        self._stage.fleet.note_ends()
        for worker in self._stage.fleet.newly_fallen():
            self._stage.troubles.append(
                f"pid {worker.pid} ended by itself (exit {worker.process.returncode}); its log "
                f"ends with:\n{worker.log_tail()}"
            )
            self._stage.fleet.certify(worker)
            self._stage.stop.set()
