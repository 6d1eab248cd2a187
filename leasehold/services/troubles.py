"""What went wrong lately, and around the processes; health.py has the rest."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from leasehold.config import LATE_RENEWAL_SHARE
from leasehold.errors import shorten
from leasehold.ports import Rows
from leasehold.services.problem import Facts, Problem, duration

LATELY = (
    "service_failed",
    "lock_lost",
    "tick_missed",
    "deadline_breached",
    "clock_jumped",
    "job_unreadable",
)
"""Events that are a problem for a while."""
LATELY_SECONDS = 600.0
"""... for so long."""
DEAF_SECONDS = 6.0
"""A node that gets no wake-ups for longer does not merely start."""
_HANDOVER = timedelta(seconds=1.0)
"""What a node says of itself is as old as the statement that brought it."""


def troubles(mine: Facts, facts: Facts) -> Iterator[Problem]:
    """``mine``: of the applications that were asked for; ``facts``: what all share."""
    yield from _renewals(mine)
    yield from _claimants(mine)
    yield from _lately(facts, "lock_lost", _lock_lost)
    yield from _lately(mine, "tick_missed", _tick_missed)
    yield from _lately(facts, "deadline_breached", _breached)
    yield from _lately(mine, "job_unreadable", _unreadable)
    yield from _lately(facts, "clock_jumped", _clock_jumped)
    yield from _deaf(mine)
    yield from _cannot_start(mine)
    yield from _pinned(facts)


def claimants(facts: Facts) -> dict[str, Rows]:
    """By leader: the live nodes that say that they lead it. What a node said before the present
    term began does not count: it may have given it up since."""
    found: dict[str, Rows] = {}
    for leader in facts.leaders:
        since = leader.get("acquired_at")
        for node in facts.live_nodes:
            led = (node["info"] or {}).get("leads")
            term = led.get(leader["name"]) if isinstance(led, dict) else None
            if term is None:
                continue
            old = term != leader["term"] and since and node["heartbeat"] <= since + _HANDOVER
            if not old and not (term == leader["term"] and leader["node"] is None):
                found.setdefault(leader["name"], []).append(node)
    return found


def _renewals(facts: Facts) -> Iterator[Problem]:
    for node in facts.live_nodes:
        age, lease = node["age_seconds"], node["lease_seconds"]
        if age > LATE_RENEWAL_SHARE * lease:
            yield Problem(
                "renewal_late",
                f"Node {node['worker_id']} does not renew its lease: it should each "
                f"{duration(lease / 5)}, and did {duration(age)} ago",
                "Its process hangs or is stopped, or the database does not answer it: see its "
                "log for renew_failed. It stops its work by itself before its lease is over",
            )


def _claimants(facts: Facts) -> Iterator[Problem]:
    for name, nodes in claimants(facts).items():
        if len(nodes) > 1:
            who = ", ".join(sorted(str(node["worker_id"]) for node in nodes))
            yield Problem(
                "two_claimants",
                f"{len(nodes)} processes believe that they lead {name!r}: {who}",
                "The fence lets one of them write. See leasehold leaders, and the clocks of "
                "their machines",
            )


def _lately(facts: Facts, kind: str, tell: Any) -> Iterator[Problem]:
    """One problem for each subject, from its newest event."""
    since = facts.now - timedelta(seconds=LATELY_SECONDS)
    by_subject: dict[str, Rows] = {}
    for event in sorted(facts.events, key=lambda event: int(event["id"])):
        if event["kind"] == kind and event["at"] > since:
            fields = event["fields"] or {}
            subject = str(fields.get("schedule") or fields.get("name") or "")
            by_subject.setdefault(subject, []).append(event)
    for subject, events in sorted(by_subject.items()):
        newest = events[-1]
        ago = duration(max(0.0, (facts.now - newest["at"]).total_seconds()))
        sentence, do = tell(subject, newest, len(events))
        yield Problem(kind, f"{sentence} ({ago} ago)", do)


def _lock_lost(name: str, event: dict[str, Any], count: int) -> tuple[str, str]:
    fields = event["fields"]
    return (
        f"{event['worker_id']} lost the lock {shorten(name)!r}: {shorten(str(fields.get('why')))}",
        "Its code was told by lost and LostLock; see who has it now: leasehold locks",
    )


def _tick_missed(name: str, event: dict[str, Any], count: int) -> tuple[str, str]:
    first, last = event["fields"].get("first"), event["fields"].get("last")
    when = f"of {first}" if first == last else f"from {first} to {last}"
    return (
        f"Schedule {shorten(name)!r} missed its moments {when}",
        f"Run it now, if it should have run: leasehold schedules ticks {shorten(name)} shows them",
    )


def _breached(name: str, event: dict[str, Any], count: int) -> tuple[str, str]:
    fields = event["fields"]
    more = f", and {count - 1} before it" if count > 1 else ""
    return (
        f"The deadline {shorten(name)!r} was missed: due {fields.get('due')}{more}",
        f"Its callback {fields.get('callback')!r} was told. leasehold deadlines --state breached",
    )


def _unreadable(_: str, event: dict[str, Any], count: int) -> tuple[str, str]:
    job, task, error = (event["fields"].get(name) for name in ("job", "task", "error"))
    return (
        f"Job {job} of task {task!r} is held back: {error}",
        "It is tried again every five minutes. If no worker will ever read it: "
        f"leasehold jobs cancel {job}",
    )


def _clock_jumped(_: str, event: dict[str, Any], count: int) -> tuple[str, str]:
    by = event["fields"].get("by")
    seconds = float(by) if isinstance(by, (int, float)) else 0.0
    way = "forward" if seconds > 0 else "back"
    return (
        f"The database's clock was set {way} by {duration(abs(seconds))}",
        "Leases do not depend on it; schedules and deadlines follow it. See the server's NTP",
    )


def _deaf(facts: Facts) -> Iterator[Problem]:
    for node in facts.live_nodes:
        seconds = (node["info"] or {}).get("deaf_seconds")
        if isinstance(seconds, (int, float)) and seconds > DEAF_SECONDS:
            yield Problem(
                "wakeups_lost",
                f"Node {node['worker_id']} gets no wake-ups and polls instead: a pooler stands "
                "in front of the database, or LISTEN does not work",
                "Give it a direct connection; or, if polling is what you want, LEASEHOLD_LISTEN=0. "
                "leasehold events --kind listen_lost says why",
            )


def _cannot_start(facts: Facts) -> Iterator[Problem]:
    for node in facts.live_nodes:
        error = (node["info"] or {}).get("cannot_start")
        if error:
            yield Problem(
                "cannot_start",
                f"Node {node['worker_id']} cannot start the processes or threads that its "
                f"handlers run in: {shorten(str(error))}",
                "Its jobs go back and wait. Raise its limits (ulimit -n, ulimit -u, memory), or "
                "give it fewer slots",
            )


def _pinned(facts: Facts) -> Iterator[Problem]:
    old = [row for row in facts.pins if (row["seconds"] or 0.0) > facts.pin_seconds]
    if old:
        row = old[0]
        named = " ".join(str(row[key]) for key in ("role", "application") if row[key])
        prepared = row["what"] != "transaction"
        yield Problem(
            "xmin_pinned",
            f"A {row['what']} ({row['pid']}: {shorten(named)}, {row['state']}) is open for "
            f"{duration(row['seconds'])}: no dead row is removed, and claims grow slower",
            f"rollback prepared '{row['pid']}'"
            if prepared
            else f"End it: select pg_terminate_backend({row['pid']})",
        )
