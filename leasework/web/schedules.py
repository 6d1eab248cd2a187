"""The schedules page: each one in words and its last ticks."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from leasework.app.schedules import spec_of
from leasework.config import SILENT_SCHEDULE_SECONDS
from leasework.errors import BadPayload, BadSchedule, LeaseworkError
from leasework.model.job import encode
from leasework.model.masking import MASK, masked
from leasework.model.missed import Missed
from leasework.model.schedule import Every, Spec
from leasework.store.rows import StoredSchedule, TickView
from leasework.tuning import Tuning
from leasework.web.site import Site
from leasework.web.words import short

_MOST_ARGUMENT_BYTES = 8_192


async def listing(site: Site, request: Request, wrong: str = "") -> Response:
    """The page. ``wrong``: why the posted form was refused, which is shown again."""
    operator = await site.operator(request)
    now = await operator.reports.database_now(None)
    # which page: its forms keep it in their addresses
    page = {
        name: request.query_params.get(name, "") for name in ("q", "after_app", "after", "view")
    }
    rows = await operator.reports.schedules(
        Tuning.shown_schedules + 1,
        prefix=page["q"].strip(),
        after=page["after"],
        after_app=page["after_app"],
        longest=_MOST_ARGUMENT_BYTES,
    )
    more, rows = len(rows) > Tuning.shown_schedules, rows[: Tuning.shown_schedules]
    ticks: dict[tuple[str, str], list[TickView]] = {}
    apps, names = [row.app for row in rows], [row.name for row in rows]
    for tick in await operator.reports.ticks_of(apps, names, Tuning.shown_ticks):
        ticks.setdefault((tick.app, tick.schedule), []).append(tick)
    nodes = await operator.reports.nodes(Tuning.shown_nodes)
    return await site.render(
        request,
        "schedules.html",
        400 if wrong else 200,
        page="schedules",
        wrong=wrong,
        typed=request.state.form if wrong else {},
        policies=list(Missed),
        apps=sorted({node.app for node in nodes if node.tasks}),
        tasks=sorted({task for node in nodes for task in node.tasks}),
        queues=sorted({queue for node in nodes for queue in node.queues}),
        now=now,
        schedules=sorted(
            (shown(row, ticks.get((row.app, row.name), []), now) for row in rows), key=_trouble
        ),
        several=len({*apps, page["after_app"] or apps[0]}) > 1 if apps else False,
        given_page=page,
        more={"q": page["q"], "after_app": apps[-1], "after": names[-1]} if more else None,
    )


def _trouble(schedule: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Sorts those with trouble first: silent, failed or missed, paused."""
    last = schedule["ticks"][-1]["marks"].split() if schedule["ticks"] else ()
    bad = {"discarded", "quarantined", "missed"} & {*last}
    return not schedule["silent"], not bad, not schedule["paused"]


def shown(row: StoredSchedule, ticks: list[TickView], now: datetime) -> dict[str, Any]:
    """A schedule with its chart and its last ticks, the oldest first."""
    readable = False  # if a newer version has written it
    with suppress(LeaseworkError):
        readable = bool(Spec.from_json(row.spec))
    editable = readable and not row.in_code and "payload" in row.job
    late = row.next_at is not None and not row.paused and now - row.next_at
    silent = bool(late and late > timedelta(seconds=SILENT_SCHEDULE_SECONDS))
    return {
        **row._asdict(),
        "ticks": [{**tick._asdict(), **told(tick)} for tick in reversed(ticks)],
        "silent": silent,
        "editable": editable,
    }


def told(tick: TickView) -> dict[str, str]:
    """A tick in words, and the CSS classes of its mark."""
    outcome, ran, late = tick.outcome, tick.ran_seconds, tick.lateness_seconds
    words, marks = [outcome], [outcome]
    if outcome == "unknown":
        words = ["outcome unknown: its job is no longer stored"]
    elif ran is not None:
        words.append(f"for {short(ran)}" if outcome == "running" else f"took {short(ran)}")
    if tick.state == "manual":
        words.append("run by hand")
        marks.append("manual")
    elif tick.state == "fired":
        words.append(f"{short(late)} late")
        if late > Tuning.late_tick_seconds:
            marks.append("late")
    return {"says": ", ".join(words), "marks": " ".join(marks)}


def read_spec(form: dict[str, str], before: Spec | None) -> Spec:
    """The moments in a form. An interval keeps the anchor of ``before``. Raises BadSchedule."""
    cron, every, at = (form.get(name, "").strip() for name in ("cron", "every", "at"))
    do = "Enter 3600 for an interval, or 2030-01-31T07:00:00Z for a moment"
    wrong = BadSchedule(
        "not a number of seconds, or a time with a time zone", got=at or every, do=do
    )
    try:
        seconds = float(every) if every else None
        moment = datetime.fromisoformat(at) if at else None
    except ValueError:
        raise wrong from None
    if moment is not None and moment.utcoffset() is None:
        raise wrong
    anchor = before.anchor if isinstance(before, Every) and seconds is not None else None
    timezone = form.get("timezone", "").strip() if cron else "UTC"
    return spec_of(cron or None, seconds, moment, timezone, anchor)


def read_arguments(form: dict[str, str], before: dict[str, Any], limit: int) -> dict[str, Any]:
    """The arguments in a form. One that is as the page showed it, perhaps with a masked secret,
    keeps its value of ``before``. Raises BadPayload."""
    text, shown = form.get("arguments", "").strip() or "{}", masked(before)
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        do = 'Enter an object, such as {"customer": 42}'
        raise BadPayload("the arguments are not a JSON object", got=text, do=do)
    label = "the arguments"
    for name in given.keys() & before.keys():
        if encode(label, given[name], limit) == encode(label, shown[name], limit):
            given[name] = before[name]
    if MASK in encode(label, given, limit):
        do = "Write the secrets of that argument in full, or leave it as it was"
        raise BadPayload(f"{MASK} stands for a secret that the page does not show", do=do)
    return given
