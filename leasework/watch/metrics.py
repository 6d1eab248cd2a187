"""Prometheus metrics, computed from the database on each scrape: no process keeps a counter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from leasework.errors import LeaseworkError
from leasework.model.history import Counts, class_bound, class_seconds
from leasework.store.reports import QUEUE_ROWS, Reports
from leasework.store.rows import CountView, LeaseCounts
from leasework.telemetry import CATALOGUE
from leasework.watch.checks import KINDS, claimants, problems
from leasework.watch.facts import Facts
from leasework.watch.finding import Finding
from leasework.watch.inspector import Inspector
from leasework.watch.metric_names import METRICS

_CLASSES_A_BUCKET = 4
"""Classes per bucket: each bucket is about twice as wide as the one before."""
_BUCKETS = range(0, 101, _CLASSES_A_BUCKET)
"""The classes of durations whose bounds are the buckets' upper bounds, from 1.2 ms to a day."""
_OUTCOMES = ("completed", "cancelled", "discarded", "quarantined")


@dataclass
class Sheet:
    """All series: by metric, from label values to a value; for histograms, buckets and the sum."""

    series: dict[str, dict[tuple[str, ...], float]] = field(default_factory=dict)
    durations: dict[str, dict[tuple[str, ...], Counts]] = field(default_factory=dict)
    """By histogram and label values: the number of jobs in each class of durations."""

    def histogram(
        self, name: str, labels: tuple[str, ...]
    ) -> tuple[list[tuple[str, float]], float]:
        """(upper bound, how many are no longer) for each bucket, and the sum in seconds."""
        counts = self.durations[name][labels]
        buckets = [
            (f"{class_bound(bound):.4g}", float(sum(n for c, n in counts.items() if c <= bound)))
            for bound in _BUCKETS
        ]
        whole = float(sum(counts.values()))
        return [*buckets, ("+Inf", whole)], sum(class_seconds(c) * n for c, n in counts.items())

    def put(self, name: str, value: object, *labels: object) -> None:
        """``labels``: in the order of the catalogue. None puts nothing."""
        known = METRICS[name]
        assert len(labels) == len(known.labels), name
        if isinstance(value, (int, float)):
            key = tuple(str(label) for label in labels)
            self.series.setdefault(name, {})[key] = float(value)

    def add(self, name: str, value: float, *labels: object) -> None:
        key = tuple(str(label) for label in labels)
        self.put(name, self.series.get(name, {}).get(key, 0.0) + value, *labels)


async def read_metrics(inspector: Inspector, reports: Reports) -> Sheet:
    """Read everything once. If the database cannot be read, the sheet says so."""
    sheet = Sheet()
    for kind in KINDS:
        sheet.put("leasework_problems", 0, "", kind, "")
        sheet.put("leasework_notes", 0, kind)
    try:
        facts = await inspector.facts()
        _problems(sheet, problems(facts))
        _nodes(sheet, facts)
        _leases(sheet, facts, await reports.lease_counts(None))
        _counts(sheet, await reports.counts())
        _schedules(sheet, facts)
        _queues(sheet, facts)
        _limits(sheet, facts)
        _durable(sheet, facts)
        _summary(sheet, facts)
        _failures(sheet, facts)
        for name, value in facts.locks._asdict().items() if facts.locks else ():
            sheet.put(f"leasework_{name}", value)
        for table in await reports.tables():
            sheet.put("leasework_table_dead_rows", table.dead, table.name)
            sheet.put("leasework_table_bytes", table.table_bytes, table.name)
        sheet.put("leasework_up", 1)
    except LeaseworkError as error:
        sheet.put("leasework_up", 0)
        _problems(sheet, await inspector.unread(error))
    return sheet


def _problems(sheet: Sheet, found: Iterable[Finding]) -> None:
    for problem in found:
        if problem.info:
            sheet.add("leasework_notes", 1, problem.kind)
            continue
        sheet.add("leasework_problems", 1, "", problem.kind, problem.subject)
        for symptom in problem.symptoms:
            # of many alike, those behind the first are no effects of a cause
            cause = problem.kind if symptom.kind != problem.kind else "alike"
            sheet.add("leasework_problems", 1, cause, symptom.kind, "")


def _nodes(sheet: Sheet, facts: Facts) -> None:
    for node in facts.live_nodes:
        sheet.add("leasework_nodes", 1, node.app, node.version)
    for app in {node.app for node in facts.nodes}:
        nodes = [node for node in facts.nodes if node.app == app]
        infos = [node.info or {} for node in nodes]
        ages = [(node.age_seconds or 0.0) / node.lease_seconds for node in nodes]
        deaf = [info.get("deaf_seconds") or 0.0 for info in infos]
        sheet.put("leasework_node_renewal_age_ratio", max(0.0, *ages), app)
        sheet.put("leasework_node_deaf_seconds", max(0.0, *deaf), app)


def _leases(sheet: Sheet, facts: Facts, rows: list[LeaseCounts]) -> None:
    believers = claimants(facts)
    for row in rows:
        name = row.name
        sheet.put("leasework_leader_held", int(row.held), name)
        sheet.put("leasework_leader_term", row.term, name)
        sheet.put("leasework_leader_claimants", len(believers.get(name, ())), name)
        if row.held:
            sheet.put("leasework_leader_renewal_age_seconds", row.age_seconds, name)
        for event in ("acquired", "renewed", "resigned", "expired"):
            sheet.put(f"leasework_lease_{event}_total", getattr(row, event), name)
        sheet.put("leasework_lease_contended_total", 0, name)
        sheet.put("leasework_lease_leaderless_seconds_total", row.leaderless_seconds, name)


def _counts(sheet: Sheet, rows: list[CountView]) -> None:
    for kind in CATALOGUE:
        if CATALOGUE[kind].stored or kind.startswith("deadline_"):
            sheet.put("leasework_events_total", 0, kind)
    sheet.put("leasework_locks_contended_total", 0)
    for row in rows:
        metric, subject, part, n = row.metric, row.subject, row.part, row.n
        if metric == "event" and subject in CATALOGUE:
            sheet.put("leasework_events_total", n, subject)
        elif metric == "lease_contended":
            sheet.put("leasework_lease_contended_total", n, subject)
        elif metric == "lock_contended":
            sheet.put("leasework_locks_contended_total", n)
        elif metric in ("wait", "run"):
            length, *task = part.split(" ", 1)  # a run has its task
            counts = sheet.durations.setdefault(f"leasework_job_{metric}_seconds", {})
            counts.setdefault((subject, *task), {})[int(length)] = int(n)
        elif metric == "renew_failed":
            sheet.put("leasework_lease_renew_failed_total", n, subject)
        elif metric == "job_failed":
            sheet.put("leasework_attempts_failed_total", n, subject, part)
        elif (outcome := metric.removeprefix("job_")) in _OUTCOMES:
            sheet.put("leasework_jobs_finished_total", n, subject, part, outcome)


def _schedules(sheet: Sheet, facts: Facts) -> None:
    failing = {(row.app, row.name) for row in facts.failing}
    for row in facts.schedules:
        labels = (row.app, row.name)
        sheet.put("leasework_schedule_late_seconds", row.late_seconds, *labels)
        sheet.put("leasework_schedule_ahead_seconds", row.ahead_seconds, *labels)
        sheet.put("leasework_schedule_paused", int(bool(row.paused)), *labels)
        sheet.put("leasework_schedule_failing", int(labels in failing), *labels)


def _queues(sheet: Sheet, facts: Facts) -> None:
    rows = facts.queues
    for node in facts.live_nodes:
        if node.executes:
            for queue, slots in node.queues.items():
                sheet.add("leasework_queue_slots", int(slots), queue)
                if len(rows) < QUEUE_ROWS:  # else nothing is known of the queues after these
                    sheet.put("leasework_queue_ready", 0, queue)
                    sheet.put("leasework_queue_running", 0, queue)
                    sheet.put("leasework_queue_oldest_ready_seconds", 0, queue)
    for row in rows:
        queue = row.queue
        sheet.put("leasework_queue_ready", row.ready, queue)
        sheet.put("leasework_queue_running", row.running, queue)
        oldest = max(0.0, row.oldest_seconds or 0.0)
        sheet.put("leasework_queue_oldest_ready_seconds", oldest, queue)
        sheet.add("leasework_queue_slots", 0, queue)


def _limits(sheet: Sheet, facts: Facts) -> None:
    for row in facts.limits:
        sheet.put("leasework_limit_running", row.running, row.name)
        sheet.put("leasework_limit_waiting", row.waiting, row.name)
        sheet.put("leasework_limit_oldest_seconds", max(0.0, row.oldest_seconds or 0.0), row.name)
        sheet.put("leasework_limit_changed", int(row.set_seconds is not None), row.name)
    for pause in facts.pauses:
        sheet.put("leasework_paused", 1, pause.kind, pause.name)


def _durable(sheet: Sheet, facts: Facts) -> None:
    if found := facts.durable:
        for because in ("sleep", "event", "gather"):
            sheet.put("leasework_jobs_suspended", found.suspended.get(because, 0), because)
        sheet.put("leasework_signals_untaken", found.signals)
        sheet.put("leasework_batches_open", found.batches)


def _summary(sheet: Sheet, facts: Facts) -> None:
    summary = facts.summary
    sheet.put("leasework_jobs_waiting", summary.waiting)
    sheet.put("leasework_jobs_unknown_task", summary.unknown)
    sheet.put("leasework_jobs_quarantined", summary.quarantined)
    sheet.put("leasework_breaches_unhandled", len(facts.unhandled))
    oldest = max((row.open_seconds or 0.0 for row in facts.transactions), default=0.0)
    sheet.put("leasework_xmin_pinned_seconds", oldest)


def _failures(sheet: Sheet, facts: Facts) -> None:
    for row in facts.failures:
        if row.failed:
            sheet.put("leasework_task_failed", row.failed, row.task)
        else:
            sheet.put("leasework_task_discarded", row.discarded, row.task)
    for app in {row.app for row in facts.nodes} | {row.app for row in facts.died}:
        sheet.put("leasework_nodes_died", sum(row.app == app for row in facts.died), app)
