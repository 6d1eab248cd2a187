"""The page of a queue or a task over time: how many jobs finished, how many attempts failed, and
how long jobs waited and ran."""

from __future__ import annotations

from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from leasework import errors
from leasework.web.charts import bars, ruler
from leasework.web.overview import Throughput
from leasework.web.site import Site
from leasework.web.words import short

SPANS = {
    "1h": (3600, 60, 1),
    "6h": (21_600, 300, 1),
    "24h": (86_400, 1200, 5),
    "7d": (604_800, 7200, 20),
    "14d": (1_209_600, 14_400, 60),
}
"""The length in seconds, that of a part, and of which share of the minutes the times are."""


async def history(site: Site, request: Request) -> Response:
    query = request.query_params
    span = query.get("span", "24h")
    span = span if span in SPANS else "24h"
    kind = next((kind for kind in ("queue", "task") if query.get(kind)), "")
    if not kind:
        raise errors.ConfigError("name a queue or a task", do="history?queue=NAME or ?task=NAME")
    operator = await site.operator(request)
    seconds, step, every = SPANS[span]
    now = await operator.reports.database_now(None)
    end = now.replace(second=0, microsecond=0)
    since = end - timedelta(seconds=seconds)
    given = {"queue": None, "task": None, kind: query[kind]}
    rows = await operator.lists.history_parts(since, float(step), every, **given)
    whole = Throughput(query[kind])
    parts = [Throughput() for _ in range(seconds // step + 1)]
    for row in rows:
        for one in (whole, parts[int((row.at - since).total_seconds() // step)]):
            one.add(row, recent=False)
    charts = [
        (
            "Finished jobs and failed attempts",
            bars([(part.finished, part.failed) for part in parts], since, step),
            f"{max(part.finished + part.failed for part in parts):,}",
            (("done", "finished jobs"), ("bad", "failed attempts")),
        )
    ]
    for name, title in (("wait", "Wait time"), ("run", "Run time")):
        times = [(part.time(name, 0.5) or 0.0, part.time(name, 0.95) or 0.0) for part in parts]
        said = [f"median {short(mid)}, p95 {short(far)}" for mid, far in times]
        drawn = [(mid, max(far - mid, 0.0)) for mid, far in times]
        charts.append(
            (
                title,
                bars(drawn, since, step, ("done", "far"), said, title),
                short(max(far for _, far in times)),
                (("done", "median"), ("far", "95 %")),
            )
        )
    return await site.render(
        request, "history.html", page="queues" if kind == "queue" else "now", kind=kind,
        name=query[kind], span=span, spans=SPANS, every=every, whole=whole, charts=charts, now=now,
        ruler=ruler(since, now),
    )  # fmt: skip
