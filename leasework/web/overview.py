"""The overview: problems, leaders, waiting jobs, and how fast jobs finish."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from leasework.model.filter import JobFilter
from leasework.model.history import Counts, added, percentile
from leasework.store.rows import MinuteView, QueueView
from leasework.tuning import Tuning
from leasework.watch.checks import CHECKS, COUNT_CAP
from leasework.watch.facts import Facts
from leasework.web.charts import bars
from leasework.web.site import Site

_HOUR = 60


async def home(site: Site, request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/now", status_code=303)


async def live(site: Site, request: Request) -> Response:
    """What an open page asks for every two seconds."""
    beat = await site.pulse.beat()
    return JSONResponse({"problems": len(beat.wrong), "away": beat.facts is None})


@dataclass
class Throughput:
    """The history's figures for one queue or task, or for all."""

    name: str = ""
    completed: int = 0
    finished: int = 0
    """Completed, cancelled, discarded or quarantined."""
    failed: int = 0
    """Failed attempts, including retried ones."""
    last_minutes: int = 0
    """Finished within the last five minutes that are counted."""
    wait: Counts = field(default_factory=dict)
    run: Counts = field(default_factory=dict)

    def add(self, row: MinuteView, recent: bool) -> None:
        done = row.completed + row.cancelled + row.discarded + row.quarantined
        self.completed += row.completed
        self.finished += done
        self.failed += row.failed
        self.last_minutes += done if recent else 0
        for name in ("wait", "run"):
            mine = getattr(self, name)
            for number, count in added([getattr(row, name)]).items():
                mine[number] = mine.get(number, 0) + count

    @property
    def per_minute(self) -> float:
        return self.last_minutes / Tuning.rate_minutes

    def time(self, which: str, share: float) -> float | None:
        """A percentile of ``wait`` or ``run``, in seconds."""
        return percentile(getattr(self, which), share)


def rates(minutes: list[MinuteView], by: str | None, now: datetime) -> dict[str, Throughput]:
    """By queue (``queue``), by task (``task_name``), or for all (None, under "")."""
    found: dict[str, Throughput] = {}
    # without a minute that has ended but may not be counted yet: see history/roll_up
    end = (now - timedelta(seconds=2 * Tuning.history_seconds)).replace(second=0, microsecond=0)
    begin = end - timedelta(minutes=Tuning.rate_minutes)
    for row in minutes:
        name = getattr(row, by) if by else ""
        found.setdefault(name, Throughput(name)).add(row, begin <= row.at < end)
    return found


async def now(site: Site, request: Request) -> Response:
    beat = await site.pulse.beat(0.5)
    if beat.facts is None:
        problem = beat.found[0]
        return await site.problem(request, 503, problem.sentence, problem.do, page="now")
    facts = beat.facts
    operator = await site.operator(request)
    since = facts.now.replace(second=0, microsecond=0) - timedelta(minutes=_HOUR)
    minutes = await operator.reports.history(since, None, Tuning.chart_minutes)
    bad = await operator.reports.job_page(JobFilter(state="discarded"), None, 6)
    whole = rates(minutes, None, facts.now).get("", Throughput())
    by_task = sorted(
        rates(minutes, "task_name", facts.now).values(),
        key=lambda rate: (-rate.failed, -rate.completed),
    )
    return await site.render(
        request,
        "now.html",
        page="now",
        now=facts.now,
        problems=[(problem, CHECKS[problem.kind].page) for problem in beat.found],
        facts=facts,
        cap=COUNT_CAP,
        whole=whole,
        rate_minutes=Tuning.rate_minutes,
        chart=bars(per_minute(minutes, since), since),
        queues=_queues(rates(minutes, "queue", facts.now), facts),
        most=Tuning.shown_queues,
        tasks=by_task[: Tuning.shown_tasks],
        bad=bad.rows,
    )


def per_minute(minutes: list[MinuteView], since: datetime) -> list[tuple[int, int]]:
    """(completed, failed) of each of the sixty minutes that begin at ``since``."""
    found = [(0, 0)] * _HOUR
    for row in minutes:
        place = int((row.at - since).total_seconds() // 60)
        if 0 <= place < _HOUR:
            done, failed = found[place]
            found[place] = (done + row.completed, failed + row.failed)
    return found


def _queues(by_queue: dict[str, Throughput], facts: Facts) -> list[dict[str, Any]]:
    """Every queue that has jobs, had some lately, or has slots."""
    ready = {row.queue: row for row in facts.queues}
    slots: dict[str, int] = {}
    for node in facts.live_nodes:
        for queue, number in node.queues.items():
            slots[queue] = slots.get(queue, 0) + (int(number) if node.executes else 0)
    found = []
    for name in sorted({*ready, *by_queue, *slots})[: Tuning.shown_queues]:
        row = ready.get(name, _EMPTY)
        found.append(
            {
                "name": name,
                "available": row.available,
                "running": row.running,
                "capped": row.capped,
                "oldest": row.oldest_seconds,
                "oldest_id": row.oldest_id,
                "slots": slots.get(name, 0),
                "rate": by_queue.get(name, Throughput(name)),
            }
        )
    return found


_EMPTY = QueueView("", 0, 0, False, None, None)
