"""Checks of nodes, leaders and locks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import combinations

from leasework.config import (
    CRASH_LOOP_DEATHS,
    CRASH_LOOP_SECONDS,
    LATE_RENEWAL_SHARE,
    LOCK_SECONDS,
    TROUBLE_SECONDS,
)
from leasework.errors import shorten
from leasework.model.moments import duration
from leasework.store.rows import DeathView, NodeView
from leasework.watch.checks.registry import Said, check, lately, listed, seconds_of, since
from leasework.watch.facts import Facts, stale
from leasework.watch.finding import NOTE, WRONG

_HANDOVER = timedelta(seconds=1.0)
"""A node's report that arrives this soon after a new term began may still be older than it."""
_TAKEOVER = 1.5
"""In leases: a takeover takes no longer, as ``recover_within`` is one and a half leases."""


@check(
    "No process is running: no schedules fire and no jobs run.",
    "Start one: your web application with app.lifespan or gunicorn's hooks, or a worker with "
    "leasework worker MODULE:APP, flask leasework worker or manage.py leasework_worker",
    page="nodes", alert="critical", alert_after="10s",  # a deployment may have a gap
    explains=(
        "node_silent", "node_died", "crash_loop", "no_leader", "leader_silent", "schedule_silent",
        "tick_missed", "queue_unworked", "queue_overdue", "jobs_stranded", "task_unknown",
        "limit_blocked", "limit_unknown", "suspended_overdue", "batch_stuck", "breach_unhandled",
        "job_overdue", "job_hangs",
    ),
)  # fmt: skip
def _no_live_node(facts: Facts) -> Iterator[str | Said]:
    if not any(node.app for node in facts.live_nodes):  # some processes only hold locks
        yield "No live node: no schedules fire and no jobs run"


@check(
    "A node has not renewed its lease for longer than the lease.",
    "If its process is gone, the leader frees its jobs. If the node stays listed, check whether "
    "its process is stopped or cut off from the database",
    page="nodes", explains=("leader_silent", "no_leader", "jobs_stranded", "lock_lost"),
)  # fmt: skip
def _node_silent(facts: Facts) -> Iterator[str | Said]:
    for node in facts.nodes:
        if stale(node):
            yield Said(
                f"Node {node.worker_id} was last heard from {seconds_of(node.age_seconds)} ago; "
                f"its lease is {node.lease_seconds:g} s",
                subject=f"node:{node.worker_id}",
                seconds=node.age_seconds,
            )


@check(
    "A node has missed three renewals of its lease in a row.",
    "Its process is frozen or stopped, or gets no answer from the database: look for renew_failed "
    "in its log. It stops its own work before its lease ends",
    page="nodes",
)  # fmt: skip
def _renewal_late(facts: Facts) -> Iterator[str | Said]:
    for node in facts.live_nodes:
        age, lease = node.age_seconds, node.lease_seconds
        if age > LATE_RENEWAL_SHARE * lease:
            yield Said(
                f"Node {node.worker_id} does not renew its lease: the last renewal was "
                f"{duration(age)} ago, and one is due every {duration(lease / 5)}",
                subject=f"node:{node.worker_id}",
                seconds=age,
            )


@check(
    "The event loop of a node does not run: no job starts there, and async handlers stand still.",
    "A handler blocks it. Find it: leasework jobs --state running, then leasework jobs stack ID. "
    'Make it def instead of async def, or give its task executor="process"',
    page="nodes", explains=("renewal_late", "queue_overdue", "job_overdue", "job_hangs"),
)  # fmt: skip
def _loop_stuck(facts: Facts) -> Iterator[str | Said]:
    for node in facts.live_nodes:
        seconds = (node.info or {}).get("loop_stuck")
        if isinstance(seconds, (int, float)) and seconds > 0:
            yield Said(
                f"Node {node.worker_id} has not run its event loop for {seconds_of(seconds)}",
                subject=f"node:{node.worker_id}",
                seconds=seconds,
            )


@check(
    "A node died: the leader saw it silent for a whole lease, or its parent saw the process end. "
    "It is a problem for ten minutes, unless as many nodes have started since; then a note until "
    "someone acknowledges it, or for a day.",
    "Look for the cause in leasework events and in the workers' own logs. To acknowledge: "
    "leasework nodes seen",
    page="nodes", explains=("lock_lost", "leader_silent", "no_leader", "tick_missed"),
)  # fmt: skip
def _node_died(facts: Facts) -> Iterator[str | Said]:
    by_app: dict[str, list[DeathView]] = {}
    for row in facts.died:
        by_app.setdefault(row.app, []).append(row)
    for app, rows in sorted(by_app.items()):
        seconds = facts.ago(rows[0].died_at)
        jobs = sum(row.rescued for row in rows)
        rescued = "1 job was rescued" if jobs == 1 else f"{jobs:,} jobs were rescued"
        if len(rows) == 1:
            sentence = f"Node {rows[0].worker_id} died {duration(seconds)} ago, {rescued}"
        else:
            names = listed([row.worker_id for row in rows], 3)
            sentence = (
                f"{len(rows)} nodes of {app!r} died, the last one {duration(seconds)} ago, "
                f"{rescued}: {names}"
            )
        since = min(row.died_at for row in rows)
        started = sum(node.app == app and node.started_at > since for node in facts.live_nodes)
        if replaced := started >= len(rows):
            sentence += f"; {'one has' if started == 1 else f'{started} have'} started since"
        level = NOTE if replaced or seconds > TROUBLE_SECONDS else WRONG
        yield Said(sentence, level=level, subject=f"app:{app}", seconds=facts.ago(since))


@check(
    f"At least {CRASH_LOOP_DEATHS} nodes of one application died within "
    f"{CRASH_LOOP_SECONDS / 60:g} minutes, and nobody has acknowledged them.",
    "Something keeps killing the workers: a job, memory, the host. See their logs, and "
    "leasework events --kind job_rescued for the jobs that they ran",
    page="nodes", alert="critical",
    explains=(
        "node_died", "node_silent", "job_quarantined", "jobs_stranded", "queue_overdue",
        "service_failed", "lock_lost", "no_leader", "leader_silent", "tick_missed",
    ),
)  # fmt: skip
def _crash_loop(facts: Facts) -> Iterator[str | Said]:
    lately = Counter(row.app for row in facts.died if facts.ago(row.died_at) < CRASH_LOOP_SECONDS)
    for app, deaths in sorted(lately.items()):
        if deaths >= CRASH_LOOP_DEATHS:
            tasks = sorted({task for row in facts.died if row.app == app for task in row.tasks})
            ran = f". They ran jobs of {listed(tasks)} when they died" if tasks else ""
            yield Said(
                f"The workers of {app!r} keep crashing: {deaths} died within "
                f"{duration(CRASH_LOOP_SECONDS)}{ran}",
                subject=f"app:{app}",
            )


@check(
    "Two applications run a task of the same name from the same queue, so each may run the other's "
    "jobs.",
    "If they are different projects, give each its own LEASEWORK_SCHEMA, database or queues. "
    "Otherwise give both the same name",
    page="nodes", shared=True,
)  # fmt: skip
def _task_shared(facts: Facts) -> Iterator[str | Said]:
    tasks: dict[str, set[str]] = {}
    queues: dict[str, set[str]] = {}
    for node in facts.live_nodes:
        if node.app and node.executes:
            tasks.setdefault(node.app, set()).update(node.tasks)
            queues.setdefault(node.app, set()).update(node.queues)
    for one, two in combinations(sorted(tasks), 2):
        known, worked = tasks[one] & tasks[two], queues[one] & queues[two]
        if known and worked:
            more = f" and {len(known) - 1} more" if len(known) > 1 else ""
            said = (
                f"The applications {one!r} and {two!r} both run the task {min(known)!r}{more} "
                f"from the queue {min(worked)!r}"
            )
            yield Said(said, level=NOTE)


@check(
    "An application has live nodes, but has had no leader for longer than a takeover may take.",
    "A live node takes over within recover_within; if none does, look at its log",
    page="leaders", alert="critical",
    explains=("schedule_silent", "tick_missed", "suspended_overdue", "jobs_stranded"),
)  # fmt: skip
def _no_leader(facts: Facts) -> Iterator[str | Said]:
    by_name = {leader.name: leader for leader in facts.leaders}
    by_app: dict[str, list[NodeView]] = {}
    for node in facts.live_nodes:
        if node.app:  # a node without an application only holds its process's leaders and locks
            by_app.setdefault(node.app, []).append(node)
    for app, nodes in sorted(by_app.items()):
        leader = by_name.get(app)
        if leader is not None and leader.node is not None:
            continue
        free = max(facts.ago(node.started_at) for node in nodes)
        if leader is not None and leader.age_seconds is not None:
            free = min(free, leader.age_seconds)
        if free > _TAKEOVER * max(node.lease_seconds for node in nodes):
            said = f"{app!r} has no leader: its schedules and delayed jobs do not run"
            yield Said(said, subject=f"app:{app}", seconds=free)


@check(
    "A node is halted: it claims no jobs until somebody resumes it.",
    "leasework nodes resume {node}",
    level=NOTE, page="nodes",
)  # fmt: skip
def _node_halted(facts: Facts) -> Iterator[str | Said]:
    for node in facts.live_nodes:
        if (node.info or {}).get("halted"):
            yield Said(
                f"Node {node.worker_id} is halted: it claims no jobs",
                subject=f"node:{node.worker_id}",
            )


@check(
    "A leader has not renewed its lease for longer than the lease, and nobody has taken over.",
    "A live node takes over within recover_within; if none does, start one",
    page="leaders", alert="critical",
    explains=("schedule_silent", "tick_missed", "suspended_overdue", "jobs_stranded"),
)  # fmt: skip
def _leader_silent(facts: Facts) -> Iterator[str | Said]:
    for leader in facts.leaders:
        if leader.node is not None and stale(leader):
            yield Said(
                f"The leader of {leader.name!r}, {leader.holder or leader.node}, was last "
                f"heard from {seconds_of(leader.age_seconds)} ago; "
                f"its lease is {leader.lease_seconds:g} s",
                subject=f"leader:{leader.name}",
                seconds=leader.age_seconds,
            )


def claimants(facts: Facts) -> dict[str, list[NodeView]]:
    """For each leader, the live nodes that report that they lead it. A report from before the
    current term does not count: the node may have given it up since."""
    found: dict[str, list[NodeView]] = {}
    for leader in facts.leaders:
        since = leader.acquired_at
        for node in facts.live_nodes:
            led = (node.info or {}).get("leads")
            term = led.get(leader.name) if isinstance(led, dict) else None
            if term is None:
                continue
            old = term != leader.term and since and node.heartbeat <= since + _HANDOVER
            if not old and not (term == leader.term and leader.node is None):
                found.setdefault(leader.name, []).append(node)
    return found


@check(
    "Two live processes both report that they lead. The fence lets only one of them write.",
    "See leasework leaders, and check the clocks of their machines",
    page="leaders", alert="critical",
)  # fmt: skip
def _two_claimants(facts: Facts) -> Iterator[str | Said]:
    for name, nodes in claimants(facts).items():
        if len(nodes) > 1:
            who = ", ".join(sorted(node.worker_id for node in nodes))
            said = f"{len(nodes)} processes believe that they lead {name!r}: {who}"
            yield Said(said, subject=f"leader:{name}")


@check(
    "Within the last ten minutes, a process lost a lock that it held.",
    "The process was told through `lost` and LostLock. To see who holds the lock now: leasework "
    "locks",
    page="events?kind=lock_lost", shared=True,
)  # fmt: skip
def _lock_lost(facts: Facts) -> Iterator[str | Said]:
    for name, events in lately(facts, "lock_lost", "name"):
        why = shorten(str(events[-1].fields.get("why")))
        yield Said(
            f"{events[-1].worker_id} lost the lock {shorten(name)!r}: {why} "
            f"({since(facts, events[-1])} ago)",
            subject=f"lock:{shorten(name)}",
            seconds=facts.ago(events[0].at),
        )


@check(
    f"A process has waited for a lock, a lease or an advisory one, for more than "
    f"{LOCK_SECONDS:g} seconds.",
    "leasework locks shows who holds it",
    page="locks", level=NOTE, shared=True,
)  # fmt: skip
def _lock_awaited(facts: Facts) -> Iterator[str | Said]:
    if facts.locks:
        waiting = facts.locks.locks_waiting + facts.locks.advisory_locks_waiting
        seconds = max(
            facts.locks.locks_oldest_wait_seconds, facts.locks.advisory_locks_oldest_wait_seconds
        )
        if seconds > LOCK_SECONDS:
            wait = "1 process waits for a lock" if waiting == 1 else f"{waiting} wait for locks"
            yield Said(f"{wait}, the first for {duration(seconds)}", seconds=seconds)
