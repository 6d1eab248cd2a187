"""The page "now": is all well, who leads, what waits, how fast it goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse

from leasehold.model.filter import JobFilter
from leasehold.model.history import Counts, added, percentile
from leasehold.ports import Rows
from leasehold.services.health import COUNT_CAP, Facts
from leasehold.web.charts import bars
from leasehold.web.pulse import MOST_STREAMS
from leasehold.web.site import Site

_HOUR = 60
_MOST_MINUTES = 20_000
_LANE_TASKS = 12
PLACES = {
    "no_live_node": "nodes", "node_silent": "nodes", "versions_differ": "nodes",
    "no_leader": "leaders", "leader_silent": "leaders", "schedule_silent": "schedules",
    "renewal_late": "nodes", "wakeups_lost": "nodes", "two_claimants": "leaders",
    "cannot_start": "nodes",
    "lock_lost": "events?kind=lock_lost", "tick_missed": "schedules", "xmin_pinned": "database",
    "deadline_breached": "deadlines?state=breached", "breach_unhandled": "deadlines?state=breached",
    "clock_jumped": "events?kind=clock_jumped",
    "schedule_ahead": "schedules", "schedule_paused": "schedules",
    "job_quarantined": "jobs?q=state:quarantined", "job_overdue": "jobs?q=state:running",
    "jobs_late": "jobs?q=state:available", "task_unknown": "jobs?q=state:scheduled",
    "queue_unworked": "jobs?q=state:available", "service_failed": "events?kind=service_failed",
}  # fmt: skip
"""Where to look further, by the kind of a problem."""


async def home(site: Site, request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/now", status_code=303)


async def live(site: Site, request: Request) -> Response:
    if site.pulse.streams >= MOST_STREAMS:
        return PlainTextResponse("Too many watch.\n", status_code=503)
    return StreamingResponse(site.pulse.stream(), media_type="text/event-stream")


@dataclass
class Rate:
    """What the history says of one queue or task, or of all."""

    name: str = ""
    completed: int = 0
    failed: int = 0
    last_minutes: int = 0
    """Finished in the last five whole minutes."""
    wait: Counts = field(default_factory=dict)
    run: Counts = field(default_factory=dict)

    def add(self, row: dict[str, Any], recent: bool) -> None:
        done = row["completed"] + row["cancelled"] + row["discarded"] + row["quarantined"]
        self.completed += row["completed"]
        self.failed += row["failed"]
        self.last_minutes += done if recent else 0
        for name in ("wait", "run"):
            mine = getattr(self, name)
            for number, count in added([row[name]]).items():
                mine[number] = mine.get(number, 0) + count

    @property
    def per_minute(self) -> float:
        return self.last_minutes / 5

    def time(self, which: str, share: float) -> float | None:
        """A percentile in seconds of ``wait`` or ``run``."""
        return percentile(getattr(self, which), share)


def rates(minutes: Rows, by: str | None, now: datetime) -> dict[str, Rate]:
    """Per queue (``queue``), per task (``task_name``), or of all (None, under "")."""
    found: dict[str, Rate] = {}
    recent = now.replace(second=0, microsecond=0) - timedelta(minutes=5)
    for row in minutes:
        name = row[by] if by else ""
        found.setdefault(name, Rate(name)).add(row, row["at"] >= recent)
    return found


async def now(site: Site, request: Request) -> Response:
    beat = await site.pulse.beat(0.5)
    if beat.facts is None:
        problem = beat.found[0]
        return await site.render(
            request, "problem.html", 503, page="now", title=problem.sentence, do=problem.do
        )
    facts = beat.facts
    operator = await site.operator(request)
    since = facts.now.replace(second=0, microsecond=0) - timedelta(minutes=_HOUR)
    minutes = await operator.store.history(since, None, _MOST_MINUTES)
    queues = await operator.reports.queues(None)
    bad = await operator.reports.job_page(JobFilter(state="discarded"), None, 6)
    whole = rates(minutes, None, facts.now).get("", Rate())
    by_queue = rates(minutes, "queue", facts.now)
    by_task = sorted(
        rates(minutes, "task_name", facts.now).values(),
        key=lambda rate: (-rate.failed, -rate.completed),
    )
    return await site.render(
        request,
        "now.html",
        page="now",
        now=facts.now,
        problems=[(problem, PLACES.get(problem.kind)) for problem in beat.found],
        facts=facts,
        cap=COUNT_CAP,
        running=sum(_running(node) for node in facts.live_nodes),
        whole=whole,
        chart=bars(per_minute(minutes, since), since),
        queues=_queues(queues, by_queue, facts),
        tasks=by_task[:_LANE_TASKS],
        bad=bad.rows,
    )


def per_minute(minutes: Rows, since: datetime) -> list[tuple[int, int]]:
    """(completed, failed) of each of the sixty minutes from ``since`` on."""
    found = [(0, 0)] * _HOUR
    for row in minutes:
        place = int((row["at"] - since).total_seconds() // 60)
        if 0 <= place < _HOUR:
            done, failed = found[place]
            found[place] = (done + row["completed"], failed + row["failed"])
    return found


def _running(node: dict[str, Any]) -> int:
    value = (node["info"] or {}).get("running")
    return value if isinstance(value, int) else 0


def _queues(rows: Rows, by_queue: dict[str, Rate], facts: Facts) -> list[dict[str, Any]]:
    """Every queue that has work, had some, or is worked."""
    ready = {row["queue"]: row for row in rows}
    slots: dict[str, int] = {}
    for node in facts.live_nodes:
        for queue, number in (node["queues"] or {}).items():
            slots[queue] = slots.get(queue, 0) + (int(number) if node["executes"] else 0)
    names = sorted({*ready, *by_queue, *slots})
    return [
        {
            "name": name,
            "ready": ready.get(name, {}).get("ready", 0),
            "capped": ready.get(name, {}).get("capped", False),
            "about": ready.get(name, {}).get("about"),
            "oldest": ready.get(name, {}).get("oldest_seconds"),
            "slots": slots.get(name, 0),
            "rate": by_queue.get(name, Rate(name)),
        }
        for name in names[:200]
    ]
