"""The Grafana dashboard, as JSON to import."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from leasehold.watch.metric_names import METRICS

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_COLUMNS = 24
_LOUD = "node_died|node_fenced|lease_lost|lock_lost|ack_refused|clock_jumped|clock_stepped"


@dataclass(frozen=True)
class Panel:
    title: str
    queries: tuple[tuple[str, str], ...]
    """Query and legend."""
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    alarm: float | None = None
    """Values from here on are red."""
    stacked: bool = False


def _max(metric: str, expression: str = "") -> str:
    """The maximum, because every endpoint reports the same value."""
    labels = ", ".join(METRICS[metric].labels)
    by = f"max by ({labels})" if labels else "max"
    return f"{by} ({expression or metric})"


def _some(metric: str) -> str:
    return f"{_max(metric)} > 0"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) ({_max(metric, f'rate({metric}[$__rate_interval])')})"


def _increase(metric: str, window: str) -> str:
    return _max(metric, f"increase({metric}[{window}])")


def _grown(kind: str) -> str:
    chosen = f'increase(leasehold_events_total{{kind=~"{kind}"}}[$__rate_interval])'
    return _max("leasehold_events_total", chosen)


def _percentile(metric: str, share: float) -> str:
    buckets = f"max by (queue, le) (rate({metric}_bucket[5m]))"
    return f"histogram_quantile({share}, {buckets})"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Overview",
        (
            Panel("Database", ((_max("leasehold_up"), "up"),), kind="stat", width=4),
            Panel("Nodes", ((f"sum({_max('leasehold_nodes')})", "nodes"),), kind="stat", width=4),
            Panel(
                "Problems",
                ((_some("leasehold_problems"), "{{kind}}"),),
                kind="stat",
                width=10,
                alarm=1,
            ),
            Panel("Notes", ((_some("leasehold_notes"), "{{kind}}"),), kind="stat", width=6),
        ),
    ),
    (
        "Leaders",
        (
            Panel("Valid leases", ((_max("leasehold_leader_held"), "{{name}}"),)),
            Panel(
                "Time since the last renewal",
                ((_max("leasehold_leader_renewal_age_seconds"), "{{name}}"),),
                "s",
            ),
            Panel(
                "Processes that believe that they lead",
                ((_max("leasehold_leader_claimants"), "{{name}}"),),
                alarm=2,
            ),
            Panel(
                "Lease events",
                (
                    (_increase("leasehold_lease_acquired_total", "5m"), "{{name}} acquired"),
                    (_increase("leasehold_lease_resigned_total", "5m"), "{{name}} resigned"),
                    (_increase("leasehold_lease_expired_total", "5m"), "{{name}} expired"),
                    (_increase("leasehold_lease_contended_total", "5m"), "{{name}} contended"),
                ),
            ),
            Panel(
                "Renewals per second",
                (
                    (_rate("leasehold_lease_renewed_total", "name"), "{{name}}"),
                    (_rate("leasehold_lease_renew_failed_total", "app"), "{{app}} failed"),
                ),
                "ops",
            ),
            Panel(
                "Time without a leader in the last hour",
                ((_increase("leasehold_lease_leaderless_seconds_total", "1h"), "{{name}}"),),
                "s",
            ),
            Panel(
                "Longest time since a node's renewal, as a share of its lease",
                ((_max("leasehold_node_renewal_age_ratio"), "{{app}}"),),
                "percentunit",
                alarm=0.6,
            ),
            Panel("Unacknowledged deaths", ((_max("leasehold_nodes_died"), "{{app}}"),)),
            Panel(
                "Nodes by version",
                ((_max("leasehold_nodes"), "{{app}} {{version}}"),),
                stacked=True,
            ),
            Panel(
                "Time without notifications",
                ((_max("leasehold_node_deaf_seconds"), "{{app}}"),),
                "s",
            ),
        ),
    ),
    (
        "Queues",
        (
            Panel("Available jobs", ((_max("leasehold_queue_ready"), "{{queue}}"),)),
            Panel(
                "Oldest due job",
                ((_max("leasehold_queue_oldest_ready_seconds"), "{{queue}}"),),
                "s",
                alarm=60,
            ),
            Panel("Slots", ((_max("leasehold_queue_slots"), "{{queue}}"),)),
            Panel(
                "Finished per second",
                (
                    (
                        _rate("leasehold_jobs_finished_total", "queue, outcome"),
                        "{{queue}} {{outcome}}",
                    ),
                ),
                "ops",
            ),
            Panel(
                "Failed attempts per second",
                ((_rate("leasehold_attempts_failed_total", "task"), "{{task}}"),),
                "ops",
            ),
            Panel(
                "Failures in the last ten minutes",
                (
                    (_max("leasehold_task_discarded"), "{{task}} discarded"),
                    (_max("leasehold_task_failed"), "{{task}} failed"),
                ),
            ),
            Panel("Running jobs", ((_max("leasehold_jobs_running"), "{{app}}"),)),
            Panel(
                "Wait of jobs, 95th percentile",
                ((_percentile("leasehold_job_wait_seconds", 0.95), "{{queue}}"),),
                "s",
            ),
            Panel(
                "Run time, 95th percentile",
                ((_percentile("leasehold_job_run_seconds", 0.95), "{{queue}}"),),
                "s",
            ),
            Panel(
                "Waiting and quarantined jobs",
                (
                    (_max("leasehold_jobs_waiting"), "scheduled or to be retried"),
                    (_max("leasehold_jobs_unknown_task"), "unknown task"),
                    (_max("leasehold_jobs_quarantined"), "quarantined"),
                ),
            ),
        ),
    ),
    (
        "Schedules, deadlines and locks",
        (
            Panel(
                "Late schedules",
                (
                    (_max("leasehold_schedule_late_seconds"), "{{app}} {{schedule}}"),
                    (_some("leasehold_schedule_ahead_seconds"), "{{app}} {{schedule}} ahead"),
                ),
                "s",
            ),
            Panel(
                "Missed schedules and breached deadlines",
                (
                    (_grown("tick_missed|deadline_breached|deadline_late"), "{{kind}}"),
                    (_max("leasehold_breaches_unhandled"), "callback did not succeed"),
                ),
            ),
            Panel(
                "Locks",
                (
                    (_max("leasehold_locks_held"), "held"),
                    (_max("leasehold_locks_waiting"), "waiting"),
                    (_max("leasehold_advisory_locks_held"), "advisory held"),
                    (_max("leasehold_advisory_locks_waiting"), "advisory waiting"),
                    (
                        _max(
                            "leasehold_locks_contended_total",
                            "rate(leasehold_locks_contended_total[$__rate_interval])",
                        ),
                        "contended/s",
                    ),
                ),
            ),
            Panel(
                "Longest wait for a lock",
                (
                    (_max("leasehold_locks_oldest_wait_seconds"), "lock"),
                    (_max("leasehold_advisory_locks_oldest_wait_seconds"), "advisory lock"),
                ),
                "s",
            ),
            Panel(
                "Failing schedules",
                ((_some("leasehold_schedule_failing"), "{{app}} {{schedule}}"),),
            ),
            Panel(
                "Paused schedules", ((_some("leasehold_schedule_paused"), "{{app}} {{schedule}}"),)
            ),
            Panel("Terms", ((_max("leasehold_leader_term"), "{{name}}"),)),
        ),
    ),
    (
        "Warnings and the database",
        (
            Panel("Warnings and errors", ((_grown(_LOUD), "{{kind}}"),)),
            Panel(
                "Oldest transaction blocking vacuum",
                ((_max("leasehold_xmin_pinned_seconds"), "xmin"),),
                "s",
                alarm=300,
            ),
            Panel("Dead rows", ((_max("leasehold_table_dead_rows"), "{{table}}"),)),
            Panel("Table size", ((_max("leasehold_table_bytes"), "{{table}}"),), "bytes"),
        ),
    ),
)


def queries() -> list[str]:
    return [query for _, panels in ROWS for panel in panels for query, _ in panel.queries]


def board() -> str:
    """The dashboard's JSON. Grafana asks for the data source on import."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append(
            {"type": "row", "title": title, "collapsed": False, "id": len(panels) + 1,
             "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1}, "panels": []}
        )  # fmt: skip
        x, y = 0, y + 1
        height = 4 if row[0].kind == "stat" else 7
        for panel in row:
            if x + panel.width > _COLUMNS:
                x, y = 0, y + height
            panels.append(_panel(panel, len(panels) + 1, x, y, height))
            x += panel.width
        y += height
    source = {
        "name": "source", "type": "datasource", "query": "prometheus", "label": "Data source",
        "current": {}, "hide": 0,
    }  # fmt: skip
    whole = {
        "title": "leasehold", "uid": "leasehold", "tags": ["leasehold", "postgres"],
        "schemaVersion": 39, "version": 1, "editable": True, "refresh": "10s", "timezone": "",
        "time": {"from": "now-1h", "to": "now"}, "templating": {"list": [source]},
        "annotations": {"list": []}, "panels": panels,
    }  # fmt: skip
    return json.dumps(whole, indent=1)


def _panel(panel: Panel, number: int, x: int, y: int, height: int) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.alarm is not None:
        steps.append({"color": "red", "value": panel.alarm})
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
    if panel.alarm is not None:
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
            {"refId": chr(ord("A") + i), "expr": query, "legendFormat": legend,
             "datasource": _SOURCE, "instant": not graph}
            for i, (query, legend) in enumerate(panel.queries)
        ],
    }  # fmt: skip
