"""The page of schedules: in words, the next 24 hours, the last ticks."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from leasehold.errors import LeaseholdError
from leasehold.model.schedule import Every, Spec
from leasehold.ports import Rows
from leasehold.web.charts import DAY, ruler, strip
from leasehold.web.site import Site

MOST = 200
_MOST_MARKS = 192
_TICKS = 24
LATE_SECONDS = 5.0


async def listing(site: Site, request: Request) -> Response:
    operator = await site.operator(request)
    now = await operator.store.database_now("", None)
    rows = await operator.reports.schedules(MOST)
    ticks: dict[tuple[str, str], Rows] = {}
    for tick in await operator.reports.ticks(_TICKS):
        ticks.setdefault((tick["app"], tick["schedule"]), []).append(tick)
    return await site.render(
        request,
        "schedules.html",
        page="schedules",
        now=now,
        schedules=[shown(row, ticks.get((row["app"], row["name"]), []), now) for row in rows],
        hours=ruler(now, now + DAY, 4)[:4],
        late=LATE_SECONDS,
        several=len({row["app"] for row in rows}) > 1,
    )


def shown(row: dict[str, Any], ticks: Rows, now: datetime) -> dict[str, Any]:
    """A schedule with its picture and its last ticks, the oldest first."""
    try:
        spec = Spec.from_json(row["spec"])
        moments, crowded = next_day(spec, now)
        words = row["described"] if crowded else f"{len(moments)} times"
        picture = strip(moments, now, crowded, words)
    except LeaseholdError:  # written by a newer version
        picture, moments, crowded = None, [], False
    late = row["next_at"] is not None and not row["paused"] and now - row["next_at"]
    silent = bool(late and late > timedelta(seconds=30))
    return {
        **row,
        "strip": picture,
        "in_day": len(moments),
        "crowded": crowded,
        "ticks": list(reversed(ticks)),
        "silent": silent,
    }


def next_day(spec: Spec, now: datetime) -> tuple[list[datetime], bool]:
    """The moments of the next 24 hours; True: too many to be drawn one by one."""
    if isinstance(spec, Every) and DAY.total_seconds() / spec.seconds > _MOST_MARKS:
        return [], True
    found: list[datetime] = []
    moment = spec.next_after(now)
    while moment is not None and moment < now + DAY:
        if len(found) >= _MOST_MARKS:
            return [], True
        found.append(moment)
        moment = spec.next_after(moment)
    return found, False
