"""What each table shows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from leasehold.cli.output import Column
from leasehold.errors import shorten

Row = dict[str, Any]
LINE_CHARS = 120


def as_row(record: Any) -> Row:
    """A record of the client's, as a row."""
    return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}


def _key(name: str) -> Callable[[Row], Any]:
    return lambda row: row[name]


def _first_line(name: str) -> Callable[[Row], Any]:
    return lambda row: first_line(row[name]) if row[name] else None


def _ago(name: str) -> Callable[[Row], Any]:
    def show(row: Row) -> str | None:
        from leasehold.services.health import duration

        return None if row[name] is None else f"{duration(max(0.0, row[name]))} ago"

    return show


def _attempt(row: Row) -> str:
    return f"{row['attempt']}/{row['max_attempts']}"


def _queues(row: Row) -> str | None:
    return ", ".join(f"{queue}={slots}" for queue, slots in sorted(row["queues"].items())) or None


def _info(name: str) -> Callable[[Row], Any]:
    return lambda row: (row["info"] or {}).get(name)


def _leads(row: Row) -> str | None:
    leads = (row["info"] or {}).get("leads") or {}
    return ", ".join(f"{name} (term {term})" for name, term in sorted(leads.items())) or None


def _lock_name(row: Row) -> str:
    """As it was named, or else by its numbers."""
    return str(row["name"] if row["name"] is not None else row["lock_key"])


def _lock_mode(row: Row) -> str:
    kind = {"ExclusiveLock": "exclusive", "ShareLock": "shared"}.get(row["mode"], str(row["mode"]))
    if row["token"] is not None:
        return f"{kind}, term {row['token']}"
    return kind if row["granted"] else f"waits ({kind})"


def _lateness(row: Row) -> str | None:
    from leasehold.services.health import duration

    late = row["lateness_seconds"]
    return None if late is None else duration(max(0.0, late))


def fields(row: Row) -> str:
    """``name=value …`` of an event; of a traceback only what was raised."""
    return " ".join(f"{name}={_word(value)}" for name, value in (row["fields"] or {}).items())


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(str(item) for item in value) or "-"
    words = first_line(value) if isinstance(value, str) else json.dumps(value)
    return json.dumps(words, ensure_ascii=False) if " " in words or not words else words


def first_line(words: str) -> str:
    return shorten(words.strip().partition("\n")[0], LINE_CHARS)


JOBS: list[Column] = [
    ("id", _key("id")),
    ("task", _key("task_name")),
    ("queue", _key("queue")),
    ("state", _key("state")),
    ("attempt", _attempt),
    ("scheduled for", _key("scheduled_for")),
    ("worker", _key("worker_id")),
    ("last error", _first_line("last_error")),
]
ATTEMPTS: list[Column] = [
    ("attempt", _key("attempt")),
    ("started", _key("started_at")),
    ("ended", _key("ended_at")),
    ("outcome", _key("outcome")),
    ("worker", _key("worker_id")),
    ("error", _first_line("error")),
]
SCHEDULES: list[Column] = [
    ("app", _key("app")),
    ("name", _key("name")),
    ("when", _key("described")),
    ("missed", _key("missed")),
    ("paused", _key("paused")),
    ("next", _key("next_at")),
    ("last", _key("last_fire_at")),
    ("was", _key("last_state")),
    ("release", _key("release")),
]
TICKS: list[Column] = [
    ("app", _key("app")),
    ("schedule", _key("schedule")),
    ("due", _key("fire_at")),
    ("state", _key("state")),
    ("late", _lateness),
    ("term", _key("term")),
    ("job", _key("job_id")),
]
LEADERS: list[Column] = [
    ("name", _key("name")),
    ("holder", _key("holder")),
    ("term", _key("term")),
    ("renewed", _ago("age_seconds")),
    ("lease s", _key("lease_seconds")),
    ("since", _key("acquired_at")),
]
TERMS: list[Column] = [
    ("name", _key("name")),
    ("term", _key("term")),
    ("holder", _key("holder")),
    ("since", _key("acquired_at")),
]
LOCKS: list[Column] = [
    ("name", _lock_name),
    ("kind", _key("locktype")),
    ("mode", _lock_mode),
    ("holder", _key("client")),
    ("server pid", _key("pid")),
    ("since", lambda row: row["since"] if row["granted"] else row["waitstart"]),
    ("connection", _key("state")),
    ("job", _key("job_id")),
    ("query", _first_line("query")),
]
NODES: list[Column] = [
    ("worker", _key("worker_id")),
    ("app", _key("app")),
    ("release", _key("release")),
    ("version", _key("version")),
    ("queues", _queues),
    ("running", _info("running")),
    ("halted", _key("halted")),
    ("leads", _leads),
    ("renewed", _ago("age_seconds")),
    ("started", _key("started_at")),
]
EVENTS: list[Column] = [
    ("at", _key("at")),
    ("level", _key("level")),
    ("event", _key("kind")),
    ("worker", _key("worker_id")),
    ("fields", fields),
]
