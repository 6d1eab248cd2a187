"""The schedules page: each one in words, its next 24 hours and its last ticks."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from leasehold.errors import LeaseholdError
from leasehold.model.schedule import Every, Spec
from leasehold.ports import ScheduleDetail, TickView
from leasehold.web.charts import DAY, ruler, strip
from leasehold.web.site import Site
from leasehold.web.words import short

MOST = 200
_MOST_MARKS = 192
_TICKS = 24
LATE_SECONDS = 5.0


async def listing(site: Site, request: Request) -> Response:
    operator = await site.operator(request)
    now = await operator.store.database_now(None)
    rows = await operator.reports.schedules(MOST)
    ticks: dict[tuple[str, str], list[TickView]] = {}
    for tick in await operator.reports.ticks(_TICKS):
        ticks.setdefault((tick.app, tick.schedule), []).append(tick)
    return await site.render(
        request,
        "schedules.html",
        page="schedules",
        now=now,
        schedules=[shown(row, ticks.get((row.app, row.name), []), now) for row in rows],
        hours=ruler(now, now + DAY, 4)[:4],
        several=len({row.app for row in rows}) > 1,
    )


def shown(row: ScheduleDetail, ticks: list[TickView], now: datetime) -> dict[str, Any]:
    """A schedule with its chart and its last ticks, the oldest first."""
    try:
        spec = Spec.from_json(row.spec)
        moments, crowded = next_day(spec, now)
        words = row.described if crowded else f"{len(moments)} times"
        picture = strip(moments, now, crowded, words)
    except LeaseholdError:  # written by a newer version
        picture, moments, crowded = None, [], False
    late = row.next_at is not None and not row.paused and now - row.next_at
    silent = bool(late and late > timedelta(seconds=30))
    return {
        **row._asdict(),
        "strip": picture,
        "in_day": len(moments),
        "crowded": crowded,
        "ticks": [{**tick._asdict(), **told(tick)} for tick in reversed(ticks)],
        "silent": silent,
    }


def told(tick: TickView) -> dict[str, str]:
    """A tick in words, and the CSS classes of its mark."""
    outcome, ran, late = tick.outcome, tick.ran_seconds, tick.lateness_seconds
    by_hand = tick.state == "manual"
    words, marks = [outcome], [outcome]
    if outcome == "unknown":
        words = ["outcome unknown: nothing is kept of its job"]
    elif ran is not None:
        words.append(f"for {short(ran)}" if outcome == "running" else f"took {short(ran)}")
    if by_hand:
        words.append("run by hand")
        marks.append("manual")
    elif tick.state == "fired":
        words.append(f"{short(late)} late")
        if late > LATE_SECONDS:
            marks.append("late")
    return {"says": ", ".join(words), "marks": " ".join(marks)}


def next_day(spec: Spec, now: datetime) -> tuple[list[datetime], bool]:
    """The moments of the next 24 hours, and whether they are too many to draw one by one."""
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
