"""What must hold in every campaign, whatever the faults: from histories and tables to violations.

These are pure functions. Each check counts what it examined, because a check that examined nothing
has shown nothing. If the final read is missing, the checks that need it are *unknown*.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from leasework.config import Timings
from leasework.model.states import FINISHED
from leasework_lab.chaos.app import PAID
from leasework_lab.chaos.check_durable import durable
from leasework_lab.chaos.check_leases import (
    believers,
    gaps,
    overlaps,
    renewals,
    steps_down,
    terms,
)
from leasework_lab.chaos.check_processes import clean_stops, ends, services, still
from leasework_lab.chaos.check_runs import limited, ran
from leasework_lab.chaos.history import Campaign
from leasework_lab.chaos.tables import FinalJob, Tables

_NAMED = 10
_TICK_SECONDS = 1.0
_TICK_LATE_SECONDS = 5.0
"""Allowed after the drain, for a busy machine."""
_TICKS_UNDER_WAY_SECONDS = 15.0
_VERDICTS = frozenset({"met", "breached", "cancelled"})
_STATES = frozenset(str(state) for state in FINISHED)


@dataclass
class Check:
    """One promise: how much was examined, and what was wrong. ``verdict``: ``violated``,
    ``unknown``, ``idle`` (there was nothing to examine) or ``held``."""

    name: str
    promise: str
    looked_at: int = 0
    violations: list[str] = field(default_factory=list)
    unknown: bool = False

    @property
    def verdict(self) -> str:
        if self.violations:
            return "violated"
        if self.unknown:
            return "unknown"
        return "held" if self.looked_at else "idle"


Found = Iterator[str | int | None]
"""Violations as text, and numbers of examined items. None: it cannot be known."""


def judge(campaign: Campaign, tables: Tables | None, timings: Timings) -> list[Check]:
    """All checks that apply to this campaign."""
    checks = []
    for name, promise, needs_tables, own, look in _CHECKS:
        if own and not campaign.own_tasks:
            continue
        check = Check(name, promise)
        if needs_tables and tables is None:
            check.unknown = True
        else:
            for found in look(campaign, tables or Tables([], [], []), timings):
                if found is None:
                    check.unknown = True
                elif isinstance(found, int):
                    check.looked_at += found
                elif len(check.violations) < _NAMED:
                    check.violations.append(found)
        checks.append(check)
    return checks


# -- enqueues ----------------------------------------------------------------------------------
def _told(campaign: Campaign) -> dict[str, str]:
    """Each ref with ``intent`` (no answer was received), ``ack`` or ``unknown``."""
    told: dict[str, str] = {}
    for process in campaign.producers():
        for line in process.of("intent", "ack", "unknown"):
            told.update(dict.fromkeys(line["refs"], line["kind"]))
    return told


def _jobs(tables: Tables) -> dict[str, list[FinalJob]]:
    """The jobs by the ref under which the campaign enqueued them."""
    jobs: dict[str, list[FinalJob]] = defaultdict(list)
    for job in tables.jobs:
        if job.ref is not None:
            jobs[job.ref].append(job)
    return jobs


def _lost(campaign: Campaign, tables: Tables, timings: Timings) -> Found:
    jobs = _jobs(tables)
    for ref, how in _told(campaign).items():
        if how == "ack":
            yield 1
            if ref not in jobs:
                yield f"{ref} was acknowledged but has no job"


def _duplicated(campaign: Campaign, tables: Tables, timings: Timings) -> Found:
    # in a user's own jobs, an argument named ref means something else
    for ref, found in _jobs(tables).items() if campaign.own_tasks else ():
        yield 1
        if len(found) > 1:
            yield f"{ref} has {len(found)} jobs: {', '.join(str(job.id) for job in found)}"
    for job, many in Counter(job.id for job in tables.jobs).items():
        yield 1
        if many > 1:
            yield f"job {job} exists {many} times"


def _unexpected(campaign: Campaign, tables: Tables, timings: Timings) -> Found:
    told = _told(campaign)
    for ref in _jobs(tables):
        yield 1
        if ref not in told:
            yield f"{ref} exists but nobody enqueued it"


def _recovered(campaign: Campaign, tables: Tables, timings: Timings) -> Found:
    """A call with an unknown outcome did everything or nothing, and each job exists at most once.
    The same holds for a call that received no answer because its process was killed."""
    jobs = _jobs(tables)
    for process in campaign.producers():
        answered = {ref for line in process.of("ack", "unknown") for ref in line["refs"]}
        for line in process.of("intent", "unknown"):
            if line["kind"] == "intent" and not answered.isdisjoint(line["refs"]):
                continue
            there = [ref for ref in line["refs"] if ref in jobs]
            yield len(line["refs"])
            if there and len(there) < len(line["refs"]):
                yield f"{len(there)} of the {len(line['refs'])} jobs of one call exist"


def _finished(campaign: Campaign, tables: Tables, timings: Timings) -> Found:
    """After the drain no job is left, and no dead process holds one."""
    newest = max((tick.fire_at for tick in tables.ticks), default=None)
    for job in tables.jobs:
        yield 1
        if job.state in _STATES:
            if job.state == "discarded" and campaign.own_tasks:
                yield f"{job.task} {job.id} was discarded after {job.attempt} attempts"
            continue
        late = newest and newest - job.scheduled_for > timedelta(seconds=_TICKS_UNDER_WAY_SECONDS)
        if campaign.own_tasks and (job.schedule is None or late):
            yield f"{job.task} {job.id} is still {job.state}, attempt {job.attempt}"
        if job.state == "running" and not job.node_is_there:
            yield f"{job.task} {job.id} is held by node {job.node}, which does not exist"
    if not campaign.drained:
        yield "some jobs were unfinished when the time for the drain was up"


# -- effects -----------------------------------------------------------------------------------
def _effects(campaign: Campaign, tables: Tables, timings: Timings) -> Found:
    effects = Counter(ref for ref, _, _ in tables.effects if not ref.endswith(PAID))
    tokens = {ref: token for ref, _, token in tables.effects}
    for job in tables.jobs:
        if job.task not in ("effect", "stubborn") or job.ref is None:
            continue
        yield 1
        had = effects.pop(job.ref, 0)
        if had > 1:
            yield f"{job.ref} had its effect {had} times"
        if job.state == "completed" and not had:
            yield f"{job.ref} is completed but had no effect"
        if job.state != "completed" and had:
            yield f"{job.ref} had its effect but is {job.state}"
        if had == 1 and job.state == "completed" and tokens[job.ref] != job.token:
            yield f"{job.ref}: the effect is of claim {tokens[job.ref]}, the outcome of {job.token}"
    for ref in effects:
        yield f"{ref} had its effect but has no job"


def _stale(campaign: Campaign, tables: Tables, timings: Timings) -> Found:
    """A transaction that was told that its claim is lost has no effect."""
    written = {(ref, token) for ref, _, token in tables.effects}
    for process in campaign.nodes():
        for line in process.of("complete_refused", "completed"):
            yield 1
            there = (line["ref"], line["token"]) in written
            if line["kind"] == "complete_refused" and there:
                yield f"{process}: {line['ref']} was refused, but its effect exists"
            if line["kind"] == "completed" and not there:
                yield f"{process}: {line['ref']} was completed, but its effect does not exist"


# -- deadlines ---------------------------------------------------------------------------------
def _deadlines(campaign: Campaign, tables: Tables, timings: Timings) -> Found:
    """Each finished job has one verdict. Exactly one job reports each breach, and nothing else."""
    states = {job.id: job.state for job in tables.jobs}
    told = Counter(callback for _, _, callback in tables.deadlines if callback)
    for promised, verdict, callback in tables.deadlines:
        yield 1
        if verdict not in _VERDICTS and states.get(promised) in _STATES:
            yield f"job {promised} is {states[promised]}, but its deadline is {verdict}"
        if (verdict == "breached") != (callback is not None):
            yield f"the deadline of {promised} is {verdict}, and its callback is {callback}"
        if callback is not None and (callback not in states or told[callback] > 1):
            where = "does not exist" if callback not in states else "belongs to several deadlines"
            yield f"the breach of {promised} has the callback {callback}, which {where}"
    with_one = Counter(job for job, _, _ in tables.deadlines)
    for job in tables.jobs:
        if job.task == "page" and campaign.own_tasks and job.id not in told:
            yield f"job {job.id} reports a breach that does not exist"
        if job.task == "nap" and with_one[job.id] != 1:
            yield f"job {job.id} has {with_one[job.id]} deadlines"


# -- schedules ---------------------------------------------------------------------------------
def _ticks(campaign: Campaign, tables: Tables, timings: Timings) -> Found:
    jobs = Counter((job.schedule, job.scheduled_for) for job in tables.jobs if job.schedule)
    # applications that share a schema may have schedules of the same name
    fired = Counter((t.schedule, t.fire_at) for t in tables.ticks if t.state == "fired")
    for (schedule, moment), many in jobs.items():
        if many > max(1, fired[schedule, moment]):
            yield f"{schedule} {moment} has {many} jobs"
    for tick in tables.ticks:
        yield 1
        if tick.state == "fired" and campaign.own_tasks and not jobs[tick.schedule, tick.fire_at]:
            yield f"{tick.schedule} {tick.fire_at} was fired, but has no job"


def _missed(campaign: Campaign, tables: Tables, timings: Timings) -> Found:
    """From the ledger's first entry until the nodes were told to stop, each second is decided and
    fired: none was late enough to be missed."""
    expected: datetime | None = None
    for tick in tables.ticks:
        yield 1
        if expected is not None and tick.fire_at != expected:
            yield f"{tick.schedule} has {tick.fire_at} after {expected - timedelta(seconds=1)}"
        if tick.state != "fired":
            yield f"{tick.schedule} {tick.fire_at} to {tick.until} is {tick.state}"
        expected = tick.until + timedelta(seconds=_TICK_SECONDS)
    if campaign.clock is None:
        yield None
    elif expected is None:
        yield "no tick was ever fired"
    elif expected < campaign.clock - timedelta(seconds=_TICK_LATE_SECONDS):
        last = expected - timedelta(seconds=_TICK_SECONDS)
        yield f"the last tick is {last}, but the nodes were told to stop at {campaign.clock}"


# -- duties ------------------------------------------------------------------------------------
def _duties(campaign: Campaign, tables: Tables, timings: Timings) -> Found:
    """No duty of a term commits after a later acquisition: what a new leader sees of earlier terms
    as its first action is all that they ever commit."""
    committed = Counter(term for _, term in tables.duties)
    written = {duty for duty, _ in tables.duties}
    for process in campaign.nodes():
        for line in process.of("looked_back"):
            yield 1
            seen = {int(term): many for term, many in line["before"].items()}
            for term, many in committed.items():
                if term < line["term"] and many != seen.get(term, 0):
                    yield (
                        f"term {term} committed {many - seen.get(term, 0)} duties after term "
                        f"{line['term']} was acquired by {process}"
                    )
        for line in process.of("duty_done", "duty_fenced"):
            yield 1
            if (line["kind"] == "duty_done") != (line["duty"] in written):
                there = "exists" if line["duty"] in written else "does not exist"
                yield f"{process}: {line['kind']} for {line['duty']}, which {there}"


Look = Callable[[Campaign, Tables, Timings], Found]
_CHECKS: list[tuple[str, str, bool, bool, Look]] = [
    # name, promise, needs the final read, needs the campaign's own tasks, function
    ("lost", "every acknowledged enqueue has its job", True, True, _lost),
    ("duplicated", "one enqueue creates one job", True, False, _duplicated),
    ("unexpected", "every job was enqueued by somebody", True, True, _unexpected),
    (
        "recovered",
        "a call with an unknown outcome did everything or nothing",
        True,
        True,
        _recovered,
    ),
    ("finished", "every job reaches a final state; nothing is stuck", True, False, _finished),
    ("ran", "completed jobs have run; no job is discarded without a cause", True, True, ran),
    ("limits", "no more jobs of a limit run than it allows", False, True, limited),
    (
        "effect once",
        "effects in the completing transaction are committed once",
        True,
        True,
        _effects,
    ),
    ("durable", "steps, signals and batches happen once, and all of them end", True, True, durable),
    ("stale completions", "a lost claim writes nothing", True, True, _stale),
    ("deadline once", "every deadline is either met or breached, once", True, True, _deadlines),
    ("tick once", "one job for each moment of a schedule", True, False, _ticks),
    ("missed ticks", "no moment of a schedule is skipped", True, True, _missed),
    ("tokens", "tokens are unique and only grow", True, False, terms),
    ("one believer", "no two processes believe that they lead", False, True, believers),
    ("commit order", "no duty commits after a later acquisition", True, True, _duties),
    ("leaderless gaps", "somebody leads again within F", False, False, gaps),
    ("renewals", "an undisturbed process keeps its lease", False, True, renewals),
    ("step down", "no handler starts without a lease", False, True, steps_down),
    ("overlap", "a job runs twice only if its first node was dead", False, True, overlaps),
    ("clean stops", "a process that stops cleanly leaves nothing behind", False, True, clean_stops),
    ("processes", "no process ends without a cause; each stops when told", False, False, ends),
    ("services", "no service meets an unexpected error", False, True, services),
    ("no change without a fault", "leadership changes only after a fault", False, True, still),
]
