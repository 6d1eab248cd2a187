"""What must hold in every run, whatever the faults: the invariants of docs/explanation/protocol.md.

Statements are judged when they are executed, beliefs when they begin, handlers when they start, and
the rest at the end, from the tables. A violation is a sentence with its time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from leasework.model.states import FINISHED, State
from leasework.store.jobs import Acked, AckItem
from leasework.store.operation import Term
from leasework_lab.sim.check_deadlines import Promises
from leasework_lab.sim.check_rest import EFFECT, restless, without_effect
from leasework_lab.sim.loop import here
from leasework_lab.sim.rows import JobRow, SimDatabase
from leasework_lab.sim.trace import Trace

if TYPE_CHECKING:
    from leasework.jobs.context import Context
    from leasework_lab.sim.process import Process

_NAMED = 20
_INSTANT = 0.001
"""Allowed between the check of the lease and the first line of the handler."""


@dataclass(eq=False, slots=True)
class Run:
    """One running handler."""

    job: UUID
    token: int
    node: UUID
    process: Process


@dataclass
class Watch:
    """Observes everything. ``now`` is the true time."""

    db: SimDatabase
    now: Any
    grace: float = 0.0
    """The least seconds that a clean stop waits for running jobs."""
    processes: list[Process] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    trace: Trace | None = None
    runs: dict[tuple[int, int], Run] = field(default_factory=dict)
    acknowledged: set[UUID] = field(default_factory=set)
    effects: list[tuple[UUID, int]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    promises: Promises = field(default_factory=Promises)
    _tokens: dict[Any, int] = field(default_factory=dict)
    _newest: dict[int, int] = field(default_factory=dict)
    """By job: its latest claim that no failover has lost."""
    _released: set[int] = field(default_factory=set)
    """Claims that have ended while their handlers may still run."""
    _deadlines: dict[UUID, float] = field(default_factory=dict)
    """The time until which each node's lease is trusted, by its process's own clock."""
    _undone: set[int] = field(default_factory=set)
    """Claims that a failover has lost."""
    joined_at: dict[str, float] = field(default_factory=dict)
    """By process: when it last acquired a node's lease."""
    lost: set[UUID] = field(default_factory=set)
    """Jobs that a failover has lost, although they were acknowledged."""
    _finished: dict[int, int] = field(default_factory=dict)
    _returned: set[tuple[int, int]] = field(default_factory=set)
    """Claims whose handlers ended without an error."""
    _again: Counter[UUID] = field(default_factory=Counter)

    def wrong(self, what: str) -> None:
        if len(self.violations) < _NAMED:
            self.violations.append(f"{self.now():.3f} {what}")
        if self.trace:
            self.trace.wrong(what)

    def note(self, who: str, text: str) -> None:
        if self.trace:
            self.trace.note(who, text)

    # -- as it happens ---------------------------------------------------------------------------
    def event(self, kind: str, worker: str, fields: dict[str, Any]) -> None:
        self.counts[kind] += 1
        host, pid, *_ = [*worker.split(":"), ""]
        process = f"p{host[1:]}.{pid}"
        if kind == "node_started":
            self.joined_at[process] = self.now()
        if self.trace:
            self.trace.event(process, kind, fields)
        if kind in ("service_failed", "schedule_undecidable"):
            self.wrong(f"a service failed: {fields}")

    def statement(self, name: str, args: tuple[Any, ...], answer: Any, who: str = "") -> None:
        """A statement was executed for ``who``."""
        if self.trace:
            self.trace.statement(who, name, args, answer)
        judge = _JUDGES.get(name)
        if judge is not None:
            judge(self, args, answer)

    def _acquired(self, args: tuple[Any, ...], answer: Any) -> None:
        if answer:
            self._grows(("term", args[0]), answer)

    def _registered(self, args: tuple[Any, ...], answer: Any) -> None:
        self._grows("node", answer)

    def _claimed(self, args: tuple[Any, ...], answer: Any) -> None:
        for job in answer:
            self._grows(job.id.int, job.claim_token)
            self._newest[job.id.int] = job.claim_token

    def _enqueued(self, args: tuple[Any, ...], answer: Any) -> None:
        """A lost job that is enqueued again must not be lost for another reason."""
        self.lost.difference_update(job for job, created in answer if created)

    def _bury(self, args: tuple[Any, ...], answer: Any) -> None:
        self._fenced("bury", args[0], answer is not None)
        if answer:
            self._buried(args[1])

    def _note_stranded(self, args: tuple[Any, ...], answer: Any) -> None:
        """Nobody changes rows by hand here."""
        if answer[1]:
            self.wrong(f"jobs were stranded on {answer[1]}: no death leads to them")

    def _stage(self, args: tuple[Any, ...], answer: Any) -> None:
        self._fenced("stage", args[0], bool(answer.count + answer.held_on))

    def _fire(self, args: tuple[Any, ...], answer: Any) -> None:
        self._fenced("fire", args[0], bool(answer))

    def _ack(self, args: tuple[Any, ...], answer: Any) -> None:
        self._acked(args[1], answer)

    def _end_deadline(self, args: tuple[Any, ...], answer: Any) -> None:
        self.promises.ended(self.db, args[0])

    def _sweep(self, args: tuple[Any, ...], answer: Any) -> None:
        self.promises.swept(answer, self.wrong)
        self.acknowledged |= self.promises.callbacks

    def _requeued(self, args: tuple[Any, ...], answer: Any) -> None:
        if answer and answer is not State.RUNNING:
            self._released.add(args[1])

    def _given_back(self, args: tuple[Any, ...], answer: Any) -> None:
        """CleanStop: a stopping process gives back its running jobs only after the grace; other
        processes never do."""
        tokens = {token for _, token in args[1]}
        for run in self.runs.values():
            if run.token not in tokens or run.process.joined:
                continue
            self._released.add(run.token)
            had = self.now() - run.process.stopped_at
            if had < self.grace:
                self.wrong(f"CleanStop: {run.process} gave back {run.job} after {had:.3f} s")

    def _retried(self, args: tuple[Any, ...], answer: Any) -> None:
        if answer == "finished":
            self._again[args[0]] += 1

    def _grows(self, what: Any, token: int) -> None:
        """TokenUnique: each token is higher than all earlier ones."""
        if token <= self._tokens.get(what, -1):
            self.wrong(f"TokenUnique: {what} got {token} after {self._tokens[what]}")
        self._tokens[what] = token

    def _fenced(self, name: str, term: Term, changed: bool) -> None:
        """FencedWrite: no statement of an old term changes anything."""
        row = self.db.leaders.get(term.leader)  # the row may have been deleted by hand
        if row is None or row.token == term.token:
            return
        self.counts["fenced"] += 1
        if changed:
            self.wrong(f"FencedWrite: {name} under {term}")

    def _acked(self, items: Sequence[AckItem], answer: Acked) -> None:
        """FencedWrite: an outcome is written only under the newest claim. (If a failover has lost
        the job, a repeated ack cannot know that, and writes nothing.)"""
        for item in items:
            if item.job not in answer.written:
                self.counts["stale"] += item.job not in answer.locked
            elif item.token != self._newest.get(item.job.int) and not self._is_nowhere(item.job):
                self.wrong(f"FencedWrite: {item.job} was written under {item.token}")

    def _is_nowhere(self, job: UUID) -> bool:
        return job in self.lost and job not in self.db.jobs and job not in self.db.done

    def _buried(self, node: UUID) -> None:
        for process in self.processes:
            if process.believes(node):
                self.wrong(f"OneBeliever: {process} was buried but trusts its lease")

    def finished(self, row: JobRow, state: str) -> None:
        if state == "completed" and not self._has_run(row):
            self.wrong(f"Ran: {row.id} is completed under {row.claim_token} but did not run")
        if row.deadlines:
            self.promises.ended(self.db, row.id)
        if row.claim_token is not None:
            self._released.add(row.claim_token)
        before = self._finished.get(row.id.int, 0)
        self._finished[row.id.int] = before + 1
        if before and before > self._again[row.id]:
            self.wrong(f"FinishedOnce: job {row.id} finished again")

    def _has_run(self, row: JobRow) -> bool:
        """Did its handler end, or did the completing transaction have its effect?"""
        token = row.claim_token
        if row.task == EFFECT:
            return (row.id, token) in self.effects
        return token is not None and (row.id.int, token) in self._returned

    def belief(self) -> None:
        """OneBeliever: when a belief begins or is renewed, nobody else may hold one."""
        leaders = [process for process in self.processes if process.leads()]
        if len(leaders) > 1:
            self.wrong(f"OneBeliever: {leaders} lead at once")
        for process in self.processes:
            self._down_is_final(process)

    def _down_is_final(self, process: Process) -> None:
        """StepDown: a lease that was trusted until a moment is not trusted again after it."""
        trusted = process.trusts()
        if trusted is None:
            return
        now, (node, deadline) = process.boot_now(), trusted
        before = self._deadlines.get(node, deadline)
        if deadline > before and now > before + _INSTANT:
            self.wrong(f"StepDown: {process} continues {now - before:.3f} s after its deadline")
        self._deadlines[node] = deadline

    # -- handlers --------------------------------------------------------------------------------
    def started(self, ctx: Context, process: Process) -> None:
        claim = ctx.claim
        job, token = claim.job.id, claim.job.claim_token
        if self.trace:
            self.trace.run(str(process), "▶", job, token, claim.job.task)
        if (job.int, token) in self.runs:
            self.wrong(f"one claim of {job} runs twice")
        resumed = self.now() - process.resumed_at <= _INSTANT
        if not resumed and not process.believes(claim.node, ago=_INSTANT):
            self.wrong(f"StepDown: {process} starts {job} without a lease")
        number, undone = job.int, token in self._undone
        if undone and process.knows(self.db.timeline):
            self.wrong(f"{process} starts {job} under {token}, though it knows it may be lost")
        gone = self._released | self._undone if self._undone else self._released
        for run in self.runs.values():
            if run.job.int == number and run.process.alive and run.token not in gone:
                if run.process.believes(run.node) and token not in gone:
                    self.wrong(f"BoundedOverlap: {job} runs on {run.process} and on {process}")
                self.counts["overlap"] += 1
        self.runs[number, token] = Run(job, token, claim.node, process)

    def returned(self, ctx: Context) -> None:
        """A handler ended without an error, so its job may be reported as completed."""
        self._returned.add((ctx.claim.job.id.int, ctx.claim.job.claim_token))

    def ended(self, ctx: Context) -> None:
        job = ctx.claim.job
        if self.runs.pop((job.id.int, job.claim_token), None) and self.trace:
            self.trace.run(str(here()), "■", job.id, job.claim_token)

    def crashed(self, process: Process) -> None:
        """Forget what the crashed process ran."""
        for key in [key for key, run in self.runs.items() if run.process is process]:
            del self.runs[key]

    # -- a failover that loses commits -----------------------------------------------------------
    def remember(self) -> dict[str, Any]:
        """A copy of what was concluded from commits so far."""
        return {name: deepcopy(getattr(self, name)) for name in _CONCLUDED}

    def goes_back(self, memory: dict[str, Any], lost: set[UUID]) -> None:
        """Go back to a copy: the commits since then are lost, and these jobs with them."""
        newest = self._newest
        for name, value in memory.items():
            setattr(self, name, value)
        # the holder of a lost claim does not know that it is lost, and nobody waits for it
        self._undone.update(
            token for job, token in newest.items() if token != self._newest.get(job)
        )
        self.lost = (self.lost | lost) - self.db.jobs.keys() - self.db.done.keys()
        self.counts["lost"] += len(self.acknowledged & lost)

    # -- after the faults ------------------------------------------------------------------------
    def held(self) -> dict[UUID, int | None]:
        """The running jobs, each with its claim."""
        return {row.id: row.claim_token for row in self.db.jobs.values() if row.node}

    def free_again(self, held: dict[UUID, int | None], seconds: float) -> None:
        """NoStuck: no job that ran when the faults stopped is still held by a dead claim."""
        for row in self.stuck():
            if held.get(row.id) == row.claim_token:
                self.wrong(f"NoStuck: {_words(row)}, {seconds:.1f} s after the faults")

    def stuck(self) -> Iterator[JobRow]:
        """Jobs whose claim no process knows."""
        for row in self.db.jobs.values():
            if row.node is not None and not self._known(row):
                yield row

    # -- at the end ------------------------------------------------------------------------------
    def pending(self) -> list[UUID]:
        """Acknowledged jobs that have not reached a final state."""
        open_jobs = self.acknowledged.difference(self.db.done)
        return [job for job in open_jobs if job not in self.lost or job in self.db.jobs]

    def busy(self) -> bool:
        """Is any work left or in progress, apart from the ticks of every second?"""
        runs = any(run.job in self.acknowledged for run in self.runs.values())
        return runs or bool(self.pending())

    def last_look(self) -> None:
        """Check the tables at the end."""
        for job in self.pending()[:5]:
            where = self.db.jobs.get(job)
            text = f"NoStuck: {_words(where)}" if where else f"NoLoss: {job} does not exist"
            self.wrong(f"{text}, but its enqueue was acknowledged")
        states = {str(state) for state in FINISHED}
        if odd := {done.state for done in self.db.done.values()} - states:
            self.wrong(f"jobs finished as {odd}")
        for row in self.stuck():
            self.wrong(f"NoStuck: {_words(row)}, but no process knows its claim")
        for what in restless(self.db, self.processes):
            self.wrong(what)
        self._effects_once()
        for what in without_effect(self.db, self.effects):
            self.wrong(what)
        self._ticks_once()
        self.promises.last_look(self.db, self.wrong)

    def _known(self, row: JobRow) -> bool:
        assert row.claim_token is not None
        return any(process.holds(row.claim_token) for process in self.processes)

    def _effects_once(self) -> None:
        counts = Counter(job for job, _ in self.effects)
        for job, count in counts.items():
            if count > 1 + self._again[job]:
                self.wrong(f"EffectOnce: {job} had its effect {count} times")

    def _ticks_once(self) -> None:
        jobs = [*self.db.jobs.values(), *(done.job for done in self.db.done.values())]
        ticks = Counter((job.schedule, job.tick_at) for job in jobs if job.schedule)
        for (name, tick_at), count in ticks.items():
            if count > 1:
                self.wrong(f"TickOnce: {name} {tick_at} has {count} jobs")
        for (_, name, at), tick in self.db.ticks.items():
            if tick.state == "fired" and not ticks[name, at]:
                self.wrong(f"TickOnce: {name} {at} was fired but has no job")
        for app, name in self.db.schedules:
            self._no_moment_is_passed_over(app, name)

    def _no_moment_is_passed_over(self, app: str, name: str) -> None:
        """The ledger has every second between its first and its last entry."""
        entries = sorted(
            (at, tick.until or at)
            for (of_app, of, at), tick in self.db.ticks.items()
            if (of_app, of) == (app, name)
        )
        expected: datetime | None = None
        for first, last in entries:
            if expected is not None and first != expected:
                self.wrong(f"TickOnce: {name} has nothing between {expected} and {first}")
            expected = last + timedelta(seconds=1)


_CONCLUDED = ("effects", "promises", "_finished", "_newest", "_released", "_again")
"""The parts of :class:`Watch` that come from commits alone."""
_JUDGES: dict[str, Callable[[Watch, tuple[Any, ...], Any], None]] = {
    "acquire": Watch._acquired,
    "register": Watch._registered,
    "enqueue": Watch._enqueued,
    "claim": Watch._claimed,
    "bury": Watch._bury,
    "note_stranded": Watch._note_stranded,
    "stage": Watch._stage,
    "fire": Watch._fire,
    "ack": Watch._ack,
    "ack_again": Watch._ack,
    "end_deadline": Watch._end_deadline,
    "sweep": Watch._sweep,
    "requeue": Watch._requeued,
    "give_back": Watch._given_back,
    "retry": Watch._retried,
}
"""By the statement's name: called with its arguments and its answer."""


def _words(row: JobRow) -> str:
    held = f" ({row.held_because})" if row.held_because else ""
    node = f" on {row.node} under {row.claim_token}" if row.node else ""
    return f"{row.task} {row.id} is {row.state}{held}{node}, due {row.run_at:%H:%M:%S}"
