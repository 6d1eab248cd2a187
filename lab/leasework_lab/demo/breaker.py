"""Faults that a person can cause. Each is real, and is watched until everything has recovered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from leasework.cli.output import counted
from leasework.errors import Unavailable
from leasework.store.rows import NodeView
from leasework_lab.demo.database import DemoDatabase
from leasework_lab.demo.fleet import Worker
from leasework_lab.demo.kill import busy_leader, kill_process, next_term
from leasework_lab.demo.scorecard import Act, takeover
from leasework_lab.demo.show import pid_of
from leasework_lab.demo.stage import Stage

_RESTART_SECONDS = 1.5
_SLACK_SECONDS = 10.0
"""Added to ``recover_within`` before an act counts as not recovered, for a busy machine."""
_JOIN_SECONDS = 30.0
_BESIDE_SECONDS = 4.0
"""How long two releases run side by side."""
_LEAST_WELL = 2
"""The number of processes that no fault may hit, so that somebody can take over."""
_COLOURS = ("blue", "green")
WHOLE = "database"

Work: TypeAlias = Coroutine[Any, Any, None]
T = TypeVar("T")
Said: TypeAlias = "tuple[str, bool]"
"""What to tell the person, and whether the act was refused."""


class Breaker:
    """``press`` starts an act; its recovery is watched in the background and reported to the stage.
    ``go`` starts background work of the play."""

    def __init__(
        self,
        stage: Stage,
        database: DemoDatabase,
        go: Callable[[Work], asyncio.Task[None]],
    ) -> None:
        self._stage = stage
        self._database = database
        self._go = go
        self._under_way: set[asyncio.Task[None]] = set()
        self._deploys = 1
        self._busy: set[str] = set()

    # -- what may be done ------------------------------------------------------------------------
    def why_not(self, kind: str) -> str:
        """Why a button has no effect here; "" if it works."""
        if kind == "restart" and self._database.server is None:
            return "The demo does not restart your own database."
        if kind in ("cut", "mend") and not self._stage.fleet.links:
            return "Only connections to the demo's own database can be cut."
        return ""

    async def press(self, kind: str, whom: str = "") -> Said:
        """``kind``: as in :class:`Act`. ``whom``: ``leader`` or ``worker``."""
        if self._stage.stop.is_set() or self._stage.picture.phase != "running":
            return "The processes are starting or stopping. Try again in a moment.", True
        if why := self.why_not(kind):
            return why, True
        try:
            return await self._press(kind, whom)
        except Unavailable:
            return "The database does not answer at the moment.", True

    async def _press(self, kind: str, whom: str) -> Said:
        match kind:
            case "kill":
                return await self._press_kill()
            case "freeze" | "cut":
                return await self._press_stop(kind, whom)
            case "thaw" | "mend":
                return self._press_undo(kind)
            case "restart":
                return self._once(kind, self._restart, "PostgreSQL crashes and restarts.")
            case "deploy":
                return self._once(kind, self._deploy, "The next release starts beside this one.")
        return "There is no such button.", True

    async def begin(self, first_at: float) -> None:
        """Kill the leader while it runs jobs, so that there is something to see, unless somebody
        else has already caused a fault."""
        stage = self._stage
        await stage.pause(first_at - stage.seconds)
        stage.hunting = True
        busy = None if stage.acts else await busy_leader(stage)
        stage.hunting = False
        if busy and not stage.acts and not stage.stop.is_set():
            await self._press_kill()

    async def finish(self) -> None:
        """Undo what can be undone, and wait for acts in progress."""
        for worker in self._stage.fleet.workers:
            if worker.alive and (worker.frozen or worker.cut):
                self._undo(worker)
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=2 * self._limit)
        for act in self._stage.acts:
            if not act.outcome:
                act.outcome, act.failed = "it did not recover before the end", True

    @property
    def _limit(self) -> float:
        return self._stage.demo.app.settings.recover_within + _SLACK_SECONDS

    def _watch(self, work: Work) -> None:
        async def watched() -> None:
            with suppress(Unavailable):  # the act then has no outcome, which is reported at the end
                await work

        task = self._go(watched())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _once(self, kind: str, work: Callable[[], Work], words: str) -> Said:
        """Start ``work`` unless an act of this kind is in progress."""
        if kind in self._busy:
            return "This fault is already in progress.", True
        self._busy.add(kind)
        self._watch(work())
        return words, False

    def _begin(self, kind: str, worker: Worker | None, words: str) -> Act:
        stage = self._stage
        lane = stage.lane(worker) if worker else WHOLE
        act = Act(kind, lane, words, stage.seconds, worker.worker_id if worker else "")
        stage.acts.append(act)
        stage.tell(words)
        return act

    def _ends(self, act: Act, found: str | None, seconds: float | None = None) -> None:
        """``found``: how it recovered; None: it did not recover in time."""
        act.failed = found is None
        took = seconds if seconds is not None else self._stage.seconds - act.at
        act.seconds = None if found is None else round(took, 2)
        act.outcome = found or f"did not recover within {self._limit:g} s"
        self._stage.tell(f"{act.words}: {act.outcome}")

    # -- kill -9 of the leader -------------------------------------------------------------------
    async def _press_kill(self) -> Said:
        worker, term = await self._stage.leader()
        if worker is None or "kill" in self._busy:
            return "There is no leader at the moment. Wait for the next one.", True
        if not worker.well:
            return f"pid {worker.pid} leads, but it already has a fault.", True
        self._busy.add("kill")
        self._watch(self._kill(worker, term))
        return f"pid {worker.pid} was killed.", False

    async def _kill(self, worker: Worker, term: int) -> None:
        stage = self._stage
        try:
            stage.killing = True
            act = self._begin("kill", worker, f"kill -9 of pid {worker.pid}, leader in term {term}")
            death = await kill_process(stage, worker, term)
            act.held, act.cut = death.held, await self._interrupted(death.worker)
            took_over = await stage.until(self._limit, lambda: next_term(stage, term))
            if took_over:
                death = replace(death, led_again_at=took_over[2])
            if act.cut:
                stage.deaths.append(death)
            stage.killing = False
            again = await stage.until(self._limit, lambda: self._again(act))
            await stage.pause(_RESTART_SECONDS)
            if not stage.stop.is_set():
                heir = await stage.fleet.spawn(worker.release)
                stage.tell(f"started pid {heir.pid} in its place")
            if took_over and again:
                seconds = takeover(death)
                self._ends(
                    act,
                    f"pid {pid_of(took_over[1])} led after {seconds} s, and its {len(act.cut)} "
                    f"jobs had started again elsewhere after {again - act.at:.2f} s",
                    max(again - act.at, seconds or 0.0),
                )
            else:
                self._ends(act, None)
        finally:
            stage.killing = False
            self._busy.discard("kill")

    # -- freeze, cut off, and undo ---------------------------------------------------------------
    async def _press_stop(self, kind: str, whom: str) -> Said:
        well = [worker for worker in self._stage.fleet.workers if worker.well]
        leader, term = await self._stage.leader()
        if len(well) <= _LEAST_WELL:
            return f"{_LEAST_WELL} processes must remain to take over.", True
        if whom == "leader":
            worker = leader
            if worker is None or not worker.well:
                return "There is no leader at the moment. Wait for the next one.", True
        else:
            worker, term = next((w for w in well if w is not leader), None), 0
            if worker is None:
                return "No other process is left.", True
        now = self._stage.seconds
        words = f"pid {worker.pid}" + (f", which led in term {term}," if term else "")
        if kind == "freeze":
            worker.freeze()
            act = self._begin(kind, worker, f"{words} was frozen (SIGSTOP)")
        else:
            worker.cut_off()
            act = self._begin(kind, worker, f"{words} was cut off from the database")
        act.at = now
        self._watch(self._taken_over(act, worker, term))
        return f"{act.words}.", False

    async def _taken_over(self, act: Act, worker: Worker, term: int) -> None:
        """Others declare it dead, run its jobs and lead, unless it comes back in time."""
        stage, identity = self._stage, worker.identity
        act.held = await self._held(identity)
        act.cut = await self._interrupted(act.worker)

        async def gone() -> str | None:
            nodes = {row.id: row for row in await self._nodes()}
            if identity not in nodes:
                return "dead"
            fresh = nodes[identity].age_seconds < stage.seconds - (act.until or 0.0)
            return "back" if act.until is not None and fresh else None

        how = await stage.until(self._limit, gone)
        dead_at = stage.seconds
        if how == "back":
            self._ends(act, "it came back before its lease expired, so nobody took over")
            return
        led = await stage.until(self._limit, lambda: next_term(stage, term)) if term else None
        again = await stage.until(self._limit, lambda: self._again(act))
        if not how or not again or (term and not led):
            self._ends(act, None)
            return
        found = f"it was declared dead after {dead_at - act.at:.1f} s"
        if led:
            seconds = (led[2] - stage.moment(act.at)).total_seconds()
            found += f", pid {pid_of(led[1])} led after {seconds:.1f} s"
        if act.cut:
            found += f", its {counted(len(act.cut), 'job')} had started again elsewhere"
        self._ends(act, found, max(dead_at, again) - act.at)

    def _press_undo(self, kind: str) -> Said:
        for worker in self._stage.fleet.workers:
            if worker.alive and (worker.frozen if kind == "thaw" else worker.cut):
                act = self._undo(worker)
                self._watch(self._back(act, worker))
                return f"{act.words}.", False
        return ("Nothing is frozen." if kind == "thaw" else "Nothing is cut off."), True

    def _undo(self, worker: Worker) -> Act:
        kind = "thaw" if worker.frozen else "mend"
        done = "freeze" if worker.frozen else "cut"
        if worker.frozen:
            worker.thaw()
            act = self._begin(kind, worker, f"pid {worker.pid} was thawed (SIGCONT)")
        else:
            worker.mend()
            act = self._begin(kind, worker, f"pid {worker.pid} reaches the database again")
        for earlier in self._stage.acts:
            if (earlier.kind, earlier.lane, earlier.until) == (done, act.lane, None):
                earlier.until = act.at
        if self._stage.stop.is_set():
            act.outcome, act.seconds = "the demo ended", 0.0
        return act

    async def _back(self, act: Act, worker: Worker) -> None:
        """Watch it rejoin: as a new node, if it was declared dead."""
        before = worker.identity

        async def renewed() -> str | None:
            for row in await self._nodes():
                fresh = row.age_seconds < self._stage.seconds - act.at
                if fresh and self._stage.fleet.find(row.worker_id) is worker:
                    return "as a new node" if row.id != before else "as the same node"
            return None

        how = await self._stage.until(self._limit, renewed)
        late = " Writes under its old lease were refused." if how == "as a new node" else ""
        self._ends(act, f"it rejoined {how}.{late}" if how else None)

    # -- the database ----------------------------------------------------------------------------
    async def _restart(self) -> None:
        stage, server = self._stage, self._database.server
        assert server
        try:
            act = self._begin("restart", None, "PostgreSQL crashed and restarted")
            # jobs that run at this moment may be unable to record their end
            act.held = await self._held(None)
            stage.database_away = True
            await asyncio.to_thread(server.restart, "immediate")
            back = await stage.until(self._limit, stage.database_now) is not None
            act.until = up = stage.seconds
            stage.database_away = False
            act.held |= await self._held(None)
            act.cut = await self._interrupted(None)
            done = (await self._sure(lambda: stage.demo.evidence.look(1))).jobs_done

            async def well() -> bool:
                nodes = await self._nodes()
                fresh = {stage.fleet.find(row.worker_id) for row in nodes
                         if row.age_seconds < stage.seconds - up}  # fmt: skip
                leader, _ = await stage.leader()
                there = {worker for worker in stage.fleet.workers if worker.well}
                look = await stage.demo.evidence.look(1)
                return fresh >= there and leader is not None and look.jobs_done > done

            found: str | None = None
            if back and await stage.until(self._limit, well):
                found = (
                    f"it answered after {up - act.at:.1f} s; all processes renew their leases, "
                    "there is a leader, and jobs run"
                )
            self._ends(act, found)
        finally:
            stage.database_away = False
            self._busy.discard("restart")

    # -- the next release ------------------------------------------------------------------------
    async def _deploy(self) -> None:
        stage = self._stage
        try:
            old = [worker for worker in stage.fleet.workers if worker.alive]
            before = stage.release
            self._deploys += 1
            colour = _COLOURS[(self._deploys - 1) % len(_COLOURS)]
            stage.release = release = f"{colour}-{self._deploys}"
            act = self._begin("deploy", None, f"{release} was deployed beside {before}")
            new = [await stage.fleet.spawn(release) for _ in range(len(old))]

            async def joined() -> bool:
                there = {stage.fleet.find(row.worker_id) for row in await self._nodes()}
                return there.issuperset(new)

            all_there = await stage.until(_JOIN_SECONDS, joined)
            stage.tell(f"{before} and {release} run side by side; one process leads")
            await stage.pause(_BESIDE_SECONDS)
            for worker in old:
                stage.fleet.retire(worker)
            stopped_at = stage.seconds

            async def led() -> str | None:
                worker, _ = await stage.leader()
                return f"pid {worker.pid}" if worker in new and worker else None

            heir = await stage.until(self._limit, led)
            led_at = stage.seconds
            ends = asyncio.gather(*[worker.process.wait() for worker in old])
            await asyncio.wait([ends], timeout=self._limit)
            act.until = stage.seconds
            good = all_there and heir and ends.done()
            self._ends(act, f"{heir} of {release} led {led_at - stopped_at:.1f} s after {before} "
                       f"was told to stop; {before} finished its running jobs"
                       if good else None)  # fmt: skip
        finally:
            self._busy.discard("deploy")

    # -- looking ---------------------------------------------------------------------------------
    async def _nodes(self) -> list[NodeView]:
        return await (await self._stage.demo.app.reports()).nodes(100)

    async def _sure(self, look: Callable[[], Awaitable[T]]) -> T:
        """The answer of ``look``, even an empty one; waits for the database. Raises Unavailable."""

        async def wrapped() -> tuple[T]:
            return (await look(),)

        found = await self._stage.until(self._limit, wrapped)
        if not found:
            raise Unavailable("the database does not answer")
        return found[0]

    async def _held(self, node: UUID | None) -> frozenset[UUID]:
        return await self._sure(lambda: self._stage.demo.evidence.held(node))

    async def _interrupted(self, worker_id: str | None) -> frozenset[UUID]:
        """Jobs whose runs in this process (None: in any) have not ended."""
        runs = await self._sure(self._stage.demo.evidence.runs)
        mine = [run for run in runs if worker_id in (None, run.worker)]
        return frozenset({run.job for run in mine if run.finished_at is None})

    async def _again(self, act: Act) -> float | None:
        """Seconds since the start if all its jobs have run elsewhere, or have ended after all."""
        runs = await self._stage.demo.evidence.runs(act.cut)
        well = {r.job for r in runs if r.worker != act.worker or r.finished_at is not None}
        return self._stage.seconds if well >= act.cut else None
