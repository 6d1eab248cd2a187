"""The columns of each table."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from leasework.cli.fitting import Column
from leasework.errors import error_line
from leasework.model.moments import duration, sparkline

Row = dict[str, Any]
LINE_CHARS = 120


def as_row(record: Any) -> Row:
    """A record from the client as a row, with secrets masked."""
    from leasework.model.masking import masked_row  # imported late: --help must be quick

    return masked_row(record)


def _key(name: str) -> Callable[[Row], Any]:
    return lambda row: row[name]


def _error(name: str) -> Callable[[Row], Any]:
    return lambda row: error_line(row[name], LINE_CHARS) if row[name] else None


def seconds(name: str, after: str = "") -> Callable[[Row], Any]:
    """A length of time, or None if it is unknown. A clock that went back makes it 0."""
    return lambda row: None if row[name] is None else duration(max(0.0, row[name])) + after


def _line(value: Any) -> str | None:
    from leasework.model.masking import masked  # imported late: --help must be quick

    return None if value is None else json.dumps(masked(value), default=str)[:LINE_CHARS]


def _attempt(row: Row) -> str:
    return f"{row['attempt']}/{row['max_attempts'] + row['crashes']}"


def _scheduled_for(row: Row) -> datetime | None:
    """Not of a job that waits for others or for a signal: that may be a hundred years."""
    time: datetime = row["scheduled_for"]
    return None if row.get("held_because") in {"event", "gather"} else time


def _queues(row: Row) -> str | None:
    return ", ".join(f"{queue}={slots}" for queue, slots in sorted(row["queues"].items())) or None


def _leads(row: Row) -> str | None:
    leads = (row["info"] or {}).get("leads") or {}
    return ", ".join(f"{name} (term {term})" for name, term in sorted(leads.items())) or None


def _lock_name(row: Row) -> str:
    """The lock's name, or its numbers if it has none."""
    return str(row["name"] if row["name"] is not None else row["lock_key"])


def _lock_mode(row: Row) -> str:
    kind = {"ExclusiveLock": "exclusive", "ShareLock": "shared"}.get(row["mode"], str(row["mode"]))
    if row["token"] is not None:
        return f"{kind}, {'term' if kind == 'leader' else 'token'} {row['token']}"
    return kind if row["granted"] else f"waits ({kind})"


def _schedule_release(row: Row) -> str:
    """A schedule that was put has a unique text instead of a release, which only a form needs."""
    return "(put)" if str(row["release"]).startswith("put ") else str(row["release"])


def _tick_outcome(row: Row) -> str:
    return f"{row['outcome']} (by hand)" if row["state"] == "manual" else str(row["outcome"])


def fields(row: Row) -> str:
    """An event's ``name=value …``; a traceback is cut to what was raised."""
    return " ".join(f"{name}={_word(value)}" for name, value in (row["fields"] or {}).items())


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(str(item) for item in value) or "-"
    words = error_line(value, LINE_CHARS) if isinstance(value, str) else json.dumps(value)
    return json.dumps(words, ensure_ascii=False) if " " in words or not words else words


def _more(name: str, more: str) -> Callable[[Row], Any]:
    return lambda row: f"{row[name]}{'+' if row[more] else ''}"


def still_failed(row: Row) -> str:
    """How many jobs still wait to be retried or failed for good, among those looked at."""
    every = row["looked"] >= row["attempts"]
    return f"{row['open']:,}" + ("" if every else f" of {row['looked']:,}")


_JOB_ID = 18
"""Characters of a job's id: its time of creation, and its number within that millisecond."""
_WORKER = 20


def _took(row: Row) -> str | None:
    began, ended = row["started_at"], row["completed_at"]
    return duration(max(0.0, (ended - began).total_seconds())) if began and ended else None


JOBS: list[Column] = [
    Column("id", _key("id"), short=_JOB_ID),
    Column("task", _key("task_name"), cut=16),
    Column("queue", _key("queue"), rank=2, cut=10),
    Column("state", _key("state")),
    Column("attempt", _attempt, rank=3),
    Column("scheduled for", _scheduled_for, rank=4),
    Column("took", _took, rank=6),
    Column("worker", _key("worker_id"), rank=5, short=_WORKER),
    Column("last error", _error("last_error"), rank=1, cut=16),
]
FAILURES: list[Column] = [
    Column("fingerprint", _key("fingerprint")),
    Column("error", _key("pattern"), cut=24),
    Column("attempts", _more("attempts", "more")),
    Column("jobs", _more("jobs", "more_jobs"), rank=1),
    Column("still failed", still_failed, rank=2),
    Column("trend", lambda row: sparkline(row["trend"]), rank=5),
    Column("newest", _key("newest_at"), rank=3),
    Column("newest job", _key("newest_job"), rank=7, short=_JOB_ID),
    Column("first", _key("first_at"), rank=6),
    Column("tasks", lambda row: ", ".join(row["tasks"]) or None, rank=4, cut=16),
]
ATTEMPTS: list[Column] = [
    Column("attempt", _key("attempt")),
    Column("started", _key("started_at"), rank=2),
    Column("ended", _key("ended_at"), rank=3),
    Column("outcome", _key("outcome")),
    Column("worker", _key("worker_id"), rank=4, short=_WORKER),
    Column("error", _error("error"), rank=1, cut=24),
]
STEPS: list[Column] = [
    Column("step", _key("name"), cut=24),
    Column("kind", _key("kind"), rank=3),
    Column("recorded", lambda row: None if row["open"] else row["at"], rank=4),
    Column("waits since", lambda row: row["at"] if row["open"] else None, rank=1),
    Column("until", _key("until"), rank=5),
    Column("took", seconds("seconds"), rank=2),
    Column("result", lambda row: _line(row["result"]), rank=6, cut=24),
]
FAMILY: list[Column] = [
    Column("job", lambda row: "  " * (row["depth"] - 1) + str(row["id"])),
    Column("task", _key("task"), rank=1, cut=24),
    Column("state", _key("state")),
    Column("started", _key("started_at"), rank=3),
    Column("ended", _key("completed_at"), rank=2),
]
SCHEDULES: list[Column] = [
    Column("app", _key("app"), rank=6, cut=10),
    Column("name", _key("name"), cut=16),
    Column("when", _key("described"), rank=1, cut=20),
    Column("missed", _key("missed"), rank=7),
    Column("paused", _key("paused"), rank=3),
    Column("next", _key("next_at"), rank=2),
    Column("last", _key("last_fire_at"), rank=5),
    Column("last outcome", _key("last_state"), rank=4),
    Column("release", _schedule_release, rank=8, cut=10),
]
TICKS: list[Column] = [
    Column("app", _key("app"), rank=4, cut=10),
    Column("schedule", _key("schedule"), cut=12),
    Column("due", _key("fire_at")),
    Column("outcome", _tick_outcome),
    Column("took", seconds("ran_seconds"), rank=2),
    Column("late", seconds("lateness_seconds"), rank=2),
    Column("term", _key("term"), rank=3),
    Column("job", _key("job_id"), rank=1, short=_JOB_ID),
]
LEADERS: list[Column] = [
    Column("name", _key("name"), cut=12),
    Column("holder", _key("holder"), short=_WORKER),
    Column("term", _key("term")),
    Column("renewed", seconds("age_seconds", " ago"), rank=1),
    Column("lease s", _key("lease_seconds"), rank=3),
    Column("since", _key("acquired_at"), rank=2),
]
TERMS: list[Column] = [
    Column("name", _key("name"), cut=12),
    Column("term", _key("term")),
    Column("holder", _key("holder"), rank=3, short=_WORKER),
    Column("from", _key("acquired_at")),
    Column("to", _key("ended_at"), rank=4),
    Column("lasted", seconds("seconds"), rank=2),
    Column("ended", _key("ended"), rank=1, cut=16),
]
LOCKS: list[Column] = [
    Column("name", _lock_name, cut=12),
    Column("kind", _key("locktype"), rank=5, cut=8),
    Column("mode", _lock_mode),
    Column("holder", _key("client"), cut=14),
    Column("server pid", _key("pid"), rank=4),
    Column("since", lambda row: row["since"] if row["granted"] else row["waitstart"], rank=1),
    Column("connection", _key("state"), rank=3, cut=10),
    Column("job", _key("job_id"), rank=2, short=_JOB_ID),
    Column("query", _error("query"), rank=6, cut=20),
]
NODES: list[Column] = [
    Column("worker", _key("worker_id"), short=_WORKER),
    Column("app", _key("app"), rank=4, cut=10),
    Column("release", _key("release"), rank=7, cut=8),
    Column("version", _key("version"), rank=8),
    Column("queues", _queues, rank=2, cut=16),
    Column("running", lambda row: (row["info"] or {}).get("running"), rank=1),
    Column("halted", _key("halted"), rank=5),
    Column("leads", _leads, rank=3, cut=12),
    Column("renewed", seconds("age_seconds", " ago")),
    Column("started", _key("started_at"), rank=6),
]
EVENTS: list[Column] = [
    Column("at", _key("at")),
    Column("level", _key("level"), rank=2),
    Column("event", _key("kind")),
    Column("worker", _key("worker_id"), rank=3, short=_WORKER),
    Column("fields", fields, rank=1, cut=24),
]
