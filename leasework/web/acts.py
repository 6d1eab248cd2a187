"""What a person does: the posted forms. Each action is recorded as an event with the person."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from leasework import errors
from leasework.config import Limits, check_text
from leasework.jobs.client import job_id_of
from leasework.model.job import JobOptions, Unreadable, decode, needed
from leasework.model.missed import Missed, default_grace
from leasework.model.schedule import Spec
from leasework.tuning import Tuning
from leasework.watch.bulk import ACTS, CHANGED, skipped_by
from leasework.watch.operator import Operator, drained
from leasework.web.gate import COOKIE, keep
from leasework.web.jobs import job_of, read_filter
from leasework.web.schedules import listing, read_arguments, read_spec
from leasework.web.site import Site, act_of, query_text

_ON_ONE = ("cancel_family", "signal", "reprioritize", "requeue", "stack")
"""Those on one job only."""


async def on_job(site: Site, request: Request) -> Response:
    job = job_of(request)
    operator = await site.operator(request)
    act = act_of(request, (*ACTS, *_ON_ONE), errors.BadJob)
    if act == "cancel":
        where = await operator.cancel(job)
        said = {"waiting": "Job cancelled.", "running": "Cancellation requested."}
    elif act == "cancel_family":
        where = await operator.cancel(job, family=True)
        said = dict.fromkeys(("waiting", "running", "finished"), "The family was cancelled.")
    elif act == "signal":
        name, text = request.state.form.get("signal", ""), request.state.form.get("payload", "")
        value = decode(text) if text.strip() else None
        if isinstance(value, Unreadable):
            raise errors.BadPayload("a signal's payload must be JSON", got=text)
        where = await operator.signal(job, name, value)
        said = {"sent": "Signal sent.", "kept": f"It does not wait for {name} now: signal kept."}
    elif act == "retry":
        where = await operator.retry(job, request.state.form.get("step") or None)
        said = {"waiting": "Job queued to run now.", "finished": "Job queued to run now."}
    elif act == "discard":
        where = await operator.discard(job)
        said = {"waiting": "Job discarded.", "quarantined": "Job discarded."}
    elif act == "requeue":
        where = str(await operator.requeue(job) or "not running")
        said = {"available": "Job taken from its worker and queued again."}
    elif act == "reprioritize":
        text = request.state.form.get("priority", "")[:10].strip()
        number: Any = int(text) if text.removeprefix("-").isdecimal() else text
        where = await operator.reprioritize(job, number)
        said = {"waiting": f"Job given the priority {number}."}
    else:
        asked = await operator.ask_stack(job)
        where = "asked" if asked else "not running"
        said = {"asked": "Stack requested from the node."}
    nothing = {
        "running": "The job is running: cancel it first.",
        "finished": "The job has already finished.",
    }
    told = said.get(where) or nothing.get(where, f"Nothing to do: the job is {where}.")
    return site.back(request, f"jobs/{job}", told, bad=where not in said)


async def bulk(site: Site, request: Request) -> Response:
    act, text = act_of(request, ACTS, errors.BadJob), request.state.form.get("q", "").strip()
    operator = await site.operator(request)
    done = await operator.bulk(act, read_filter(text), text, seconds=Tuning.page_act_seconds)
    said = _changed(done.changed, act)
    if skipped := skipped_by(done):
        said += f" {skipped}"
    if done.more:
        said += " More jobs may match. The command `leasework jobs` has no time limit."
    bad = bool(done.held or done.more or not done.changed)
    return site.back(request, f"jobs?{query_text({'q': text})}", said, bad=bad)


def _changed(count: int, act: str) -> str:
    verb = {
        "retry": "queued to run now",
        "cancel": "cancelled, or cancellation requested if running",
        "discard": "discarded",
    }
    return f"{count:,} job{'' if count == 1 else 's'} {verb[act]}."


async def selected(site: Site, request: Request) -> Response:
    """Act on the chosen rows of a list, on each as on a single job."""
    act, form = act_of(request, ACTS, errors.BadJob), request.state.form
    jobs = [job_id_of(name[4:]) for name in form if name.startswith("job:")]
    if not jobs:
        raise errors.BadJob("no job is selected", do="Tick the boxes of at least one row")
    operator, changed = await site.operator(request), 0
    ends_at = site.app.env.boot_now() + Tuning.page_act_seconds
    for job in jobs:
        if site.app.env.boot_now() < ends_at:
            with suppress(errors.JobNotFound, errors.Conflict):
                changed += await getattr(operator, act)(job) in CHANGED[act]
    said = _changed(changed, act)
    if left := len(jobs) - changed:
        said += f" {left} left as before: finished or running, or a transaction holds the row."
    return site.back(request, f"jobs?{query_text({'q': form.get('q', '')})}", said, bad=left > 0)


async def on_schedule(site: Site, request: Request) -> Response:
    form = request.state.form
    name, app = form.get("name", ""), form.get("app") or None
    act = act_of(request, ("run", "pause", "resume", "remove"), errors.BadSchedule)
    operator = await site.operator(request)
    if act == "run":
        job = await operator.run_now(name, app)
        return site.back(request, f"jobs/{job}", f"{name} is queued to run now.")
    if act == "pause":
        said = f"{name} of {await operator.pause(name, app)} is paused."
    elif act == "resume":
        said = f"{name} of {await operator.resume(name, app)} is resumed."
    else:
        said = f"{name} of {await operator.remove_schedule(name, app)} was removed."
    return site.back(request, _here(request), said)


def _here(request: Request) -> str:
    """The page of schedules on which the form was."""
    return "schedules" + (f"?{request.url.query}" if request.url.query else "")


async def put_schedule(site: Site, request: Request) -> Response:
    """Make a schedule, or edit one that was put."""
    form, operator = request.state.form, await site.operator(request)
    name, app, act = form.get("name", ""), form.get("app", ""), form.get("act", "")
    try:
        for text in (name, app):
            check_text("a name", text, Limits.text_chars)
        old = await operator.reports.get_schedule(app, name)
        if act == "new" and old is not None:
            raise errors.BadSchedule(f"a schedule named {name!r} exists", do="Choose another name")
        if act != "new" and (old is None or old.release != form.get("release")):
            raise errors.BadSchedule(
                f"the schedule {name!r} has changed since you loaded the page",
                do="Load the page again, then repeat your change",
            )
        before = Spec.from_json(old.spec) if old else None
        spec = read_spec(form, before)
        grace = default_grace(spec)
        if old and before and old.grace_seconds != default_grace(before):
            grace = old.grace_seconds
        job = dict(old.job) if old else await _job(operator, app, form)
        limit = site.app.settings.payload_limit
        given = read_arguments(form, job.get("payload", {}), limit)
        if given != job.get("payload", given) and {"limits", "tenant"} & job.keys():
            raise errors.BadSchedule(
                "the limits of its jobs depend on their arguments, which only code can change",
                do="Use app.schedules.put(…)",
            )
        job["payload"] = given
        missed = Missed.parse(form.get("missed"))
        await operator.put_schedule(app, name, spec, job, missed, grace)
    except errors.UsageError as error:
        return await listing(site, request, str(error))
    return site.back(request, _here(request), f"{name} of {app} is stored.")


async def _job(operator: Operator, app: str, form: dict[str, str]) -> dict[str, Any]:
    """The options of the jobs of a new schedule: the defaults, in the form's queue."""
    nodes, given = await operator.inspector.nodes(), form.get("task", "")
    known = {task for node in nodes if node.app == app for task in node.tasks}
    if given not in known:
        what = f"no live node of the application {app!r} knows this task"
        raise errors.UnknownTask(what, got=given, do=errors.suggest(given, known))
    if any(given in ((node.info or {}).get("limited") or ()) for node in nodes):
        raise errors.BadSchedule(
            f"the task {given!r} has limits, and only code can name them",
            do="Use app.schedules.put(…)",
        )
    task, version = needed(given)
    return JobOptions(task, queue=form.get("queue", "default"), version=version).as_json


async def on_node(site: Site, request: Request) -> Response:
    node = request.state.form.get("node", "")
    act = act_of(request, ("halt", "resume", "drain", "seen"), errors.BadNode)
    operator = await site.operator(request)
    if act == "halt":
        said = f"{await operator.halt(node)} stops claiming jobs at its next renewal."
    elif act == "resume":
        said = f"{await operator.resume_node(node)} claims jobs again."
    elif act == "drain":
        said = drained(*await operator.drain_node(node))
    else:
        count = await operator.seen(node or None)
        said = f"{count} dead node{'' if count == 1 else 's'} acknowledged."
        return site.back(request, "now", said)
    return site.back(request, "nodes", said)


async def end_sessions(site: Site, request: Request) -> Response:
    act_of(request, ("end",))
    await (await site.operator(request)).end_sessions()
    return site.back(request, "now", "All sessions have ended.")


async def ask_login(site: Site, request: Request, status: int = 200, wrong: str = "") -> Response:
    named = bool(site.rules.login and site.rules.login.people)
    return await site.render(request, "login.html", status, page="", wrong=wrong, named=named)


async def login(site: Site, request: Request) -> Response:
    who = await request.state.gate.enter(request)
    if who is None:
        return await ask_login(site, request, 403, "Wrong name or token, or too many attempts.")
    root = request.scope.get("root_path", "")
    response = RedirectResponse(f"{root}/now", status_code=303)
    epoch, *_ = await (await site.app.operator("", "web")).reports.session("")
    cookie = site.sessions.pack(site.sessions.new(who, epoch))
    keep(response, request, COOKIE, cookie, Tuning.login_seconds)
    return response


async def logout(site: Site, request: Request) -> Response:
    session = request.state.session
    if site.rules.login and session.epoch >= 0:
        store = (await site.app.operator("", "web")).store
        with suppress(errors.PermissionDenied):  # with a login of the database that only reads
            await store.end_session(session.nonce, site.app.env.due_now())
    root = request.scope.get("root_path", "")
    response = RedirectResponse(f"{root}/login", status_code=303)
    response.delete_cookie(COOKIE, path=root or "/")
    return response
