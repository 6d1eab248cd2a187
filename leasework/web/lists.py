"""The list pages: failures, nodes, locks, deadlines, the database's health, and events."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from leasework import errors
from leasework.model.deadline import STATES
from leasework.model.filter import JobFilter, seconds_ago
from leasework.model.masking import masked
from leasework.store.rows import EventView
from leasework.telemetry import CATALOGUE
from leasework.tuning import Tuning
from leasework.watch.facts import bloated, stale
from leasework.watch.inspector import check_kind
from leasework.web.download import download, wanted
from leasework.web.site import Site, act_of

LEVELS = ("info", "warning", "error")
SPANS = ("1h", "6h", "24h", "7d")


async def failures(site: Site, request: Request) -> Response:
    span = request.query_params.get("span", "")
    span = span if span in SPANS else "24h"
    operator = await site.operator(request)
    return await site.render(
        request, "failures.html", page="failures", span=span, spans=SPANS,
        now=await operator.reports.database_now(None),
        groups=await operator.failures(seconds_ago(span), Tuning.shown_jobs),
    )  # fmt: skip


async def nodes(site: Site, request: Request) -> Response:
    operator = await site.operator(request)
    now = await operator.reports.database_now(None)
    rows = await operator.reports.nodes(Tuning.shown_nodes)
    return await site.render(
        request, "nodes.html", page="nodes", now=now,
        nodes=[(n, n.info or {}, stale(n), sum(n.queues.values())) for n in rows],
    )  # fmt: skip


async def node(site: Site, request: Request) -> Response:
    operator, given = await site.operator(request), request.path_params["node"]
    rows = await operator.reports.nodes(Tuning.shown_nodes)
    row = next((row for row in rows if str(row.id) == given), None)
    if row is None:
        do = "The page Nodes lists those that are alive"
        raise errors.BadNode("this node is gone", got=given[:60], do=do)
    running = JobFilter(state="running", node=given)
    events, _ = await operator.reports.event_page(
        None, None, None, Tuning.shown_node_events, row.worker_id
    )
    return await site.render(
        request, "node.html", page="nodes", now=await operator.reports.database_now(None),
        node=row, info=row.info or {}, silent=stale(row), events=events,
        jobs=await operator.reports.job_page(running, None, Tuning.shown_jobs),
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
    operator = await site.operator(request)
    return await site.render(
        request, "deadlines.html", page="deadlines", state=state, states=STATES,
        now=await operator.reports.database_now(None),
        deadlines=await operator.inspector.deadlines(state, None, Tuning.shown_rows),
        unhandled=await operator.inspector.unhandled_breaches(20),
    )  # fmt: skip


async def database(site: Site, request: Request) -> Response:
    operator = await site.operator(request)
    old = site.app.settings.pin_seconds
    transactions = await operator.reports.transactions(20)
    blockers = await operator.reports.blockers()
    # reading sizes waits for whoever has locked a table
    locked = any(row.table for row in blockers)
    tables = None if locked else await operator.reports.tables()
    pinning = max(transactions, key=lambda one: one.open_seconds or 0.0, default=None)
    return await site.render(
        request,
        "database.html",
        page="database",
        now=await operator.reports.database_now(None),
        tables=None if tables is None else [(table, bloated(table)) for table in tables],
        blockers=blockers,
        transactions=transactions,
        pinning=pinning if pinning and (pinning.open_seconds or 0) > old else None,
        waits=await operator.reports.waits(50),
        old=old,
    )


async def on_problem(site: Site, request: Request) -> Response:
    form = request.state.form
    kind, subject = form.get("kind", ""), form.get("subject", "")
    operator = await site.operator(request)
    if act_of(request, ("silence", "end")) == "end":
        await operator.silence(kind, subject, 0, "")
        return site.back(request, "now", f"{kind} is not silenced any more.")
    seconds = int(text) if (text := form.get("seconds", "")[:10]).isdecimal() else -1
    await operator.silence(kind, subject, seconds, form.get("reason", ""))
    return site.back(request, "now", f"{kind} is silenced.")


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
    if form := wanted(request):
        found = await operator.inspector.events(kind, limit=Tuning.read_rows)
        kept = [row for row in found if level in (None, row.level)]
        return download(form, "events", [_flat(row) for row in kept])
    rows, more = await operator.lists.event_page(
        kind, level, int(before) if before else None, Tuning.shown_events
    )
    return await site.render(
        request, "events.html", page="events", now=await operator.reports.database_now(None),
        events=rows, more=more, kind=kind, level=level, before=before, kinds=CATALOGUE,
        levels=LEVELS,
    )  # fmt: skip


def _flat(row: EventView) -> dict[str, Any]:
    """An event with its fields beside the rest, whose names are not replaced."""
    own = {"at": row.at, "kind": row.kind, "level": row.level, "worker_id": row.worker_id}
    return {**own, **masked(row.fields), **own}
