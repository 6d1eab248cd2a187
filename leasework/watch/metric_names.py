"""The catalogue of metrics. Names and labels are public: new ones may come, none may change. All
describe the whole application: if you scrape several processes, take the maximum, never the sum."""

from __future__ import annotations

from msgspec import Struct

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Metric(Struct, frozen=True):
    meaning: str
    labels: tuple[str, ...] = ()
    kind: str = GAUGE


METRICS: dict[str, Metric] = {
    "leasework_up": Metric("1 if the database answered and its schema fits."),
    "leasework_problems": Metric(
        "Number of problems of this kind in leasework status. `cause` is the kind of problem that "
        "explains it, or `alike` if it is shown together with others of its kind.",
        ("cause", "kind", "subject"),
    ),
    "leasework_notes": Metric("Number of notes of this kind in leasework status.", ("kind",)),
    # nodes
    "leasework_nodes": Metric("Number of nodes that renew their lease.", ("app", "version")),
    "leasework_nodes_died": Metric(
        "Number of nodes that died within a day and are not marked as seen.", ("app",)
    ),
    "leasework_node_renewal_age_ratio": Metric(
        "The longest time since a node's last renewal, as a share of its lease. 1 is dead.",
        ("app",),
    ),
    "leasework_node_deaf_seconds": Metric(
        "The longest time for which a node has received no wake-ups.", ("app",)
    ),
    # leases
    "leasework_leader_held": Metric("1 if a lease is in force, 0 if nobody leads.", ("name",)),
    "leasework_leader_term": Metric("The newest term.", ("name",)),
    "leasework_leader_claimants": Metric(
        "Number of live nodes that believe that they lead. It must not exceed 1.", ("name",)
    ),
    "leasework_leader_renewal_age_seconds": Metric(
        "Seconds since the leader's last renewal.", ("name",)
    ),
    "leasework_lease_acquired_total": Metric("Number of terms that began.", ("name",), COUNTER),
    "leasework_lease_renewed_total": Metric("Number of renewals.", ("name",), COUNTER),
    "leasework_lease_renew_failed_total": Metric(
        "Calls of a node's guard that got no answer, counted with the next call that did.",
        ("app",),
        COUNTER,
    ),
    "leasework_lease_expired_total": Metric(
        "Number of terms that ended without a resignation.", ("name",), COUNTER
    ),
    "leasework_lease_resigned_total": Metric(
        "Number of terms that ended with a resignation.", ("name",), COUNTER
    ),
    "leasework_lease_contended_total": Metric(
        "Number of attempts to acquire that another node won.", ("name",), COUNTER
    ),
    "leasework_lease_leaderless_seconds_total": Metric(
        "Seconds without a lease in force, the present vacancy included.", ("name",), COUNTER
    ),
    # locks
    "leasework_locks_held": Metric("Number of locks (app.lock) that are held."),
    "leasework_locks_waiting": Metric("Number of processes that wait for a lock."),
    "leasework_locks_oldest_wait_seconds": Metric(
        "Longest wait for a lock so far, of those that wait now."
    ),
    "leasework_locks_contended_total": Metric(
        "Number of times that a process had to wait for a lock, or did not get it.", (), COUNTER
    ),
    "leasework_advisory_locks_held": Metric(
        "Number of advisory locks of this database that are held."
    ),
    "leasework_advisory_locks_waiting": Metric(
        "Number of sessions that wait for an advisory lock."
    ),
    "leasework_advisory_locks_oldest_wait_seconds": Metric(
        "Longest wait for an advisory lock so far, of the sessions that wait now."
    ),
    # jobs
    "leasework_queue_ready": Metric(
        "Number of due jobs, running ones included. Above some thousands it is an estimate.",
        ("queue",),
    ),
    "leasework_queue_running": Metric(
        "Number of running jobs, including those that a node has claimed but not started.",
        ("queue",),
    ),
    "leasework_queue_oldest_ready_seconds": Metric(
        "How long the oldest job that could run has been due.", ("queue",)
    ),
    "leasework_queue_slots": Metric("Number of jobs that live nodes can run at once.", ("queue",)),
    "leasework_limit_running": Metric("Number of running jobs that have the limit.", ("limit",)),
    "leasework_limit_waiting": Metric(
        "Number of due jobs that wait for the limit, at most 10,000.", ("limit",)
    ),
    "leasework_limit_oldest_seconds": Metric(
        "Seconds for which the first job that waits for the limit has been due.", ("limit",)
    ),
    "leasework_limit_changed": Metric("1 if a person changed the limit.", ("limit",)),
    "leasework_paused": Metric("1 for each paused queue or task.", ("kind", "name")),
    "leasework_jobs_suspended": Metric(
        "Number of jobs whose handler sleeps or waits for a signal or for jobs, up to 10,000.",
        ("because",),
    ),
    "leasework_signals_untaken": Metric("Number of signals that no job has taken, up to 10,000."),
    "leasework_batches_open": Metric("Number of batches that have not ended, up to 10,000."),
    "leasework_jobs_waiting": Metric(
        "Number of jobs that are scheduled or will be retried, up to 10,000."
    ),
    "leasework_jobs_unknown_task": Metric(
        "Number of jobs that were returned to the queue and are held back, because no live node "
        "knows their task or its version, up to 10,000."
    ),
    "leasework_jobs_quarantined": Metric("Number of jobs in quarantine, up to 10,000."),
    "leasework_jobs_finished_total": Metric(
        "Number of finished jobs, counted by whole minutes.", ("queue", "task", "outcome"), COUNTER
    ),
    "leasework_attempts_failed_total": Metric(
        "Number of attempts that failed or crashed, counted by whole minutes.",
        ("queue", "task"),
        COUNTER,
    ),
    "leasework_job_wait_seconds": Metric(
        "Time from due to start of finished jobs, counted by whole minutes.", ("queue",), HISTOGRAM
    ),
    "leasework_job_run_seconds": Metric(
        "Time from start to end, counted by whole minutes.", ("queue", "task"), HISTOGRAM
    ),
    "leasework_task_discarded": Metric(
        "Number of jobs that were discarded within ten minutes and not run again since. A task "
        "without failures has no series.",
        ("task",),
    ),
    "leasework_task_failed": Metric(
        "Number of attempts that failed within ten minutes and will be retried.", ("task",)
    ),
    # schedules and deadlines
    "leasework_schedule_late_seconds": Metric(
        "How long the schedule's next moment has been due.", ("app", "schedule")
    ),
    "leasework_schedule_ahead_seconds": Metric(
        "How far the schedule's last tick is ahead of the database's clock.", ("app", "schedule")
    ),
    "leasework_schedule_failing": Metric(
        "1 if the newest job was discarded or quarantined and none completed lately.",
        ("app", "schedule"),
    ),
    "leasework_schedule_paused": Metric("1 if the schedule is paused.", ("app", "schedule")),
    "leasework_breaches_unhandled": Metric(
        "Number of recent breaches whose callback failed or cannot run, up to 100."
    ),
    # the house
    "leasework_events_total": Metric("Number of stored events of this kind.", ("kind",), COUNTER),
    "leasework_xmin_pinned_seconds": Metric(
        "How long the oldest transaction has been blocking vacuum."
    ),
    "leasework_table_dead_rows": Metric(
        "Number of dead rows, by the server's statistics.", ("table",)
    ),
    "leasework_table_bytes": Metric("The table's size in bytes, without indexes.", ("table",)),
}
