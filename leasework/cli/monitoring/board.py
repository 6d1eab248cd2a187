"""The Grafana dashboard, as JSON to import."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from msgspec import Struct

from leasework.cli.monitoring import matching
from leasework.watch.metric_names import METRICS

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_COLUMNS = 24
_LOUD = "node_died|node_fenced|lease_lost|lock_lost|ack_refused|clock_jumped|clock_stepped"

Query = tuple[str, str]
"""Query and legend."""


class Panel(Struct, frozen=True):
    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    alarm: float | None = None
    """Values from here on are red."""
    stacked: bool = False


def _panel(title: str, *queries: Query, **options: Any) -> Panel:
    return Panel(title, queries, **options)


def _stat(title: str, query: Query, width: int, alarm: float | None = None) -> Panel:
    return Panel(title, (query,), kind="stat", width=width, alarm=alarm)


# -- queries and their legends ---------------------------------------------------------------------
def _legend(labels: Sequence[str], what: str = "") -> str:
    """The values of the labels, and then ``what`` the query shows."""
    return " ".join(["{{" + label + "}}" for label in labels] + [what]).strip()


def _max(metric: str, what: str = "", expression: str = "") -> Query:
    """The maximum, because every endpoint reports the same value."""
    labels = METRICS[metric].labels
    by = f"max by ({', '.join(labels)})" if labels else "max"
    return f"{by} ({expression or metric})", _legend(labels, what)


def _some(metric: str, what: str = "") -> Query:
    query, legend = _max(metric, what)
    return f"{query} > 0", legend


def _rate(metric: str, *by: str, what: str = "") -> Query:
    query, _ = _max(metric, expression=f"rate({metric}[$__rate_interval])")
    return f"sum by ({', '.join(by)}) ({query})", _legend(by, what)


def _increase(metric: str, window: str, what: str = "") -> Query:
    return _max(metric, what, f"increase({metric}[{window}])")


def _grown(kind: str) -> Query:
    chosen = f'increase(leasework_events_total{{kind=~"{kind}"}}[$__rate_interval])'
    return _max("leasework_events_total", expression=chosen)


def _percentile(metric: str, share: float) -> Query:
    buckets = f"max by (queue, le) (rate({metric}_bucket[5m]))"
    return f"histogram_quantile({share}, {buckets})", _legend(METRICS[metric].labels)


ROWS: dict[str, tuple[Panel, ...]] = {
    "Overview": (
        _stat("Database", _max("leasework_up", "up"), 4),
        _stat("Nodes", (f"sum({_max('leasework_nodes')[0]})", "nodes"), 4),
        _stat("Problems", _some("leasework_problems"), 10, alarm=1),
        _stat("Notes", _some("leasework_notes"), 6),
    ),
    "Leaders": (
        _panel("Valid leases", _max("leasework_leader_held")),
        _panel(
            "Time since the last renewal", _max("leasework_leader_renewal_age_seconds"), unit="s"
        ),
        _panel(
            "Processes that believe that they lead", _max("leasework_leader_claimants"), alarm=2
        ),
        _panel(
            "Lease events",
            _increase("leasework_lease_acquired_total", "5m", "acquired"),
            _increase("leasework_lease_resigned_total", "5m", "resigned"),
            _increase("leasework_lease_expired_total", "5m", "expired"),
            _increase("leasework_lease_contended_total", "5m", "contended"),
        ),
        _panel(
            "Renewals per second",
            _rate("leasework_lease_renewed_total", "name"),
            _rate("leasework_lease_renew_failed_total", "app", what="failed"),
            unit="ops",
        ),
        _panel(
            "Time without a leader in the last hour",
            _increase("leasework_lease_leaderless_seconds_total", "1h"),
            unit="s",
        ),
        _panel(
            "Longest time since a node's renewal, as a share of its lease",
            _max("leasework_node_renewal_age_ratio"),
            unit="percentunit",
            alarm=0.6,
        ),
        _panel("Unacknowledged deaths", _max("leasework_nodes_died")),
        _panel("Nodes by version", _max("leasework_nodes"), stacked=True),
        _panel("Time without notifications", _max("leasework_node_deaf_seconds"), unit="s"),
    ),
    "Queues": (
        _panel("Available jobs", _max("leasework_queue_ready")),
        _panel("Oldest due job", _max("leasework_queue_oldest_ready_seconds"), unit="s", alarm=60),
        _panel("Slots", _max("leasework_queue_slots")),
        _panel(
            "Finished per second",
            _rate("leasework_jobs_finished_total", "queue", "outcome"),
            unit="ops",
        ),
        _panel(
            "Failed attempts per second",
            _rate("leasework_attempts_failed_total", "task"),
            unit="ops",
        ),
        _panel(
            "Failures in the last ten minutes",
            _max("leasework_task_discarded", "discarded"),
            _max("leasework_task_failed", "failed"),
        ),
        _panel("Running jobs", _max("leasework_queue_running")),
        _panel(
            "Wait of jobs, 95th percentile",
            _percentile("leasework_job_wait_seconds", 0.95),
            unit="s",
        ),
        _panel(
            "Run time, 95th percentile", _percentile("leasework_job_run_seconds", 0.95), unit="s"
        ),
        _panel(
            "Waiting and quarantined jobs",
            _max("leasework_jobs_waiting", "scheduled or to be retried"),
            _max("leasework_jobs_unknown_task", "unknown task"),
            _max("leasework_jobs_quarantined", "quarantined"),
        ),
    ),
    "Schedules, deadlines and locks": (
        _panel(
            "Late schedules",
            _max("leasework_schedule_late_seconds"),
            _some("leasework_schedule_ahead_seconds", "ahead"),
            unit="s",
        ),
        _panel(
            "Missed schedules and breached deadlines",
            _grown("tick_missed|deadline_breached|deadline_late"),
            _max("leasework_breaches_unhandled", "callback failed or cannot run"),
        ),
        _panel(
            "Locks",
            _max("leasework_locks_held", "held"),
            _max("leasework_locks_waiting", "waiting"),
            _max("leasework_advisory_locks_held", "advisory held"),
            _max("leasework_advisory_locks_waiting", "advisory waiting"),
            _max(
                "leasework_locks_contended_total",
                "contended/s",
                "rate(leasework_locks_contended_total[$__rate_interval])",
            ),
        ),
        _panel(
            "Longest wait for a lock",
            _max("leasework_locks_oldest_wait_seconds", "lock"),
            _max("leasework_advisory_locks_oldest_wait_seconds", "advisory lock"),
            unit="s",
        ),
        _panel("Failing schedules", _some("leasework_schedule_failing")),
        _panel("Paused schedules", _some("leasework_schedule_paused")),
        _panel("Terms", _max("leasework_leader_term")),
    ),
    "Warnings and the database": (
        _panel("Warnings and errors", _grown(_LOUD)),
        _panel(
            "Oldest transaction blocking vacuum",
            _max("leasework_xmin_pinned_seconds", "xmin"),
            unit="s",
            alarm=300,
        ),
        _panel("Dead rows", _max("leasework_table_dead_rows")),
        _panel("Table size", _max("leasework_table_bytes"), unit="bytes"),
    ),
}


def queries() -> list[str]:
    return [query for panels in ROWS.values() for panel in panels for query, _ in panel.queries]


def board(match: str = "") -> str:
    """The dashboard's JSON. Grafana asks for the data source on import. ``match``: labels of the
    series to show."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(
            {"type": "row", "title": title, "collapsed": False, "id": len(panels) + 1,
             "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1}, "panels": []}
        )  # fmt: skip
        x, y = 0, y + 1
        height = 4 if row[0].kind == "stat" else 7
        for panel in row:
            if x + panel.width > _COLUMNS:
                x, y = 0, y + height
            panels.append(_as_json(panel, match, len(panels) + 1, x, y, height))
            x += panel.width
        y += height
    source = {
        "name": "source", "type": "datasource", "query": "prometheus", "label": "Data source",
        "current": {}, "hide": 0,
    }  # fmt: skip
    named = {"title": "leasework", "uid": "leasework"}
    if match:  # beside those of other databases
        named = {"title": f"leasework {match}", "uid": f"leasework-{crc32(match.encode()):x}"}
    whole = {
        **named, "tags": ["leasework", "postgres"],
        "schemaVersion": 39, "version": 1, "editable": True, "refresh": "10s", "timezone": "",
        "time": {"from": "now-1h", "to": "now"}, "templating": {"list": [source]},
        "annotations": {"list": []}, "panels": panels,
    }  # fmt: skip
    return json.dumps(whole, indent=1)


def _as_json(panel: Panel, match: str, number: int, x: int, y: int, height: int) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
    if panel.alarm is not None:
        steps.append({"color": "red", "value": panel.alarm})
        custom["thresholdsStyle"] = {"mode": "line"}
    if panel.stacked:
        custom["stacking"] = {"mode": "normal"}
    graph = panel.kind == "timeseries"
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": height},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
                **({"custom": custom} if graph else {}),
            },
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi"}}
        if graph
        else {"textMode": "value_and_name", "colorMode": "value", "reduceOptions": {}},
        "targets": [
            {"refId": chr(ord("A") + i), "expr": matching(query, match), "legendFormat": legend,
             "datasource": _SOURCE, "instant": not graph}
            for i, (query, legend) in enumerate(panel.queries)
        ],
    }  # fmt: skip
