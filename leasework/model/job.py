"""Jobs as values: what a client enqueues, what a worker claims, and what the database returns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct, structs

from leasework.config import Limits
from leasework.errors import BadJob, BadPayload, storable
from leasework.model.deadline import AnyTask, Callback, Deadline, Promise
from leasework.model.limits import MOST_LIMITS, Limit
from leasework.model.moments import Duration, in_seconds, is_number, storable_moment
from leasework.model.states import State

R = TypeVar("R", covariant=True)
MOST_TAGS = 10
TAG_CHARS = 50
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""Matches the escape of a NUL, but not an escaped backslash before the text "u0000"."""
_LENGTHS = ("timeout", "requeue_after", "run_in", "unique_for")
"""Options in seconds, which may be given as a timedelta."""


class OnConflict(StrEnum):
    """What to do when another job already holds the unique key."""

    RETURN = "return"
    """Insert nothing, and return the job that holds the key."""
    RAISE = "raise"
    """Raise UniqueConflict."""
    REPLACE = "replace"
    """Replace the arguments and the time of a waiting job. A running one stays as it is."""


class SharedGiven(TypedDict, total=False):
    """What a caller may give for :class:`SharedOptions`."""

    queue: str
    priority: int
    max_attempts: int
    timeout: Duration | None
    requeue_after: Duration | None
    history: bool
    deadline: Deadline | None
    tags: Sequence[str]
    on_failure: AnyTask | str | None
    limits: Sequence[Limit]


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """Options that a task sets for all its jobs, and that a job can override."""

    queue: str = "default"
    priority: int = 0
    """A job with a smaller number runs first."""
    max_attempts: int = 5
    timeout: float | None = None
    """The longest time of one run, in seconds."""
    requeue_after: float | None = None
    """Seconds after which a run is taken from its node, even if the node is alive."""
    history: bool = True
    """False: nothing is kept of the job once it has completed."""
    deadline: Promise | None = None
    tags: tuple[str, ...] = ()
    """Words by which people find the job."""
    on_failure: Callback | None = None
    """The task to enqueue when the job is discarded, quarantined or cancelled. A caller gives the
    task or its name."""
    limits: tuple[Limit, ...] = ()
    """At most two, which make the job wait: see :meth:`App.limit`."""


class JobGiven(SharedGiven, total=False):
    """What a caller may give for :class:`JobOptions`."""

    run_at: datetime | None
    run_in: Duration | None
    unique: str | None
    unique_for: Duration | None
    on_conflict: Literal["return", "raise", "replace"]


@dataclass(frozen=True)
class JobOptions(SharedOptions):
    """All options of a job, which many jobs can share. Checked when made."""

    task: str
    run_at: datetime | None = None
    run_in: float | None = None
    """Seconds from now, by the database's clock."""
    unique: str | None = None
    unique_for: float | None = None
    """Seconds for which the key is held. None: until the job has finished."""
    on_conflict: OnConflict = OnConflict.RETURN
    version: int = 1
    """The version of the task whose arguments these are."""
    on_success: dict[str, Any] | None = None
    """The job to enqueue when it completes: see :meth:`JobRequest.then`."""
    read_result: Callable[[Any], Any] | None = field(default=None, repr=False, compare=False)
    """Converts the stored result to what the handler returned. The database does not have it."""
    plain: bool = field(init=False, repr=False, compare=False)
    """Due at once, without a key, a deadline or a callback, so that COPY can insert the job."""

    def __post_init__(self) -> None:
        for name in _LENGTHS:
            object.__setattr__(self, name, in_seconds(getattr(self, name)))
        _check(self)
        waits = self.run_at is not None or self.run_in is not None
        object.__setattr__(self, "tags", tuple(self.tags))
        object.__setattr__(self, "limits", tuple(self.limits))
        follows = self.on_failure or self.on_success
        plain = not (waits or self.unique or self.deadline or follows or self.limits)
        object.__setattr__(self, "plain", plain)

    @property
    def queues(self) -> set[str]:
        """The queues of the job, and of its callbacks."""
        callbacks = [self.deadline.callback] if self.deadline else []
        callbacks += [self.on_failure] if self.on_failure else []
        return {self.queue, *(c.options.get("queue", "default") for c in callbacks)}

    @cached_property
    def as_json(self) -> dict[str, Any]:
        """The options that differ from their defaults, as ``leasework.enqueue`` takes them."""
        values = {f.name: (getattr(self, f.name), f.default) for f in fields(self) if f.compare}
        del values["limits"]  # each job has the keys: see JobRequest.waits
        return {name: _as_json(value) for name, (value, usual) in values.items() if value != usual}


COLUMNS = {
    "task": "task_name", "queue": "queue", "priority": "priority", "max_attempts": "max_attempts",
    "timeout": "timeout_seconds", "requeue_after": "requeue_seconds", "history": "history",
    "tags": "tags", "version": "version",
}  # fmt: skip
"""The options that COPY inserts, and their columns."""
JOB_OPTIONS = tuple(
    f.name
    for f in fields(JobOptions)
    if f.compare and f.name not in ("task", "version", "on_success")
)
"""The options that ``task.using(...)`` takes, except ``on``."""


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Callback | Promise):
        return value.as_json()
    return list(value) if isinstance(value, tuple) else value


class JobRequest(Struct, Generic[R], frozen=True, gc=False):  # nothing in it refers back
    """A job to enqueue, made by ``task.job(...)``. ``R`` is what its handler returns. Jobs with
    the same options share one object, because a bulk enqueue makes many."""

    options: JobOptions
    payload: str
    """The arguments, as the JSON text of one object."""
    trace: str | None = None
    """The enqueueing span as W3C's traceparent. The client sets it if there is tracing."""
    waits: dict[str, Any] | None = None
    """The limits with their keys, and the tenant, as ``leasework.enqueue`` takes them. None: it has
    neither."""

    @staticmethod
    def named(task: str, payload: str, **options: Any) -> JobRequest[Any]:
        """Make a job of a task that this process does not know. ``options`` are fields of
        ``JobOptions``. Raises BadJob."""
        return JobRequest(JobOptions(task, **options), payload)

    def __getattr__(self, name: str) -> Any:
        """The fields of its options are also its own."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.options, name)

    def traced(self, trace: str | None) -> JobRequest[R]:
        """Return the same job with another trace context."""
        return structs.replace(self, trace=trace)

    def then(self, following: JobRequest[Any]) -> JobRequest[R]:
        """Return the same job, with another to enqueue when it completes, in one transaction with
        its completion::

            await app.enqueue(fetch.job(7).then(parse.job(7)).then(publish.job(7)))

        Raises BadJob for a job with ``history=False``, whose completion leaves nothing."""
        whole = _longer(self.options.as_json, checked(following).as_callback())
        options = replace(self.options, on_success=whole["on_success"])
        return structs.replace(self, options=options)

    def as_callback(self) -> dict[str, Any]:
        """The same as :meth:`as_request`, for a job that the database enqueues later."""
        request = self.as_request(UUID(int=0), Limits.payload_bytes)
        del request["id"], request["payload_limit"]
        return request

    def as_request(self, job_id: UUID, payload_limit: int) -> dict[str, Any]:
        """The object that ``leasework.enqueue(jsonb)`` takes."""
        own = {"id": str(job_id), "payload": json.loads(self.payload)}
        trace = {"trace": self.trace} if self.trace else {}
        waits = self.waits or {}
        return {**self.options.as_json, **own, **trace, **waits, "payload_limit": payload_limit}


def _longer(job: dict[str, Any], following: dict[str, Any]) -> dict[str, Any]:
    """The job with another at the end of its chain, as ``leasework.enqueue`` takes them."""
    if "on_success" in job:
        following = _longer(job["on_success"], following)
    elif job.get("history") is False:
        raise BadJob("a job with history=False cannot have a job that follows", got=job["task"])
    return {**job, "on_success": following}


def checked(given: Any) -> JobRequest[Any]:
    """Raises BadJob for what is no job."""
    if not isinstance(given, JobRequest):
        raise BadJob("not a job", got=given, do="Make one with task.job(...)")
    return given


BulkJob = tuple[int, JobOptions, str, str | None]
"""A job in a bulk insert: its id as a number, options, payload, trace. If jobs share their options,
the garbage collector has nothing to scan in it."""


def _check(job: JobOptions) -> None:
    for label in ("task", "queue", "unique"):
        text = getattr(job, label)
        if text is None and label == "unique":
            continue
        if not isinstance(text, str) or not text or storable(text) != text:
            raise BadJob(f"{label} must be text without NUL or lone surrogates", got=ascii(text))
        if len(text) > Limits.text_chars:
            raise BadJob(f"{label} has more than {Limits.text_chars} characters", got=text)
    if not isinstance(job.history, bool):
        raise BadJob("history must be True or False", got=job.history)
    _check_number("priority", job.priority, -32768, 32767, whole=True)
    _check_number("max_attempts", job.max_attempts, 1, Limits.max_attempts, whole=True)
    _check_number("version", job.version, 1, 32767, whole=True)
    if job.run_at is not None and job.run_in is not None:
        raise BadJob("give run_at or run_in, not both", got=(job.run_at, job.run_in))
    if job.run_at is not None and (
        not isinstance(job.run_at, datetime) or job.run_at.utcoffset() is None
    ):
        raise BadJob("run_at must be a datetime with a time zone", got=job.run_at)
    if job.run_at is not None and not storable_moment(job.run_at):
        raise BadJob("run_at must be from the year 2 to 9998", got=job.run_at)
    if job.run_in is not None:
        _check_number("run_in", job.run_in, 0, 100 * 366 * 86400.0)
    if job.timeout is not None:
        _check_number("timeout", job.timeout, 0.001, Limits.run_seconds)
    if job.requeue_after is not None:
        _check_number("requeue_after", job.requeue_after, 1, Limits.run_seconds)
    if job.unique_for is not None:
        _check_number("unique_for", job.unique_for, 0.001, 100 * 366 * 86400.0)
        if job.unique is None:
            raise BadJob("unique_for needs unique", do="Give the key: unique='user-42'")
    _check_tags(job.tags)
    _check_limits(job.limits)


def _check_tags(tags: object) -> None:
    example = "tags=['eu', 'invoice-42']"
    if isinstance(tags, str) or not isinstance(tags, Sequence) or len(tags) > MOST_TAGS:
        raise BadJob(f"tags must be a list of at most {MOST_TAGS} texts", got=tags, do=example)
    for tag in tags:
        if not isinstance(tag, str) or not 0 < len(tag) <= TAG_CHARS or storable(tag) != tag:
            rule = f"1 to {TAG_CHARS} characters without NUL or lone surrogates"
            raise BadJob(f"a tag must be text of {rule}", got=ascii(tag), do=example)
    if len(set(tags)) < len(tags):
        raise BadJob("tags must not have the same tag twice", got=tags, do="Leave one of them out")


def _check_limits(limits: object) -> None:
    example = "limits=[vendor], where vendor = app.limit('vendor', concurrency=2)"
    known = isinstance(limits, Sequence) and all(isinstance(each, Limit) for each in limits)
    if not isinstance(limits, Sequence) or not known:
        raise BadJob("limits must be a list of limits", got=limits, do=example)
    if len(limits) > MOST_LIMITS or len({limit.name for limit in limits}) < len(limits):
        raise BadJob(
            f"a job has at most {MOST_LIMITS} different limits",
            got=[limit.name for limit in limits],
            do="Combine two of them into one whose key has both values",
        )


def _check_number(
    label: str, value: object, low: float, high: float, *, whole: bool = False
) -> None:
    if not is_number(value, low, high, whole=whole):
        kind = "a whole number" if whole else "a number"
        raise BadJob(f"{label} must be {kind} from {low:g} to {high:g}", got=value)


def needs(task: str, version: int) -> str:
    """Return what a node must know to run a job: a name among those that it publishes."""
    return task if version == 1 else f"{task} (version {version})"


def needed(known: str) -> tuple[str, int]:
    """Return the task and the version of a name that a node publishes."""
    found = re.fullmatch(r"(.*) \(version (\d{1,9})\)", known, re.DOTALL)
    return (found[1], int(found[2])) if found else (known, 1)


_read = msgspec.json.Decoder().decode


class Unreadable(Struct, frozen=True):
    """JSON in the database that Python cannot read: nested too deeply, or with a number of
    thousands of digits. :func:`encode` never writes such a value."""

    why: str


def decode(text: str | bytes) -> Any:
    """Decode JSON from the database. Return :class:`Unreadable` instead of an error, so that one
    bad value does not affect other rows."""
    try:
        return _read(text)
    except (ValueError, RecursionError):
        pass  # Python reads some numbers that msgspec refuses
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unreadable(f"{type(error).__name__}: {error}")


def plain_first_try(
    jobs: Sequence[tuple[UUID, JobRequest[Any]]], payload_limit: int, retried: bool
) -> tuple[UUID, JobRequest[Any]] | None:
    """Return the job if it is the only one, plain and surely small: it has a faster statement."""
    if retried or len(jobs) != 1:
        return None
    _, job = first = jobs[0]
    small = len(job.payload) * 4 <= payload_limit  # a character has at most four bytes
    options = job.options
    plain = options.plain and not (options.tags or job.trace or job.waits)
    plain = plain and options.version == 1
    return first if small and plain else None


class ClaimedJob(NamedTuple):
    """One attempt of a job. It is ours as long as the row has this ``claim_token``."""

    id: UUID
    task: str
    queue: str
    payload: Any
    """The arguments, a dict; or Unreadable."""
    priority: int
    attempt: int
    """Counted from 1."""
    max_attempts: int
    crashes: int
    claim_token: int
    timeout: float | None
    requeue_after: float | None
    scheduled_for: datetime
    history: bool
    schedule: str | None
    """The name of the schedule that enqueued it."""
    deadlines: bool = False
    """It has a deadline, which its first start may arm."""
    trace: str | None = None
    """The enqueueing span, as W3C's traceparent."""
    version: int = 1
    """The version of the task that made the arguments."""
    lane: str | None = None
    """Its tenant and the keys of its limits, separated by bars."""
    start_in: float = 0.0
    """Seconds from the claim until its limits let it start."""


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job as in the view ``leasework.jobs``, without the columns that may be long."""

    id: UUID
    task_name: str
    queue: str
    state: State
    priority: int
    created_at: datetime
    scheduled_for: datetime
    started_at: datetime | None
    completed_at: datetime | None
    attempt: int
    max_attempts: int
    claim_token: int | None
    worker_id: str | None
    progress: float | None
    progress_note: str | None
    cancel_requested: bool
    crashes: int
    held_because: str | None
    """Why the job is not available: ``scheduled``, ``retryable`` (after a failure), ``snoozed``,
    ``throttled``, ``stopped`` (with its worker), ``limit`` (due, and waiting for its limits),
    ``unknown_task``, ``unknown_version``, ``no_process`` (it could
    not be started), ``unreadable`` or ``not_alone``. None: it is available, runs or has ended."""
    schedule: str | None = None
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", tuple(self.tags))
        object.__setattr__(self, "state", State(self.state))


@dataclass(frozen=True, slots=True)
class JobRecord(JobLine):
    """A job as in the view ``leasework.jobs``."""

    payload: Any = None
    """The arguments, a dict; or Unreadable."""
    last_error: str | None = None
    """Why its last run failed, in one sentence or a few. None once it has completed."""
    result: Any = None
    reason: str | None = None
    """Why it was cancelled, or a cancel was requested."""
    traceback: str | None = None
    """Of ``last_error``, if a handler raised it: for developers, because it names files."""
    batch: UUID | None = None
    """The batch that it is a member of."""


def levels(value: Any) -> Iterator[list[Any]]:
    """Yield ``value``, then the dicts, lists and tuples in it, then those in these, and so on. Ends
    one level below the limit, because a value may contain itself. It does not recurse."""
    level = [value]
    for _ in range(Limits.json_depth + 1):
        yield level
        level = [
            part
            for whole in level
            for part in (whole.values() if isinstance(whole, dict) else whole)
            if isinstance(part, (dict, list, tuple))
        ]
        if not level:
            return


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
)
_write = msgspec.json.Encoder().encode
_TEXT = frozenset({str})
_SIMPLE = frozenset({str, int, bool, type(None)})
"""msgspec writes values of exactly these types as Python does. Elsewhere it is more lenient: it
writes NaN as null, and a date as text."""


def encode(label: str, value: Any, limit: int) -> str:
    """Encode ``value`` as JSON text that PostgreSQL's jsonb can store. Raises BadPayload if it is
    not JSON (NaN and Infinity are not), has a NUL or a lone surrogate, is nested deeper than
    ``Limits.json_depth``, or has more than ``limit`` bytes."""
    try:
        simple = type(value) is dict and _TEXT.issuperset(map(type, value))
        simple = simple and _SIMPLE.issuperset(map(type, value.values()))
        text = _write(value).decode() if simple else _ENCODER.encode(value)
        size = len(text) if text.isascii() else len(text.encode())
    except RecursionError:
        raise BadPayload(
            f"{label}: nested too deeply, or contains itself",
            do="Pass plain data: text, numbers, lists and dicts",
        ) from None
    except UnicodeEncodeError as error:
        raise BadPayload(
            f"{label}: a lone surrogate",
            got=str(error),
            do="Pass valid Unicode, or bytes for an argument that is annotated so",
        ) from None
    except (TypeError, ValueError) as error:
        raise BadPayload(
            f"{label}: not JSON",
            got=str(error),
            do="Pass text, numbers, booleans, None, lists, dicts with text keys; or annotate the "
            "handler: UUID, datetime, Decimal, dataclasses and the like are converted",
        ) from None
    if size > limit:
        raise BadPayload(
            f"{label}: {size} bytes, over the limit of {limit}",
            do="Store the data elsewhere and pass a reference, or raise payload_limit",
        )
    depth = Limits.json_depth
    deep = len(text) > depth and text.count("[") + text.count("{") > depth
    if deep and sum(1 for _ in levels(value)) > depth:
        raise BadPayload(
            f"{label}: nested deeper than {depth} levels",
            do="Store the data elsewhere and pass a reference",
        )
    if "\\u0000" in text and _NUL.search(text):
        raise BadPayload(
            f"{label}: text with a NUL, which PostgreSQL cannot store",
            do="Remove it, or pass the data as base64",
        )
    return text
