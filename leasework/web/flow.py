"""The pages of queues and limits, and what a person does there."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from leasework import errors
from leasework.model.limits import Rate
from leasework.tuning import Tuning
from leasework.web.site import Site, act_of, query_text


async def queues(site: Site, request: Request) -> Response:
    operator = await site.operator(request)
    return await site.render(
        request, "queues.html", page="queues", now=await operator.reports.database_now(None),
        queues=await operator.queues.all(),
        tasks=[row for row in await operator.tasks.paused() if row.kind == "task"],
    )  # fmt: skip


async def on_queue(site: Site, request: Request) -> Response:
    form = request.state.form
    name, act = form.get("name", ""), act_of(request, ("pause", "resume"))
    kind = form.get("kind", "queue")
    operator = await site.operator(request)
    control = operator.tasks if kind == "task" else operator.queues
    if act == "pause":
        await control.pause(name, reason=form.get("reason", ""))
        said = f"The {kind} {name} is paused: none of its jobs starts."
    else:
        await control.resume(name, reason=form.get("reason", ""))
        said = f"The {kind} {name} starts jobs again."
    return site.back(request, "queues", said)


async def limits(site: Site, request: Request) -> Response:
    operator = await site.operator(request)
    name = request.query_params.get("name")
    keys = await operator.limits.keys(name, Tuning.shown_rows) if name else []
    return await site.render(
        request, "limits.html", page="limits", now=await operator.reports.database_now(None),
        limits=await operator.limits.all(), name=name, keys=keys,
    )  # fmt: skip


async def on_limit(site: Site, request: Request) -> RedirectResponse | Response:
    form = request.state.form
    name, act = form.get("name", ""), act_of(request, ("set", "reset", "pause", "resume"))
    operator = await site.operator(request)
    given: dict[str, Any] = {"key": form.get("key") or None, "reason": form.get("reason", "")}
    if act != "set":
        await getattr(operator.limits, act)(name, **given)
        said = {"pause": "is paused", "resume": "starts jobs again", "reset": "is as in the code"}
        done = said[act]
    else:
        concurrency, rate = _number(form, "concurrency"), _number(form, "rate")
        if rate is not None:
            given["rate"] = Rate(rate, 1.0, _number(form, "burst"))
        if concurrency is not None:
            given["concurrency"] = int(concurrency) if concurrency % 1 == 0 else concurrency
        await operator.limits.set(name, **given)
        done = "is changed until it is reset"
    of_key = f", key {given['key']}," if given["key"] else ""
    where = f"limits?{query_text({'name': name})}" if of_key else "limits"
    return site.back(request, where, f"The limit {name}{of_key} {done}.")


def _number(form: dict[str, str], field: str) -> float | None:
    text = form.get(field, "").strip()[:20]
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise errors.ConfigError(f"{field} must be a number", got=text) from None
