"""The list pages: nodes, locks, deadlines, the database's health, and events."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from leasework import errors
from leasework.model.deadline import STATES
from leasework.telemetry import CATALOGUE
from leasework.tuning import Tuning
from leasework.watch.facts import bloated, stale
from leasework.watch.inspector import check_kind
from leasework.web.site import Site

LEVELS = ("info", "warning", "error")


async def nodes(site: Site, request: Request) -> Response:
    operator = await site.operator(request)
    now = await operator.reports.database_now(None)
    rows = await operator.reports.nodes(Tuning.shown_nodes)
    return await site.render(
        request, "nodes.html", page="nodes", now=now,
        nodes=[(n, n.info or {}, stale(n), sum(n.queues.values())) for n in rows],
    )  # fmt: skip


async def locks(site: Site, request: Request) -> Response:
    operator = await site.operator(request)
    rows = await operator.reports.locks(Tuning.shown_rows)
    rows.sort(key=lambda row: (bool(row.granted), str(row.name)))
    return await site.render(
        request, "locks.html", page="locks", now=await operator.reports.database_now(None),
        locks=rows, waiting=sum(not row.granted for row in rows),
    )  # fmt: skip


async def deadlines(site: Site, request: Request) -> Response:
    state = request.query_params.get("state") or None
    if state is not None and state not in STATES:
        raise errors.ConfigError(f"no state is {state[:40]!r}", do=errors.suggest(state, STATES))
    operator = await site.operator(request)
    return await site.render(
        request, "deadlines.html", page="deadlines", state=state, states=STATES,
        now=await operator.reports.database_now(None),
        deadlines=await operator.reports.deadlines(state, None, Tuning.shown_rows),
        unhandled=await operator.inspector.unhandled_breaches(20),
    )  # fmt: skip


async def database(site: Site, request: Request) -> Response:
    operator = await site.operator(request)
    old = site.app.settings.pin_seconds
    transactions = await operator.reports.transactions(20)
    pinning = max(transactions, key=lambda one: one.open_seconds or 0.0, default=None)
    return await site.render(
        request,
        "database.html",
        page="database",
        now=await operator.reports.database_now(None),
        tables=[(table, bloated(table)) for table in await operator.reports.tables()],
        transactions=transactions,
        pinning=pinning if pinning and (pinning.open_seconds or 0) > old else None,
        waits=await operator.reports.waits(50),
        old=old,
    )


async def events(site: Site, request: Request) -> Response:
    kind = request.query_params.get("kind") or None
    level = request.query_params.get("level") or None
    check_kind(kind)
    if level is not None and level not in LEVELS:
        raise errors.ConfigError(f"no level is {level[:40]!r}", do=errors.suggest(level, LEVELS))
    before = request.query_params.get("before") or None
    if before is not None and not (before.isascii() and before.isdigit() and len(before) <= 18):
        raise errors.ConfigError("before must be an event's number", got=before[:40])
    operator = await site.operator(request)
    rows, more = await operator.reports.event_page(
        kind, level, int(before) if before else None, Tuning.shown_events
    )
    return await site.render(
        request, "events.html", page="events", now=await operator.reports.database_now(None),
        events=rows, more=more, kind=kind, level=level, before=before, kinds=CATALOGUE,
        levels=LEVELS,
    )  # fmt: skip
