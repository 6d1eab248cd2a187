"""Checks of leasework's own services, and of the database."""

from __future__ import annotations

from collections.abc import Iterator

from leasework import errors
from leasework.config import (
    BLOCKED_SECONDS,
    DEAF_SECONDS,
    FULL_SHARE,
    HIDDEN_TRANSACTIONS,
    MOST_REFUSED,
    SLOT_TRANSACTIONS,
)
from leasework.errors import shorten
from leasework.model.moments import duration
from leasework.store.rows import EventView
from leasework.watch.checks.registry import CHECKS, Check, Said, check, lately, listed, since
from leasework.watch.facts import Facts
from leasework.watch.finding import quoted

_ALL = (
    "service_failed", "renewal_late", "node_silent", "node_died", "crash_loop", "no_leader",
    "leader_silent", "no_live_node", "schedule_silent", "tick_missed", "queue_overdue",
    "job_hangs", "task_slow", "suspended_overdue", "jobs_stranded", "lock_lost", "wakeups_lost",
    "cannot_start", "deadline_breached", "database_away", "database_refuses", "error",
)  # fmt: skip
"""What a database that does not serve explains."""


@check(
    f"A session has blocked leasework's for more than {BLOCKED_SECONDS:g} seconds, or has held a "
    "strong lock on one of its tables for as long.",
    "If it should not: select pg_terminate_backend({pid})",
    page="database", shared=True, alert="critical", explains=_ALL,
)  # fmt: skip
def _lock_wait(facts: Facts) -> Iterator[str | Said]:
    for row in facts.blockers:
        blocks = row.table or row.waiting  # a statement that waits may give up and come again
        seconds = max(row.seconds, (row.open_seconds or 0.0) if blocks else 0.0)
        if seconds > BLOCKED_SECONDS:
            named = ": ".join(filter(None, (f"{row.role} {row.application}".strip(), row.state)))
            holds = f"has locked the table {row.table}" if row.table else "holds a lock"
            waits = f", and {row.waiting} of leasework's sessions wait" if row.waiting else ""
            yield Said(
                f"The session {row.pid} ({shorten(named)}) {holds}{waits}, for "
                f"{duration(seconds)}. Its last statement: {shorten(row.query)}",
                {"pid": row.pid},
                subject=f"session:{row.pid}",
                seconds=seconds,
            )


@check(
    "The database refuses what nodes ask, because it lacks disk, memory or connections.",
    "Free or add what it lacks. The server's log says more",
    page="database", alert="critical", explains=_ALL,
)  # fmt: skip
def _server_short(facts: Facts) -> Iterator[str | Said]:
    told = [str(said) for node in facts.live_nodes if (said := (node.info or {}).get("refused"))]
    for text in sorted(set(told)):
        nodes = "1 node" if told.count(text) == 1 else f"{told.count(text)} nodes"
        yield f"The database refused what {nodes} asked within the last minute: {shorten(text)}"


@check(
    "The server, the role or the database has few connections left.",
    "Raise the limit, close connections, or put a pooler in front",
    page="database", shared=True, explains=_ALL,
)  # fmt: skip
def _connections(facts: Facts) -> Iterator[str | Said]:
    for row in facts.connections:
        if 0 < row.most * FULL_SHARE <= row.used:
            who = f"the {row.of}" + (f" {row.name!r}" if row.name else "")
            of = f"{row.of} {quoted(row.name)} connection limit"
            change = "system set max_connections =" if row.of == "server" else of
            yield Said(
                f"{row.used} connections of {who} are in use, and it allows {row.most}",
                do=f"In psql: alter {change} {row.most * 2}"
                + ("; then restart the server" if row.of == "server" else "")
                + ". Or put a pooler in front",
                subject=f"{row.of}:{row.name}",
            )


@check(
    "A service of leasework failed within the last ten minutes.",
    "leasework events --kind service_failed",
    page="events?kind=service_failed",
)  # fmt: skip
def _service_failed(facts: Facts) -> Iterator[str | Said]:
    by_place: dict[tuple[str, str], EventView] = {}
    for service, events in lately(facts, "service_failed", "service"):
        by_place |= {(service, str(event.worker_id)): event for event in events}
    for (service, worker), event in by_place.items():
        error = shorten(str((event.fields or {}).get("error")))
        yield Said(
            f"The {service} of {worker} failed {since(facts, event)} ago: {error}",
            subject=f"node:{worker}",
            seconds=facts.ago(event.at),
        )


@check(
    "A node gets no wake-ups and polls instead: LISTEN does not work.",
    "leasework events --kind listen_lost says why. If you want polling, set LEASEWORK_LISTEN=0",
    page="nodes", alert="info", alert_after="1m",
)  # fmt: skip
def _wakeups_lost(facts: Facts) -> Iterator[str | Said]:
    for node in facts.live_nodes:
        seconds = (node.info or {}).get("deaf_seconds")
        if isinstance(seconds, (int, float)) and seconds > DEAF_SECONDS:
            yield Said(
                f"Node {node.worker_id} gets no wake-ups and polls instead: LISTEN does not work",
                subject=f"node:{node.worker_id}",
                seconds=seconds,
            )


@check(
    "A node cannot start the processes or threads that its handlers run in.",
    "Its jobs return to the queue and wait. Raise the limits of the node (ulimit -n, ulimit -u, "
    "memory), or give it fewer slots",
    page="nodes",
)  # fmt: skip
def _cannot_start(facts: Facts) -> Iterator[str | Said]:
    for node in facts.live_nodes:
        error = (node.info or {}).get("cannot_start")
        if error:
            yield Said(
                f"Node {node.worker_id} cannot start the processes or threads that its "
                f"handlers run in: {shorten(str(error))}",
                subject=f"node:{node.worker_id}",
            )


@check(
    "A transaction has been open for longer than pin_seconds (300 by default), or a replication "
    "slot that nobody uses is old: vacuum cannot remove dead rows, and tables grow. A standby, or "
    "a session that this login may not see, counts once its snapshot is "
    f"{HIDDEN_TRANSACTIONS:,} transactions old.",
    "End the transaction, or drop the replication slot",
    page="database", shared=True,
)  # fmt: skip
def _xmin_pinned(facts: Facts) -> Iterator[str | Said]:
    grow = ": vacuum cannot remove dead rows, and tables grow"
    opened = [row for row in facts.transactions if (row.open_seconds or 0.0) > facts.pin_seconds]
    if opened:
        row = max(opened, key=lambda row: row.open_seconds or 0.0)
        named = " ".join(name for name in (row.role, row.application) if name)
        end = f"End it: select pg_terminate_backend({row.pid})"
        yield Said(
            f"A {row.what} ({row.pid}: {shorten(named)}, {row.state}) has been open for "
            f"{duration(row.open_seconds or 0.0)}{grow}",
            do=end if row.what == "transaction" else f"rollback prepared '{row.pid}'",
            seconds=row.open_seconds,
        )
    for row in facts.transactions:
        old = f"{row.xmin_age:,} transactions old{grow}"
        unused = row.what == "replication slot" and row.state == "inactive"
        if unused and row.xmin_age > SLOT_TRANSACTIONS:
            yield Said(
                f"The replication slot {row.pid} is not in use and {old}",
                do=f"If nobody needs it: select pg_drop_replication_slot('{row.pid}')",
            )
        if row.open_seconds is not None or row.xmin_age <= HIDDEN_TRANSACTIONS:
            continue
        if row.what == "transaction":
            yield Said(
                f"The snapshot of a session of {row.role} ({row.pid}) is {old}",
                do="This login may not see the session. As a superuser: "
                f"select pg_terminate_backend({row.pid})",
            )
        elif row.what == "standby":
            yield Said(
                f"The snapshot of a query on a standby ({row.application or row.pid}) is {old}",
                do="End the long query or transaction there",
            )


@check(
    "The database's clock was moved within the last ten minutes.",
    "Leases do not depend on it; schedules and deadlines follow it. Check the server's time "
    "synchronisation",
    page="events?kind=clock_jumped", shared=True,
    explains=("tick_missed", "schedule_silent", "schedule_ahead", "deadline_breached"),
)  # fmt: skip
def _clock_jumped(facts: Facts) -> Iterator[str | Said]:
    for _, events in lately(facts, "clock_jumped", ""):
        by = events[-1].fields.get("by")
        seconds = float(by) if isinstance(by, (int, float)) else 0.0
        way = "forward" if seconds > 0 else "back"
        yield (
            f"The database's clock was moved {way} by {duration(abs(seconds))} "
            f"({since(facts, events[-1])} ago)"
        )


@check(
    f"The dashboard refused {MOST_REFUSED} logins or more within the last ten minutes.",
    "Somebody may be guessing tokens. leasework events --kind login_refused says from where",
    page="events?kind=login_refused", shared=True,
)  # fmt: skip
def _logins_refused(facts: Facts) -> Iterator[str | Said]:
    places = {came: len(events) for came, events in lately(facts, "login_refused", "came_from")}
    if (refused := sum(places.values())) >= MOST_REFUSED:
        most = sorted(places, key=lambda came: -places[came])
        yield f"The dashboard refused {refused} logins lately, from {listed(most)}"


@check(
    "Live nodes run different versions of leasework.",
    "Normal during a deployment; otherwise upgrade all nodes to the same version (leasework nodes)",
    page="nodes", alert="info", alert_after="1h",
)  # fmt: skip
def _versions_differ(facts: Facts) -> Iterator[str | Said]:
    versions = sorted({node.version for node in facts.live_nodes})
    if len(versions) > 1:
        yield f"Live nodes run different versions of leasework: {', '.join(versions)}"


_LOG = "Look at the server's log"


def _error(kind: str, error: type[errors.LeaseworkError], meaning: str, hint: str = _LOG) -> None:
    CHECKS[kind] = Check(kind, meaning, hint, error=error, alert="critical")


# the first class that matches is taken, so a class comes before its base
_error(
    "schema_missing",
    errors.SchemaMissing,
    "The database has no leasework schema, or its tables without a record of migrations.",
    "Run: leasework schema apply",
)
_error(
    "schema_behind",
    errors.SchemaTooOld,
    "The schema lacks migrations that this version needs.",
    "Run: leasework schema apply",
)
_error(
    "schema_ahead",
    errors.SchemaTooNew,
    "A newer version migrated the schema, and this one cannot work with it.",
    "Run the newer version",
)
_error(
    "database_read_only",
    errors.ReadOnlyServer,
    "The server is a replica, or read-only.",
    "Give the primary's address, or add target_session_attrs=read-write to the DSN",
)
_error("database_refuses", errors.ServerError, "The database was reached but refuses to serve.")
_error(
    "database_away",
    errors.Unavailable,
    "The database cannot be reached or does not answer in time.",
)
_error("error", errors.LeaseworkError, "The check itself failed.")
