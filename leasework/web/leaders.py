"""The leaders page: who led when, according to the database and to each process."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from markupsafe import Markup
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from leasework.store.rows import EventView, LeaderView, NodeView, TermView
from leasework.tuning import Tuning
from leasework.watch.terms import HELD, EndedTerm, with_ends
from leasework.web.charts import Bar, ruler, term_bars
from leasework.web.site import Site
from leasework.web.words import full, term

SPANS = {"1h": 3600, "6h": 6 * 3600, "24h": 86400, "7d": 7 * 86400}


class Overlap(Struct, frozen=True):
    """A time during which two processes both believed that they led."""

    name: str
    first: datetime
    last: datetime
    old: str
    new: str


@dataclass
class ElectionRow:
    row: LeaderView
    beliefs: list[tuple[str, int, bool]] = field(default_factory=list)
    """(worker, the term that it believes it holds, whether the database agrees)"""
    overlaps: list[Overlap] = field(default_factory=list)
    rows: list[tuple[str, Markup]] = field(default_factory=list)
    hidden: int = 0
    terms: list[EndedTerm] = field(default_factory=list)


async def listing(site: Site, request: Request) -> Response:
    span = request.query_params.get("span", "1h")
    span = span if span in SPANS else "1h"
    operator = await site.operator(request)
    now = await operator.reports.database_now(None)
    since = now - timedelta(seconds=SPANS[span])
    terms = await operator.reports.terms_since(since, Tuning.chart_terms)
    events = await operator.reports.lease_events(since - timedelta(days=1), 5000)
    leaders = await operator.reports.leaders(100)
    nodes = await operator.reports.nodes(Tuning.shown_nodes)
    elections = [
        election(row, [t for t in terms if t.name == row.name], events, nodes, since, now)
        for row in leaders
    ]
    return await site.render(
        request, "leaders.html", page="leaders", now=now, span=span, spans=SPANS,
        elections=elections, ruler=ruler(since, now),
    )  # fmt: skip


def election(
    row: LeaderView,
    terms: list[TermView],
    events: list[EventView],
    nodes: list[NodeView],
    since: datetime,
    now: datetime,
) -> ElectionRow:
    """``terms``: those of this election, in any order."""
    name = row.name
    ended = with_ends(terms, events, [row], now)
    held, believed = stretches(ended, now)
    found = ElectionRow(row, terms=ended[: Tuning.shown_terms])
    found.overlaps = [o for o in overlaps(name, believed) if o.last >= since]
    for node in nodes:
        token = ((node.info or {}).get("leads") or {}).get(name)
        if token is not None:
            agrees = node.id == row.node and token == row.term
            found.beliefs.append((node.worker_id, int(token), agrees))
    workers = list(dict.fromkeys(w for w, bar in reversed(held) if bar.last >= since))
    found.hidden = max(len(workers) - Tuning.shown_workers, 0)
    for worker in workers[: Tuning.shown_workers]:
        parts = [bar for w, bar in [*held, *believed] if w == worker and bar.last >= since]
        parts += [
            Bar(o.first, o.last, "overlap", f"{o.old} and {o.new} both acted as leader")
            for o in found.overlaps
            if worker in (o.old, o.new)
        ]
        found.rows.append((worker, term_bars(parts, since, now, f"{name} on {worker}")))
    return found


Stretch = tuple[str, Bar]


def stretches(terms: list[EndedTerm], now: datetime) -> tuple[list[Stretch], list[Stretch]]:
    """(worker, bar) of each term, according to the database and according to the process. In the
    database a term lasts until the next one begins."""
    held: list[Stretch] = []
    believed: list[Stretch] = []
    following: datetime | None = None
    for one in sorted(terms, key=lambda one: -one.term):
        first, label = one.acquired_at, f"term {term(one.term)}"
        ended = now if one.ended == HELD else max(one.ended_at or first, first)
        by_row = following or ended
        says = f"{label}: {full(first)} to {full(by_row)}"
        held.append((one.holder, Bar(first, by_row, "held", says)))
        says = f"{one.holder} acted as leader in {label} until {full(ended)}"
        believed.append((one.holder, Bar(first, ended, "believed", says)))
        following = first
    return held[::-1], believed[::-1]


def overlaps(name: str, believed: list[Stretch]) -> list[Overlap]:
    """The times when two processes both believed that they led."""
    found = []
    ordered = sorted(believed, key=lambda stretch: stretch[1].first)
    for place, (old, first) in enumerate(ordered):
        for new, second in ordered[place + 1 :]:
            if second.first >= first.last:
                break
            if new != old:
                found.append(Overlap(name, second.first, min(first.last, second.last), old, new))
    return found
