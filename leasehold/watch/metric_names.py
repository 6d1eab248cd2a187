"""The catalogue of metrics. Names and labels are public: they may be added, not changed.

All of them are of the whole application, and every process that serves them tells the same: whoever
scrapes several takes the maximum, never the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    meaning: str
    labels: tuple[str, ...] = ()
    kind: str = GAUGE


METRICS: dict[str, Metric] = {
    "leasehold_up": Metric("1: the database answered, and its schema fits."),
    "leasehold_problems": Metric(
        "Problems of this kind, as leasehold status says them.", ("kind",)
    ),
    "leasehold_notes": Metric(
        "What is only worth knowing, as leasehold status says it.", ("kind",)
    ),
    # nodes
    "leasehold_nodes": Metric("Processes that renew their lease.", ("app", "version")),
    "leasehold_nodes_died": Metric(
        "Nodes that died within a day and that nobody has seen yet.", ("app",)
    ),
    "leasehold_node_renewal_age_ratio": Metric(
        "Of the node that renewed longest ago: the age of its renewal by its lease; 1 is dead.",
        ("app",),
    ),
    "leasehold_node_deaf_seconds": Metric(
        "For how long a node has got no wake-ups, the longest.", ("app",)
    ),
    "leasehold_jobs_running": Metric("Jobs that run, as the nodes say.", ("app",)),
    # leases
    "leasehold_leader_held": Metric("1: a lease is in force; 0: nobody leads.", ("name",)),
    "leasehold_leader_term": Metric("The newest term.", ("name",)),
    "leasehold_leader_claimants": Metric(
        "Live nodes that believe that they lead: more than 1 must not be.", ("name",)
    ),
    "leasehold_leader_renewal_age_seconds": Metric("Since the leader's renewal.", ("name",)),
    "leasehold_lease_acquired_total": Metric("Terms that began.", ("name",), COUNTER),
    "leasehold_lease_renewed_total": Metric("Renewals.", ("name",), COUNTER),
    "leasehold_lease_renew_failed_total": Metric(
        "Calls of a node's guard that got no answer, told with the next one that did.",
        ("app",),
        COUNTER,
    ),
    "leasehold_lease_expired_total": Metric(
        "Terms that ended without a resignation.", ("name",), COUNTER
    ),
    "leasehold_lease_resigned_total": Metric("Terms that were given up.", ("name",), COUNTER),
    "leasehold_lease_contended_total": Metric(
        "Attempts to acquire for which somebody else was quicker.", ("name",), COUNTER
    ),
    "leasehold_lease_leaderless_seconds_total": Metric(
        "Seconds between two terms with nobody whose lease was in force.", ("name",), COUNTER
    ),
    # locks
    "leasehold_locks_held": Metric("Locks (app.lock) that are held."),
    "leasehold_locks_waiting": Metric("Processes that wait for a lock."),
    "leasehold_locks_oldest_wait_seconds": Metric("For how long the first of them has waited."),
    "leasehold_locks_contended_total": Metric(
        "Processes that had to wait for a lock, or came too late for it.", (), COUNTER
    ),
    "leasehold_advisory_locks_held": Metric("Advisory locks of this database that are held."),
    "leasehold_advisory_locks_waiting": Metric("Sessions that wait for an advisory lock."),
    "leasehold_advisory_locks_oldest_wait_seconds": Metric(
        "For how long the first of them has waited."
    ),
    # jobs
    "leasehold_queue_ready": Metric(
        "Jobs that are due, running ones too; an estimate beyond some thousands.", ("queue",)
    ),
    "leasehold_queue_oldest_ready_seconds": Metric(
        "For how long the oldest job that could run has been due.", ("queue",)
    ),
    "leasehold_queue_slots": Metric("Jobs that live nodes run at once.", ("queue",)),
    "leasehold_jobs_waiting": Metric("Jobs for later, or to be retried; at most 10,000."),
    "leasehold_jobs_unknown_task": Metric("Jobs whose task no live node knows; at most 10,000."),
    "leasehold_jobs_quarantined": Metric("Jobs in quarantine; at most 10,000."),
    "leasehold_jobs_finished_total": Metric(
        "Finished jobs, counted by whole minutes.", ("queue", "task", "outcome"), COUNTER
    ),
    "leasehold_attempts_failed_total": Metric(
        "Attempts that failed or crashed, counted by whole minutes.", ("queue", "task"), COUNTER
    ),
    "leasehold_job_wait_seconds": Metric(
        "From due to started, of finished jobs, counted by whole minutes.", ("queue",), HISTOGRAM
    ),
    "leasehold_job_run_seconds": Metric(
        "From started to finished, counted by whole minutes.", ("queue",), HISTOGRAM
    ),
    "leasehold_task_discarded": Metric(
        "Jobs discarded within ten minutes; tasks without any have no series.", ("task",)
    ),
    "leasehold_task_failed": Metric(
        "Attempts that failed within ten minutes and will be tried again.", ("task",)
    ),
    # schedules and deadlines
    "leasehold_schedule_late_seconds": Metric(
        "How long ago its next moment was due.", ("app", "schedule")
    ),
    "leasehold_schedule_ahead_seconds": Metric(
        "How far its last tick lies ahead of the database's clock.", ("app", "schedule")
    ),
    "leasehold_schedule_failing": Metric(
        "1: its newest job failed for good, and none completed lately.", ("app", "schedule")
    ),
    "leasehold_schedule_paused": Metric("1: paused.", ("app", "schedule")),
    "leasehold_breaches_unhandled": Metric(
        "Breaches of the last days of which nobody was told; at most 100."
    ),
    # the house
    "leasehold_events_total": Metric("Events of this kind that were stored.", ("kind",), COUNTER),
    "leasehold_xmin_pinned_seconds": Metric(
        "For how long the oldest transaction has kept dead rows from being removed."
    ),
    "leasehold_table_dead_rows": Metric("Dead rows, as the server's statistics say.", ("table",)),
    "leasehold_table_bytes": Metric("Size without indexes.", ("table",)),
}  # fmt: skip
