"""The scorecard: a pure function from what the handlers recorded to a verdict."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from leasework.model.schedule import Spec
from leasework_lab.demo.tables import Run

_INSTANT = timedelta(microseconds=1)
_NAMED = 3
"""How many culprits a problem names."""


@dataclass(frozen=True)
class Death:
    """A process that was killed. All times are the database's."""

    worker: str
    at: datetime
    """No later than the kill, so that durations counted from it are never too short."""
    term: int | None = None
    """The term in which it led."""
    held: frozenset[UUID] = frozenset()
    """The jobs that it held in the database when it was dead."""
    led_again_at: datetime | None = None
    """When the next term was acquired."""


@dataclass
class Act:
    """Something that a person did to the processes, and its outcome."""

    kind: str
    """kill, freeze, thaw, cut, mend, restart, deploy"""
    lane: str
    """The affected process's place, or "database"."""
    words: str
    at: float
    """Seconds since the start."""
    worker: str = ""
    """The worker_id that the process had."""
    held: frozenset[UUID] = frozenset()
    """Jobs that may run again because of it, for example when their process dies."""
    cut: frozenset[UUID] = frozenset()
    """Those of them that were running in that process."""
    until: float | None = None
    """When it was undone; None: it was not, or it has no end."""
    outcome: str = ""
    seconds: float | None = None
    """Seconds until everything was well again; None: not yet, or never (then ``failed``)."""
    failed: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "what": self.words, "at_seconds": round(self.at, 3),
            "recovered_seconds": self.seconds, "outcome": self.outcome,
        }  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """What is known at the end, when no process runs any more."""

    spec: Spec
    """The schedule whose moments were due."""
    decided: tuple[datetime | None, datetime | None]
    """The first and the last moment that the ledger decided."""
    until: datetime
    """The end of the run: every moment before it was due, decided or not."""
    enqueued: Collection[UUID]
    runs: Sequence[Run]
    deaths: Sequence[Death]
    limit_seconds: float
    """The longest that a takeover or a recovery may take."""
    open_jobs: int = 0
    bad_jobs: int = 0
    troubles: Sequence[str] = ()
    """What else went wrong, in words."""
    acts: Sequence[Act] = ()


@dataclass(frozen=True)
class Scorecard:
    due: int
    fired: int
    duplicates: int
    missed: int
    enqueued: int
    done: int
    lost: int
    ran_twice: int
    rerun_after_kill: int
    """Jobs that ran again because a process that was killed, or lost its lease, held them."""
    cut_short: int
    """Those of them whose run was in progress; the others had ended without a record of it."""
    takeover_seconds: float | None
    recovery_seconds: float | None
    problems: tuple[str, ...] = field(default=())
    acts: tuple[Act, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {
            "ticks": {
                "due": self.due,
                "fired": self.fired,
                "duplicates": self.duplicates,
                "missed": self.missed,
            },
            "jobs": {
                "enqueued": self.enqueued,
                "done": self.done,
                "lost": self.lost,
                "ran_twice": self.ran_twice,
                "rerun_after_kill": self.rerun_after_kill,
                "cut_short": self.cut_short,
            },
            "takeover_seconds": self.takeover_seconds,
            "recovery_seconds": self.recovery_seconds,
            "ok": self.ok,
            **({"acts": [act.to_json() for act in self.acts]} if self.acts else {}),
        }


def score(evidence: Evidence) -> Scorecard:
    """Count everything, and name each broken promise."""
    problems = list(evidence.troubles)
    runs_of: dict[UUID, list[Run]] = defaultdict(list)
    for run in evidence.runs:
        runs_of[run.job].append(run)
    excused = _excused(evidence)
    completed = {job: sum(r.finished_at is not None for r in runs) for job, runs in runs_of.items()}

    due, fired, duplicates, missed = _ticks(evidence, completed, excused, problems)
    enqueued = set(evidence.enqueued)
    lost = sorted(job for job in enqueued if not completed.get(job))
    jobs = [job for job, runs in runs_of.items() if runs[0].tick_at is None]
    twice = sorted(job for job in jobs if completed[job] > 1 and job not in excused)
    rerun = {job for job, runs in runs_of.items() if job in excused and len(runs) > 1}
    cut = {job for job in rerun if any(run.finished_at is None for run in runs_of[job])}
    if lost:
        problems.append(f"{len(lost)} jobs were lost: {_some(lost)}")
    if twice:
        problems.append(f"{len(twice)} jobs ran twice: {_some(twice)}")
    if not enqueued:
        problems.append("no job was enqueued")
    if not evidence.deaths and not evidence.acts:
        problems.append("the demo ended before it killed a process")
    if evidence.open_jobs:
        problems.append(f"{evidence.open_jobs} jobs had not finished at the end")
    if evidence.bad_jobs:
        problems.append(f"{evidence.bad_jobs} jobs finished without being completed")
    problems += [f"{act.words}: {act.outcome}" for act in evidence.acts if act.failed]
    return Scorecard(
        due=due,
        fired=fired,
        duplicates=duplicates,
        missed=missed,
        enqueued=len(enqueued),
        done=len(enqueued) - len(lost),
        lost=len(lost),
        ran_twice=len(twice),
        rerun_after_kill=len(rerun),
        cut_short=len(cut),
        takeover_seconds=_worst("takeover", map(takeover, evidence.deaths), evidence, problems),
        recovery_seconds=_worst("recovery", _recoveries(evidence), evidence, problems),
        problems=tuple(problems),
        acts=tuple(evidence.acts),
    )


def takeover(death: Death) -> float | None:
    """Seconds from the kill to the next term; None if nobody took over."""
    if death.led_again_at is None:
        return None
    return round((death.led_again_at - death.at).total_seconds(), 3)


def interrupted(death: Death, runs: Iterable[Run]) -> set[UUID]:
    """The jobs whose runs the kill cut short."""
    return {r.job for r in runs if r.worker == death.worker and r.finished_at is None}


def recovery(death: Death, runs: Collection[Run]) -> float | None:
    """Seconds from the kill until the last interrupted job had started again elsewhere. None if
    some job did not, or if there was none."""
    cut = interrupted(death, runs)
    again: dict[UUID, float] = {}
    for run in runs:
        seconds = (run.started_at - death.at).total_seconds()
        if run.job in cut and run.worker != death.worker and seconds >= 0:
            again[run.job] = min(seconds, again.get(run.job, seconds))
    return round(max(again.values()), 3) if cut and again.keys() == cut else None


def _excused(evidence: Evidence) -> set[UUID]:
    """Jobs held by a process that was killed or lost its lease. They may run again, and are counted
    separately."""
    held = {job for death in evidence.deaths for job in death.held}
    held |= {job for act in evidence.acts for job in act.held | act.cut}
    for death in evidence.deaths:
        held |= interrupted(death, evidence.runs)
    return held


def _ticks(
    evidence: Evidence, completed: dict[UUID, int], excused: set[UUID], problems: list[str]
) -> tuple[int, int, int, int]:
    """(due, fired, duplicates, missed), by the moments that handlers saw."""
    due = _due(evidence)
    jobs_at: dict[datetime, set[UUID]] = defaultdict(set)
    for run in evidence.runs:
        if run.tick_at is not None and run.finished_at is not None:
            jobs_at[run.tick_at].add(run.job)
    again: Counter[datetime] = Counter()
    for moment, jobs in jobs_at.items():
        again[moment] = len(jobs) - 1
        again[moment] += sum(completed[job] - 1 for job in jobs if job not in excused)
    missed = [moment for moment in due if moment not in jobs_at]
    strange = sorted(jobs_at.keys() - set(due))
    doubled = sorted(moment for moment, times in again.items() if times)
    if not due:
        problems.append("no tick was due")
    if missed:
        problems.append(f"{len(missed)} ticks were missed: {_some(missed)}")
    if doubled:
        problems.append(f"{len(doubled)} ticks ran more than once: {_some(doubled)}")
    if strange:
        problems.append(f"{len(strange)} ticks ran that were not due: {_some(strange)}")
    return len(due), len(jobs_at), again.total(), len(missed)


def _due(evidence: Evidence) -> list[datetime]:
    """The schedule's own moments, from the first decided one to the last, or to the end of the run
    if the schedule stopped before it."""
    first, last = evidence.decided
    if first is None or last is None:
        return []
    moments, moment = [], evidence.spec.next_after(first - _INSTANT)
    while moment is not None and (moment <= last or moment < evidence.until):
        moments.append(moment)
        moment = evidence.spec.next_after(moment)
    return moments


def _recoveries(evidence: Evidence) -> list[float | None]:
    return [recovery(death, evidence.runs) for death in evidence.deaths]


def _worst(
    what: str, seconds: Iterable[float | None], evidence: Evidence, problems: list[str]
) -> float | None:
    measured = list(seconds)
    if not measured:
        return None
    known = [value for value in measured if value is not None]
    if len(known) < len(measured):
        problems.append(f"a {what} was not observed")
        return None
    worst = max(known)
    if worst > evidence.limit_seconds:
        problems.append(f"the {what} took {worst:.1f} s, more than {evidence.limit_seconds:g}")
    return worst


def _some(culprits: Sequence[object]) -> str:
    named = ", ".join(str(culprit) for culprit in culprits[:_NAMED])
    return named + (" …" if len(culprits) > _NAMED else "")
