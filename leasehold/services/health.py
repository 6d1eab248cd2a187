"""What is wrong, in words: one pure function from what the views say to a list of problems.

Ages come from the database's clock and are for people; nothing of the protocol stands on them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from leasehold import errors
from leasehold.ports import Rows
from leasehold.services.problem import Facts as Facts
from leasehold.services.problem import Problem as Problem
from leasehold.services.problem import duration as duration
from leasehold.services.problem import stale
from leasehold.services.troubles import LATELY as LATELY
from leasehold.services.troubles import LATELY_SECONDS as LATELY_SECONDS
from leasehold.services.troubles import troubles

OLDEST_WAIT_SECONDS = 60.0
"""An available job that waits longer is a problem."""
SILENT_SCHEDULE_SECONDS = 10.0
"""A schedule whose moment passed this long ago without a decision is silent."""
COUNT_CAP = 10_000
"""The summary's counts stop here."""


def problems(facts: Facts, apps: Collection[str] = ()) -> list[Problem]:
    """All that is wrong, the worst first; then what is only worth knowing. ``apps``: only of
    these applications; what all share (jobs, queues, breaches) is judged in any case."""
    mine = of_apps(facts, apps) if apps else facts
    found = [
        *_nodes(mine),
        *_leaders(mine),
        *_schedules(mine),
        *_overdue(mine),
        *_breaches(facts),
        *_jobs(facts),
        *_failures(mine),
        *_versions(mine),
        *troubles(mine, facts),
    ]
    return sorted(found, key=lambda problem: problem.info)


def of_apps(facts: Facts, apps: Collection[str]) -> Facts:
    """Nodes, leaders, schedules and failures of these applications alone."""
    nodes = [node for node in facts.nodes if node["app"] in apps]
    ids, workers = {node["id"] for node in nodes}, {node["worker_id"] for node in nodes}
    return replace(
        facts,
        nodes=nodes,
        leaders=[row for row in facts.leaders if row["name"] in apps or row["node"] in ids],
        schedules=[row for row in facts.schedules if row["app"] in apps],
        events=[event for event in facts.events if event["worker_id"] in workers],
    )


KINDS = (
    "no_live_node", "node_silent", "renewal_late", "no_leader", "leader_silent", "two_claimants",
    "schedule_paused", "schedule_silent", "schedule_ahead", "tick_missed", "clock_jumped",
    "job_overdue", "job_quarantined", "jobs_late", "task_unknown", "queue_unworked",
    "deadline_breached", "breach_unhandled", "lock_lost", "service_failed", "wakeups_lost",
    "cannot_start", "job_unreadable",
    "xmin_pinned", "versions_differ", "schema_missing", "schema_behind", "schema_ahead",
    "database_read_only", "database_refuses", "database_away", "error",
)  # fmt: skip
"""Every kind of a problem."""

_DATABASE_KINDS: tuple[tuple[type[errors.LeaseholdError], str], ...] = (
    (errors.SchemaMissing, "schema_missing"),
    (errors.SchemaTooOld, "schema_behind"),
    (errors.SchemaTooNew, "schema_ahead"),
    (errors.ReadOnlyServer, "database_read_only"),
    (errors.ServerError, "database_refuses"),
    (errors.Unavailable, "database_away"),
)


def database_problem(error: errors.LeaseholdError) -> Problem:
    """The one problem there is to tell when the database could not be asked for more."""
    kind = next((kind for base, kind in _DATABASE_KINDS if isinstance(error, base)), "error")
    what = error.what if error.got is ... else f"{error.what}: {errors.shorten(error.got)}"
    return Problem(kind, _sentence(" ".join(what.split())), error.do or "Look at the server's log")


# -- each concern by itself ------------------------------------------------------------------------
def _nodes(facts: Facts) -> Iterator[Problem]:
    if not facts.live_nodes:
        yield Problem(
            "no_live_node",
            "No live node: nothing is scheduled, and no job runs",
            "Start one: leasehold worker MODULE:APP",
        )
    for node in facts.nodes:
        if stale(node):
            yield Problem(
                "node_silent",
                f"Node {node['worker_id']} was last heard of {_age(node)} ago, "
                f"its lease is {node['lease_seconds']:g} s",
                "If its process is gone, the leader frees its jobs; if it stays, look whether "
                "the process is stopped or cut off from the database",
            )


def _leaders(facts: Facts) -> Iterator[Problem]:
    by_name = {leader["name"]: leader for leader in facts.leaders}
    # a node of no application is there for the leaders and locks of its process alone
    for app in sorted({node["app"] for node in facts.live_nodes if node["app"]}):
        leader = by_name.get(app)
        if leader is None or leader["node"] is None:
            yield Problem(
                "no_leader",
                f"Nobody leads {app!r}: its schedules and delayed jobs stand still",
                "A live node takes over within seconds; if none does, look at its log",
            )
    for leader in facts.leaders:
        if leader["node"] is not None and stale(leader):
            yield Problem(
                "leader_silent",
                f"The leader of {leader['name']!r}, {leader['holder'] or leader['node']}, was last "
                f"heard of {_age(leader)} ago, its lease is {leader['lease_seconds']:g} s",
                "A live node takes over within recover_within; if none does, start one",
            )


def _schedules(facts: Facts) -> Iterator[Problem]:
    for schedule in facts.schedules:
        name = f"{schedule['name']!r} of {schedule['app']!r}"
        if schedule["paused"]:
            do = f"When it shall go on: leasehold schedules resume {schedule['name']}"
            yield Problem("schedule_paused", f"Schedule {name} is paused", do, info=True)
            continue
        due, decided = schedule["next_at"], schedule["high_water"]
        if due is not None:
            late = (facts.now - due).total_seconds()
            if late > SILENT_SCHEDULE_SECONDS:
                yield Problem(
                    "schedule_silent",
                    f"Schedule {name} is silent: it was due {duration(late)} ago",
                    "See that a node of this application lives and leads: leasehold leaders",
                )
        if decided is not None and decided - facts.now > timedelta(seconds=SILENT_SCHEDULE_SECONDS):
            ahead = duration((decided - facts.now).total_seconds())
            yield Problem(
                "schedule_ahead",
                f"Schedule {name} is silent: its last tick lies {ahead} ahead of the clock",
                "The database's clock was set back; it goes on when the clock has caught up",
            )


def _overdue(facts: Facts) -> Iterator[Problem]:
    for node in facts.nodes:
        listed = (node["info"] or {}).get("overdue")
        for job in listed if isinstance(listed, list) else []:
            if not isinstance(job, dict):
                continue
            yield Problem(
                "job_overdue",
                f"Job {job.get('id')} ({job.get('task')}) runs longer than its timeout, or than "
                f"an hour without one: {_seconds(job.get('seconds'))} on {node['worker_id']}",
                f"leasehold jobs cancel {job.get('id')}, or give its task requeue_after=…",
            )


def _breaches(facts: Facts) -> Iterator[Problem]:
    by_task: dict[tuple[str, str], Rows] = {}
    for row in facts.unhandled:
        by_task.setdefault((row["task"], row["why"]), []).append(row)
    for (task, why), rows in sorted(by_task.items()):
        first = rows[0]
        named = f"{first['name']!r}" + (f" and {len(rows) - 1} more" if len(rows) > 1 else "")
        ids = ", ".join(str(row["callback_job"]) for row in rows[:3])
        if why == "unknown":
            yield Problem(
                "breach_unhandled",
                f"Nobody is told that a deadline was missed ({named}): "
                f"no live node knows the task {task!r}",
                "Start a worker of the version that has it, on the queue of that task",
            )
        else:
            yield Problem(
                "breach_unhandled",
                f"Nobody was told that a deadline was missed ({named}): its callback {task!r} "
                f"was {why}",
                f"leasehold jobs show {ids}; and to tell again: leasehold jobs retry {ids}",
            )


def _jobs(facts: Facts) -> Iterator[Problem]:
    summary = facts.summary
    if summary.unknown:
        names = ", ".join(summary.unknown_tasks) or "?"
        yield Problem(
            "task_unknown",
            f"{_count(summary.unknown)} held back, no live node knows the task: {names}",
            "Start a worker of the version that has it; the jobs run by themselves then",
        )
    if summary.quarantined:
        yield Problem(
            "job_quarantined",
            f"{_count(summary.quarantined)} in quarantine: each killed its worker too often",
            "leasehold jobs --state quarantined; and once mended: leasehold jobs retry ID",
        )
    worked = {queue for node in facts.live_nodes if node["executes"] for queue in node["queues"]}
    for queue in sorted(set(summary.queues) - worked):
        yield Problem(
            "queue_unworked",
            f"Queue {queue!r} has jobs to run, and no live node works it",
            f"leasehold worker MODULE:APP --queue {queue}=10",
        )
    oldest = summary.oldest_seconds
    if oldest is not None and oldest > OLDEST_WAIT_SECONDS:
        yield Problem(
            "jobs_late",
            f"The oldest job that could run has waited for {duration(oldest)}",
            "More workers or more slots (--queue name=slots); or see what the running jobs do",
        )


def _failures(facts: Facts) -> Iterator[Problem]:
    since = facts.now - timedelta(seconds=LATELY_SECONDS)
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for event in sorted(facts.events, key=lambda event: int(event["id"])):
        if event["kind"] == "service_failed" and event["at"] > since:
            service = str((event["fields"] or {}).get("service"))
            newest[service, str(event["worker_id"])] = event
    for (service, worker), event in newest.items():
        ago = duration(max(0.0, (facts.now - event["at"]).total_seconds()))
        error = errors.shorten(str((event["fields"] or {}).get("error")))
        yield Problem(
            "service_failed",
            f"The {service} of {worker} failed {ago} ago: {error}",
            "leasehold events --kind service_failed",
        )


def _versions(facts: Facts) -> Iterator[Problem]:
    versions = sorted({str(node["version"]) for node in facts.live_nodes})
    if len(versions) > 1:
        yield Problem(
            "versions_differ",
            f"Live nodes run different versions of leasehold: {', '.join(versions)}",
            "In a deployment this passes; else bring them to one version (leasehold nodes)",
        )


def _age(row: dict[str, Any]) -> str:
    return _seconds(row["age_seconds"])


def _seconds(value: object) -> str:
    return duration(value) if isinstance(value, (int, float)) else "?"


def _count(number: int) -> str:
    if number == 1:
        return "1 job is"
    return f"{number:,}{' or more' if number >= COUNT_CAP else ''} jobs are"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
