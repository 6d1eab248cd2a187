"""What came of an attempt, and what follows from it: one pure function, :func:`decide`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leasehold.config import Limits
from leasehold.errors import BadJob, BadPayload, shorten, storable, told, words
from leasehold.model.backoff import Backoff
from leasehold.model.job import ClaimedJob, encode
from leasehold.model.states import State
from leasehold.model.values import Values


@dataclass(frozen=True, slots=True)
class Complete:
    """The handler returned; ``result`` is JSON text, or None for no result."""

    result: str | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The handler raised, or ran out of time. Counts against ``max_attempts``."""

    error: str


@dataclass(frozen=True, slots=True)
class Snooze:
    """Return this from a handler: run again in ``seconds``. Does not count as an attempt."""

    seconds: float

    def __post_init__(self) -> None:
        good = isinstance(self.seconds, (int, float)) and not isinstance(self.seconds, bool)
        if not good or not 0 <= self.seconds <= 366 * 86400:
            raise BadJob("Snooze takes seconds from 0 to a year", got=self.seconds)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Return this from a handler: stop here, this job is not wanted any more."""

    reason: str = "cancelled by its handler"


@dataclass(frozen=True, slots=True)
class Discard:
    """Return this from a handler: failed for good, do not try again."""

    reason: str = "discarded by its handler"


@dataclass(frozen=True, slots=True)
class Unknown:
    """No handler here: hold the job back until some worker knows its task."""

    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Unable:
    """This worker cannot start what the handler runs in, or cannot read its arguments. The handler
    has not begun, and the attempt does not count: another worker may take the job, or this one
    later."""

    error: str
    seconds: float = 5.0
    because: str = "no_process"


PLAIN = Complete()
"""What most attempts come to."""

Outcome = Complete | Fail | Snooze | Cancel | Discard | Unknown | Unable


@dataclass(frozen=True, slots=True)
class Decision:
    """What the acker writes."""

    state: State
    run_in: float = 0.0
    """Seconds until the next attempt; for states that wait."""
    error: str | None = None
    result: str | None = None
    counts: bool = True
    """False: this run is taken off ``attempt`` again."""
    held_because: str | None = None


COMPLETED = Decision(State.COMPLETED)


def decide(job: ClaimedJob, outcome: Outcome, backoff: Backoff, draw: float) -> Decision:
    """From a job and its outcome to what is written; ``draw`` in [0, 1) is for the jitter.

    A cancel that somebody asked for meanwhile is not known here: the statement that writes a
    waiting state makes it ``cancelled`` if the row's flag is set.
    """
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
            return Decision(
                State.SCHEDULED, run_in=float(seconds), counts=False, held_because="snoozed"
            )
        case Unknown(seconds):
            return Decision(
                State.SCHEDULED, run_in=seconds, counts=False, held_because="unknown_task"
            )
        case Unable(error, seconds, because):
            return Decision(
                State.SCHEDULED, run_in=seconds, error=_text(error), counts=False,
                held_because=because,
            )  # fmt: skip
        case Fail(error):
            error = _text(error)
            failures = job.attempt - job.crashes
            if failures >= job.max_attempts:
                return Decision(State.DISCARDED, error=error)
            return Decision(State.RETRYABLE, run_in=backoff.seconds(failures, draw), error=error)


def _text(reason: object) -> str:
    """What a handler gave as its reason, whatever it is."""
    return storable(words(reason))[: Limits.error_chars]


OUTCOMES = (Snooze, Cancel, Discard)
"""What a handler returns to say what becomes of its job."""


def outcome_of(
    task: str, values: Values, returned: Any, result_bytes: int
) -> Complete | Snooze | Cancel | Discard:
    """What a handler's return value means: an outcome, or the result of a job that completed.

    The handler has run to its end. A result that cannot be stored therefore discards the job:
    another run would repeat the effects, and return the same.
    """
    if returned is None:
        return PLAIN
    if isinstance(returned, OUTCOMES):
        return returned
    try:
        return Complete(encode(f"result of {task}", values.write_result(returned), result_bytes))
    except BadPayload as error:
        got = "" if error.got is ... else f" ({shorten(error.got)})"
        why = f"{error.what}{got}"
    except Exception as error:  # by the object's own methods
        why = told(error)
    kind = type(returned).__name__
    return Discard(
        f"the handler ran to its end, but returned a value of type {kind} that cannot be stored: "
        f"{why}. The job does not run again. Return None, or text, numbers, booleans, lists and "
        "dicts with text keys; return an id instead of an object or of large data"
    )
