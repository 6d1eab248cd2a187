"""The outcomes of an attempt, and what follows from each: the pure function :func:`decide`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from leasework.config import Limits
from leasework.errors import BadJob, BadPayload, shorten, storable, told, without_secrets, words
from leasework.model.backoff import Backoff
from leasework.model.fingerprint import fingerprint
from leasework.model.job import ClaimedJob, encode
from leasework.model.limits import Throttled
from leasework.model.moments import Duration, in_seconds, is_number
from leasework.model.states import State
from leasework.model.values import Values


class Complete(Struct, frozen=True):
    """The handler returned; ``result`` is JSON text, or None for no result."""

    result: str | None = None


class Fail(Struct, frozen=True):
    """The handler raised an error or timed out. Counts against ``max_attempts``."""

    error: str
    """One sentence, or what the error says."""
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Snooze:
    """Return this from a handler to run again in ``seconds``, a number or a timedelta. Does not
    count as an attempt. Raises BadJob for less than 0 seconds or more than a year."""

    seconds: Duration

    def __post_init__(self) -> None:
        seconds = in_seconds(self.seconds)
        object.__setattr__(self, "seconds", seconds)
        if not is_number(seconds, 0, 366 * 86400):
            raise BadJob("Snooze takes seconds from 0 to a year", got=self.seconds)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Return this from a handler to cancel the job, which is no longer wanted."""

    reason: str = "cancelled by its handler"


@dataclass(frozen=True, slots=True)
class Discard:
    """Return this from a handler to fail the job for good, without further attempts."""

    reason: str = "discarded by its handler"


class Unknown(Struct, frozen=True):
    """This worker has no handler: hold the job back until a worker knows its task."""

    seconds: float = 1.0


class Stopped(Struct, frozen=True):
    """The worker stopped while the job ran. The attempt does not count, and the job is next."""


class Unable(Struct, frozen=True):
    """This worker cannot start the handler's process or thread, record the start, or read the
    arguments. The handler has not begun, and the attempt does not count: this or another worker
    takes the job later."""

    error: str
    seconds: float = 5.0
    because: str = "no_process"


class Suspend(Struct, frozen=True):
    """The handler sleeps, or waits for a signal or for other jobs. The attempt does not count, and
    the job resumes when what it ``waits`` for comes (see ``leasework.has_come``), or in
    ``seconds``."""

    because: str
    """``sleep``, ``event`` or ``gather``."""
    waits: str | None
    seconds: float


class StepItem(NamedTuple):
    """A step to record under its claim."""

    job: UUID
    token: int
    name: str
    result: str
    """As JSON."""
    seconds: float


PLAIN = Complete()
"""The outcome of most attempts."""

Outcome = (
    Complete | Fail | Snooze | Throttled | Cancel | Discard | Unknown | Stopped | Unable | Suspend
)


class Decision(Struct, frozen=True):
    """What the acker writes for an outcome."""

    state: State
    run_in: float = 0.0
    """Seconds until the next attempt, for waiting states."""
    error: str | None = None
    """Of a cancelled job: the reason."""
    traceback: str | None = None
    log: str | None = None
    """The last lines that the handler logged, if they are kept."""
    result: str | None = None
    counts: bool = True
    """False: this run is subtracted from ``attempt``."""
    held_because: str | None = None
    waits: str | None = None
    """What a suspended job waits for."""

    @property
    def fingerprint(self) -> str | None:
        """Of the error of an attempt that failed."""
        failed = self.state in (State.RETRYABLE, State.DISCARDED)
        return fingerprint(self.error) if failed and self.error is not None else None


COMPLETED = Decision(State.COMPLETED)


def decide(job: ClaimedJob, outcome: Outcome, backoff: Backoff, draw: float) -> Decision:
    """Decide what is written for a job's outcome. ``draw`` in [0, 1) is for the jitter. A cancel
    requested in the meantime is not known here: the statement that would write a waiting state
    writes ``cancelled`` if the row's flag is set."""
    match outcome:
        case Complete(None):
            return COMPLETED
        case Complete(result):
            return Decision(State.COMPLETED, result=result)
        case Cancel(reason):
            return Decision(State.CANCELLED, error=_text(reason))
        case Discard(reason):
            return Decision(State.DISCARDED, error=_text(reason))
        case Snooze(seconds):
            return _held("snoozed", in_seconds(seconds))
        case Throttled(seconds=seconds):
            return _held("throttled", seconds)
        case Stopped():
            return _held("stopped")
        case Suspend(because, waits, seconds):
            return Decision(
                State.SCHEDULED, seconds, counts=False, held_because=because, waits=waits
            )
        case Unknown(seconds):
            return _held("unknown_task", seconds)
        case Unable(error, seconds, because):
            return _held(because, seconds, _text(error))
        case Fail(error, traceback):
            error, traceback = _text(error), traceback and _text(traceback)
            failures = job.attempt - job.crashes
            if failures >= job.max_attempts:
                return Decision(State.DISCARDED, 0.0, error, traceback)
            wait = backoff.seconds(failures, draw)
            return Decision(State.RETRYABLE, wait, error, traceback)


def _held(because: str, run_in: float = 0.0, error: str | None = None) -> Decision:
    """The run does not count, and the job runs again."""
    return Decision(State.SCHEDULED, run_in, error, counts=False, held_because=because)


def _text(reason: object) -> str:
    """Return a handler's reason, of whatever type, as text."""
    text = storable(words(reason)[: 2 * Limits.error_chars])
    return without_secrets(text)[: Limits.error_chars]


OUTCOMES = (Snooze, Throttled, Cancel, Discard)
"""The types that a handler returns to decide what happens to its job."""


def outcome_of(
    task: str, returned: Any, result_bytes: int, values: Values | None = None
) -> Complete | Snooze | Throttled | Cancel | Discard:
    """Return what a handler's return value means: an outcome, or the result of a completed job. A
    result that cannot be stored discards the job, because another run would repeat its effects and
    return the same."""
    if returned is None:
        return PLAIN
    if isinstance(returned, OUTCOMES):
        return returned
    if inspect.iscoroutine(returned):
        returned.close()
        return Discard(
            "the handler returned a coroutine that was never awaited. Either the handler lacks an "
            "`await`, or a decorator hides that the handler is async: then await the handler in "
            "the decorator's wrapper"
        )
    try:
        written = values.write_result(returned) if values else returned
        return Complete(encode(f"result of {task}", written, result_bytes))
    except BadPayload as error:
        got = "" if error.got is ... else f" ({shorten(error.got)})"
        why = f"{error.what}{got}"
    except Exception as error:  # raised by the object's own methods
        why = told(error)
    kind = type(returned).__name__
    return Discard(
        f"the handler ran to its end, but returned a value of type {kind} that cannot be stored: "
        f"{why}. The job does not run again. If the handler's annotation lacks this type, add it: "
        "UUID, datetime and dataclasses are converted. Otherwise return None, text, numbers, "
        "booleans, lists or dicts with text keys, and an id instead of an object or of large data"
    )
