"""Deadlines, as code declares them and as the database has them.

``Deadline`` is what users write. ``Level`` is one promised time of a job, with its callback
resolved. The database returns ``DueLevel`` and ``Breach``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, get_args
from uuid import UUID

from msgspec import Struct

from leasework.config import Limits
from leasework.errors import BadDeadline, storable, suggest
from leasework.model.moments import Duration, in_seconds, is_number

Since = Literal["scheduled", "enqueued", "started", "tick", "fixed", "average"]
"""The start of a deadline's interval: see :class:`Deadline`."""
Until = Literal["success", "finished"]
"""What meets a deadline: see :class:`Deadline`."""
OnCancel = Literal["cancel", "keep"]
"""What becomes of a deadline when its job is cancelled: see :class:`Deadline`."""
STATES = ("waiting", "armed", "met", "breached", "cancelled")
MOST_LEVELS = 8
MOST_RUNS = 1000
LONGEST_SECONDS = 100 * 366 * 86400.0


class AnyTask(Protocol):
    """A task, which ``@app.task`` returns."""

    @property
    def name(self) -> str: ...

    @property
    def function(self) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """A promised time: ``Deadline(minutes=10, on_breach=page_oncall)``. A list has several levels.

    ``since`` is the start of the interval: ``scheduled`` (when the job was due, or its
    tick; the default), ``enqueued``, ``started`` (its first run), ``tick`` (of its schedule), or
    ``average`` (the first start, plus ``factor`` times the average duration of the task's last
    ``runs`` successful runs under such a deadline). ``at`` is a fixed time instead. ``until`` is
    what meets the deadline: ``success``, or ``finished`` (discarded and quarantined too).
    ``on_cancel="cancel"`` ends the deadline if the job is cancelled, ``"keep"`` does not.
    ``on_breach`` is a task, or its name. Its handler gets one argument, ``breach``, a dict. Raises
    BadDeadline.
    """

    on_breach: AnyTask | str
    days: float = 0
    hours: float = 0
    minutes: float = 0
    seconds: Duration = 0
    at: datetime | None = None
    since: Since | None = None
    runs: int | None = None
    factor: float | None = None
    until: Until = "success"
    on_cancel: OnCancel = "cancel"
    name: str | None = None
    """The name that people see. The default is the task's name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", in_seconds(self.seconds))
        _check_words(self)
        _check_interval(self)
        if self.average:
            if not is_number(self.runs, 1, MOST_RUNS, whole=True):
                rule = f"since='average' needs runs, a whole number from 1 to {MOST_RUNS}"
                raise BadDeadline(rule, got=self.runs)
            if self.factor is not None and not is_number(self.factor, 0.001, 1000):
                raise BadDeadline("factor must be a number from 0.001 to 1000", got=self.factor)
        elif self.runs is not None or self.factor is not None:
            raise BadDeadline("runs and factor go with since='average'", got=self.since)

    @property
    def average(self) -> bool:
        return self.since == "average"

    @property
    def interval_seconds(self) -> float:
        minutes = self.days * 1440.0 + self.hours * 60.0 + self.minutes
        return float(minutes * 60.0 + in_seconds(self.seconds))


def _check_words(deadline: Deadline) -> None:
    for label, words in (("since", Since), ("until", Until), ("on_cancel", OnCancel)):
        known, word = get_args(words), getattr(deadline, label)
        if word not in known and not (label == "since" and word is None):
            raise BadDeadline(
                f"a deadline's {label} is not known", got=word, do=suggest(str(word), known)
            )
    name = deadline.name
    if name is not None:
        check_name(name)
    if deadline.on_breach is None:
        raise BadDeadline(
            "a deadline needs on_breach: the task to call on a breach",
            do="Deadline(minutes=10, on_breach=page_oncall)",
        )


def _check_interval(deadline: Deadline) -> None:
    for label in ("days", "hours", "minutes", "seconds"):
        if not is_number(getattr(deadline, label), 0, LONGEST_SECONDS):
            raise BadDeadline(
                f"a deadline's {label} must be a number that is not negative",
                got=getattr(deadline, label),
            )
    seconds = deadline.interval_seconds
    if seconds > LONGEST_SECONDS:
        raise BadDeadline("a deadline is at most 100 years away", got=seconds)
    if deadline.at is None:
        if deadline.since == "fixed":
            raise BadDeadline("since='fixed' needs at, a datetime")
        if seconds <= 0 and not deadline.average:
            raise BadDeadline("a deadline needs a time", do="Deadline(minutes=10, on_breach=…)")
        return
    if not isinstance(deadline.at, datetime) or deadline.at.tzinfo is None:
        raise BadDeadline("at must be a datetime with a time zone", got=deadline.at)
    if seconds or deadline.since not in (None, "fixed"):
        raise BadDeadline("give at, or an interval and since, not both", got=deadline.since)


def check_name(name: object) -> None:
    """Check the name of a deadline. Raises BadDeadline."""
    good = isinstance(name, str) and 0 < len(name) <= Limits.text_chars and storable(name) == name
    if not good:
        raise BadDeadline(f"name must be text of 1 to {Limits.text_chars} characters", got=name)


def as_levels(given: object) -> tuple[Deadline, ...]:
    """One Deadline or a list of them, as a tuple. Raises BadDeadline."""
    if given is None:
        return ()
    levels = (given,) if isinstance(given, Deadline) else given
    if not isinstance(levels, Sequence) or not all(isinstance(d, Deadline) for d in levels):
        raise BadDeadline(
            "deadline must be a Deadline, or a list of them",
            got=given,
            do="deadline=Deadline(minutes=10, on_breach=page_oncall)",
        )
    if len(levels) > MOST_LEVELS:
        raise BadDeadline(f"a deadline has at most {MOST_LEVELS} levels", got=len(levels))
    return tuple(levels)


@dataclass(frozen=True, slots=True)
class Callback:
    """The task to call on a breach, and the options of its job as JSON."""

    task: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def as_json(self) -> dict[str, Any]:
        return {"task": self.task, **self.options}


class Level(Struct, frozen=True):
    """One promised time of a job, or of a deadline without a job."""

    callback: Callback
    since: str = "scheduled"
    seconds: float = 0.0
    at: datetime | None = None
    runs: int | None = None
    factor: float = 1.0
    until: str = "success"
    on_cancel: str = "cancel"
    name: str | None = None

    @classmethod
    def of(cls, given: Deadline, callback: Callback) -> Level:
        since = "fixed" if given.at else given.since or "scheduled"
        return cls(
            callback=callback,
            since=since,
            seconds=given.interval_seconds,
            at=given.at,
            runs=given.runs,
            factor=1.0 if given.factor is None else given.factor,
            until=given.until,
            on_cancel=given.on_cancel,
            name=given.name,
        )

    def as_json(self) -> dict[str, Any]:
        """One level of ``deadline`` as ``leasework.enqueue`` takes it."""
        optional = {
            "at": self.at.isoformat() if self.at else None,
            "runs": self.runs,
            "factor": None if self.factor == 1.0 else self.factor,
            "name": self.name,
        }
        return {
            "since": self.since,
            "seconds": self.seconds,
            "until": self.until,
            "on_cancel": self.on_cancel,
            "on_breach": self.callback.as_json(),
            **{key: value for key, value in optional.items() if value is not None},
        }


class DueLevel(NamedTuple):
    """One level, as the database has it."""

    id: UUID
    """The deadline's id: that of its job, or its own if it has no job. It never changes."""
    level: int
    """From 1."""
    name: str
    due_at: datetime | None
    """None until the start of its interval is known."""
    state: str

    @property
    def key(self) -> str:
        """A stable key of this level, by which an external system can recognize a repeated page."""
        return f"{self.id}:{self.level}"


class Breach(NamedTuple):
    """A breach that a sweep recorded, with its callback's job."""

    id: UUID
    level: int
    name: str
    job: UUID | None
    due_at: datetime
    late_seconds: float
    callback: str
    """The task of the callback."""
    callback_job: UUID
