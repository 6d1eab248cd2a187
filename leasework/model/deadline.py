"""Deadlines: as users write them (``Deadline``), with the callback resolved (``Promise``), and as
the database returns them (``DueDeadline``, ``Breach``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, get_args
from uuid import UUID

from msgspec import Struct

from leasework.config import Limits
from leasework.errors import BadDeadline, storable, suggest
from leasework.model.moments import Duration, in_seconds, is_number

Since = Literal["scheduled", "enqueued", "started", "tick", "fixed"]
"""The start of a deadline's interval: see :class:`Deadline`."""
Until = Literal["success", "finished"]
"""What meets a deadline: see :class:`Deadline`."""
STATES = ("waiting", "armed", "met", "breached", "cancelled")
LONGEST_SECONDS = 100 * 366 * 86400.0


class AnyTask(Protocol):
    """A task, which ``@app.task`` returns."""

    @property
    def name(self) -> str: ...

    @property
    def function(self) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """A promised time of a job: ``Deadline(minutes=10, on_breach=page_oncall)``.

    ``since`` is the start of the interval: ``scheduled`` (when the job was due, or its
    tick; the default), ``enqueued``, ``started`` (its first run), or ``tick`` (of its schedule).
    ``at`` is a fixed time instead. ``until`` is what meets the deadline: ``success``, or
    ``finished`` (discarded and quarantined too). A job that is cancelled ends its deadline.
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
    until: Until = "success"
    name: str | None = None
    """The name that people see. The default is the task's name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", in_seconds(self.seconds))
        _check_words(self)
        _check_interval(self)

    @property
    def interval_seconds(self) -> float:
        minutes = self.days * 1440.0 + self.hours * 60.0 + self.minutes
        return float(minutes * 60.0 + in_seconds(self.seconds))


def _check_words(deadline: Deadline) -> None:
    for label, words in (("since", Since), ("until", Until)):
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
        if seconds <= 0:
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


@dataclass(frozen=True, slots=True)
class Callback:
    """The task to call on a breach, and the options of its job as JSON."""

    task: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def as_json(self) -> dict[str, Any]:
        return {"task": self.task, **self.options}


class Promise(Struct, frozen=True):
    """The deadline of a job, or one without a job."""

    callback: Callback
    since: str = "scheduled"
    seconds: float = 0.0
    at: datetime | None = None
    until: str = "success"
    name: str | None = None

    @classmethod
    def of(cls, given: Deadline, callback: Callback) -> Promise:
        since = "fixed" if given.at else given.since or "scheduled"
        seconds = given.interval_seconds
        return cls(callback, since, seconds, given.at, given.until, given.name)

    def as_json(self) -> dict[str, Any]:
        """The option ``deadline`` as ``leasework.enqueue`` takes it."""
        return {
            "since": self.since,
            "seconds": self.seconds,
            "until": self.until,
            "on_breach": self.callback.as_json(),
            **({"at": self.at.isoformat()} if self.at else {}),
            **({"name": self.name} if self.name is not None else {}),
        }


class DueDeadline(NamedTuple):
    """The deadline of a job, as the database has it."""

    id: UUID
    """The job's id."""
    name: str
    due_at: datetime | None
    """None until the start of its interval is known."""
    state: str


class Breach(NamedTuple):
    """A breach that a sweep recorded, with its callback's job."""

    id: UUID
    name: str
    job: UUID | None
    due_at: datetime
    late_seconds: float
    callback: str
    """The task of the callback."""
    callback_job: UUID
