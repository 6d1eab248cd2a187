"""The catalogue of events, and their log lines. An event becomes a log line at once, and a row of
``leasework.event`` with the next batch."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec import Struct

from leasework.config import Limits
from leasework.errors import ConfigError, shorten, storable, suggest, told, without_secrets
from leasework.tuning import Tuning

logger = logging.getLogger("leasework")


class Kind(Struct, frozen=True):
    level: str
    """``info``, ``warning`` or ``error``."""
    meaning: str
    fields: tuple[str, ...] = ()
    stored: bool = True
    """False: a log line only."""


def _kind(level: str, meaning: str, fields: str = "", *, stored: bool = True) -> Kind:
    return Kind(level, meaning, tuple(fields.split()), stored)


_info, _warning, _error = (partial(_kind, level) for level in ("info", "warning", "error"))
CATALOGUE: dict[str, Kind] = {
    # nodes
    "node_started": _info("a node started", "app release queues"),
    "node_stopped": _info("a node stopped cleanly", "given_back cancelled running"),
    "node_died": _warning(
        "a node did not renew its lease for a whole lease, and was declared dead", "dead silent"
    ),
    "node_certified": _warning("a parent process certified the death of its child", "dead how"),
    "node_fenced": _error("this node lost its lease and stopped its work", "why running"),
    "node_exits": _error("work did not stop within the grace, so the process exits", "running"),
    "node_overlaps": _error(
        "work of a lost lease continues while its jobs run elsewhere; it can write nothing",
        "running",
    ),
    "node_halted": _warning("a person stopped this node from claiming"),
    "node_resumed": _info("a person resumed claiming on this node"),
    "loop_stuck": _warning("a handler blocks the event loop", "seconds"),
    "loop_free": _info("the event loop is no longer blocked", "seconds"),
    # the command line's processes
    "worker_stopping": _info("a worker was asked to stop", "signal", stored=False),
    "supervisor_stopping": _info(
        "a supervisor was asked to stop its workers", "signal", stored=False
    ),
    "worker_started": _info("a supervisor started a worker", "number pid", stored=False),
    "worker_ended": _warning(
        "a worker ended with an error or was killed", "number pid how", stored=False
    ),
    "worker_drained": _info(
        "a worker was drained and will not be restarted", "number pid", stored=False
    ),
    "worker_killed": _error(
        "a worker did not stop in time and was killed", "number pid", stored=False
    ),
    "worker_not_started": _error("a worker could not be started", "number error", stored=False),
    "worker_dies_at_once": _error(
        "a worker dies soon after each start; it is restarted after a pause",
        "number times pause",
        stored=False,
    ),
    "children_live_on": _error(
        "child processes of a dead worker are alive, so its lease must expire first",
        "number pid",
        stored=False,
    ),
    "deaths_uncertified": _warning(
        "some deaths could not be certified, so those leases must expire", stored=False
    ),
    # leases
    "lease_acquired": _info("a leadership was acquired", "name term"),
    "lease_lost": _warning("a leadership was lost", "name term why seconds"),
    "lease_resigned": _info("a leadership was given up", "name term why seconds"),
    "lease_overlaps": _error(
        "work under a lost leadership or lock did not stop within the grace; the fence refuses it",
        "name term",
    ),
    "callback_failed": _error(
        "a callback of the application failed: on_gain, on_loss, on_lost, on_drain or on_failure",
        "name error",
    ),
    "lease_remade": _error(
        "a leader or fence row was deleted by hand and was created again", "name"
    ),
    "renew_failed": _warning(
        "a renewal or a takeover got no answer; reported the first, second, fourth, eighth, … "
        "time in a row",
        "error times",
        stored=False,
    ),
    "renew_works": _info("renewals get answers again; times: how many got none", "times seconds"),
    # locks
    "lock_lost": _warning("a lock was lost", "name scope why term"),
    # jobs
    "job_failed": _warning("an attempt failed", "job task attempt error"),
    "job_discarded": _error(
        "a job failed its last attempt, or its handler discarded it", "job task error"
    ),
    "job_lost": _warning("a job was taken from this node while it ran", "job task why"),
    "job_overdue": _warning(
        "a job runs longer than its timeout, or for more than an hour if it has none",
        "job task seconds",
    ),
    "job_requeued": _warning(
        "a job ran longer than its requeue_after and was taken from its live node",
        "job task seconds",
    ),
    "job_rescued": _warning("a job of a dead node was freed to run elsewhere", "job dead"),
    "job_quarantined": _error(
        "a job was running when its worker died, max_crashes times", "job dead"
    ),
    "loop_stopped": _error(
        "a handler stopped the worker's event loop; the worker continues", "error"
    ),
    "process_not_started": _error(
        "the worker cannot start child processes or threads; it gives back jobs that need one",
        "error",
    ),
    "job_throttled": _warning(
        "a handler was throttled, and no job of this key starts for so many seconds",
        "job task key seconds",
    ),
    "job_unreadable": _error(
        "a job is held back because its arguments cannot be read", "job task error"
    ),
    "job_unknown": _warning(
        "this node has no handler for a task or its version, and leaves its jobs to others",
        "job task",
    ),
    "ack_refused": _warning("an outcome under an old token was refused", "job task token outcome"),
    "claim_unknown": _warning("a claim got no answer, and its jobs were given back", "given_back"),
    # schedules
    "schedules_synced": _info(
        "the schedules in the database were changed to match the code", "kept dropped release app"
    ),
    "tick_missed": _warning(
        "due moments were not fired; stopped: how many seconds ago the first one was, if the "
        "leading process started after it; paused: whether the schedule was paused then",
        "schedule first last stopped paused",
    ),
    "schedule_undecidable": _error(
        "a schedule's moments cannot be computed, or its job is refused; others continue",
        "schedule error",
    ),
    "clock_stepped": _warning("a schedule's last tick is ahead of the database's clock", "ahead"),
    "clock_jumped": _warning("the database's clock jumped forward or back", "by"),
    # deadlines; the transaction that decides a deadline also writes its event's row
    "deadline_breached": _error(
        "a deadline was missed; its callback was enqueued",
        "deadline name job due late callback callback_job",
        stored=False,
    ),
    "deadline_late": _warning(
        "a deadline was met late, before a sweep saw it, so no callback was enqueued",
        "deadline name job due late",
        stored=False,
    ),
    # people
    "person_acted": _info(
        "a person acted: in the dashboard, the command or the API", "who via act on count reason"
    ),
    "login_refused": _warning("a login to the dashboard was refused", "came_from"),
    # leasework itself
    "service_failed": _error(
        "an internal service raised an error and tries again", "service error"
    ),
    "database_lost": _warning("the database does not answer", "service error"),
    "database_back": _info("the database answers again", "service seconds"),
    "listen_lost": _warning("notifications do not arrive, so the node polls", "why"),
    "note_refused": _warning(
        "a notification on leasework's channel is not from leasework", "note error", stored=False
    ),
    "listen_works": _info("notifications arrive", stored=False),
}


class Event(Struct, frozen=True):
    kind: str
    fields: dict[str, Any]
    boot_at: float
    """Seconds of CLOCK_BOOTTIME, which give its age when it is stored."""

    @property
    def level(self) -> str:
        return CATALOGUE[self.kind].level

    @property
    def stored(self) -> bool:
        return CATALOGUE[self.kind].stored


Emit = Callable[..., None]
"""``emit("kind", field=value, …)``, with the fields of the catalogue."""


class Repeats:
    """Tells when to report an error that repeats: at once, and then once a minute."""

    def __init__(self, now: Callable[[], float]) -> None:
        """``now`` returns seconds, like ``Env.boot_now``."""
        self._now = now
        self._last = ""
        self._again_at = 0.0

    def due(self, error: str) -> bool:
        if error == self._last and self._now() < self._again_at:
            return False
        self._last, self._again_at = error, self._now() + Tuning.repeat_seconds
        return True


def make_event(kind: str, fields: dict[str, Any], boot_at: float) -> Event:
    """Make an event. Raises ConfigError for a name or a field that is not in the catalogue."""
    known = CATALOGUE.get(kind)
    if known is None:
        raise ConfigError(f"unknown event {kind!r}", do=suggest(kind, CATALOGUE))
    for name in fields:
        if name not in known.fields:
            raise ConfigError(f"event {kind} has no field {name!r}", do=suggest(name, known.fields))
    return Event(kind, {name: _plain(value) for name, value in fields.items()}, boot_at)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (int, float, bool)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, datetime) and value.tzinfo:
        value = value.astimezone(UTC)  # the session that read it may have another zone
    text = value if isinstance(value, str) else str(value)
    text = without_secrets(text[: 2 * Limits.error_chars])
    return shorten(storable(text), Limits.error_chars)


def log(event: Event, worker_id: str) -> None:
    """Log one line: ``kind worker=… field=value …``. The record also has the values. It never
    raises, because filters and handlers are the user's and callers must continue."""
    level = logging.getLevelName(event.level.upper())
    if not logger.isEnabledFor(level):
        return
    try:
        logger.log(
            level,
            "%s worker=%s%s",
            event.kind,
            worker_id,
            "".join(f" {name}={_word(value)}" for name, value in event.fields.items()),
            # a copy, because a filter may change it before the row is written
            extra={"event": event.kind, "worker_id": worker_id, "fields": dict(event.fields)},
        )
    except Exception as error:
        if logging.raiseExceptions:  # as logging reports a failed handler
            with suppress(Exception):  # there may be no stderr
                why = told(error)
                sys.stderr.write(f"leasework: the log line of {event.kind} failed: {why}\n")


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    first, _, more = text.partition("\n")  # the table has the whole traceback
    text = f"{first} …" if more else first
    plain = text.isprintable() and not any(sign in text for sign in ' "=')
    if text and (plain or not isinstance(value, str)):
        return text
    # unprintable characters could end the line or control the terminal
    return json.dumps(text, ensure_ascii=not text.isprintable())


class JsonFormatter(logging.Formatter):
    """Formats one JSON object per line: time (UTC), level, logger, message. An event adds its name,
    the worker and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        for name in ("event", "worker_id"):
            if hasattr(record, name):
                line[name] = getattr(record, name)
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)
