"""The job pages: a filtered list, the preview of a bulk action, and a single job."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from leasework import errors
from leasework.model import filter as filters
from leasework.model.filter import JobFilter
from leasework.model.job import JobRecord
from leasework.model.masking import SECRET, masked_row
from leasework.model.states import FINISHED
from leasework.store.durable import in_order
from leasework.store.rows import AttemptView, EventView, JobDetail, StackView
from leasework.tuning import Tuning
from leasework.watch.bulk import acts_on
from leasework.watch.checks import COUNT_CAP
from leasework.watch.operator import Operator
from leasework.web.download import download, wanted
from leasework.web.site import Site
from leasework.web.words import short, term


def read_filter(text: str) -> JobFilter:
    """The filter that the text describes. Raises BadFilter."""
    return filters.parse(text, SECRET)


async def listing(site: Site, request: Request) -> Response:
    text = request.query_params.get("q", "").strip()
    after = request.query_params.get("after") or None
    operator = await site.operator(request)
    now = await operator.reports.database_now(None)
    given: dict[str, Any] = {
        "page": "jobs", "q": text, "after": after, "now": now, "wrong": "", "jobs": None,
        "states": filters.STATES, "wanted": JobFilter(), "counts": None, "batch": None,
    }  # fmt: skip
    try:
        given["wanted"] = read_filter(text)
        given["acts"] = acts_on(given["wanted"].state)
        form = wanted(request)
        most = Tuning.read_rows if form else Tuning.shown_jobs
        given["jobs"] = await operator.lists.job_page(given["wanted"], after, most)
        if form:
            return download(form, "jobs", [masked_row(row) for row in given["jobs"].rows])
        given["counts"] = await counts(site, operator, given["wanted"])
        if (batch := given["wanted"].batch) is not None:
            given["batch"] = await operator.reports.get_batch(batch)
    except errors.BadFilter as error:
        given["wrong"] = str(error)
    return await site.render(request, "jobs.html", 400 if given["wrong"] else 200, **given)


async def counts(site: Site, operator: Operator, wanted: JobFilter) -> dict[str, str] | None:
    """How many jobs of the filter's queue and task are in each state; empty, if a search that
    ended early found none. None: the filter has more conditions than those."""
    if structs.replace(wanted, state=None, queue=None, task=None) != JobFilter():
        return None
    # one search for the states that wait, one for completed jobs, one for each other final state
    searches = {"scheduled": "waiting", "retryable": "waiting", "completed": "finished"}
    most = Tuning.page_rows
    found, looked_at = Counter[str](), Counter[str]()
    for part, state, these, read in await operator.lists.states(wanted.queue, wanted.task, most):
        looked_at[state if part == "bad" else part] += read
        if part != "finished" or state == "completed":
            found[state] += these
    full = {"finished": 2 * most}
    ended_early = {name for name, read in looked_at.items() if read >= full.get(name, most)}
    cut = {state for state in filters.STATES if searches.get(state, state) in ended_early}
    facts = (await site.pulse.beat()).facts
    if wanted.task or facts is None:
        cut |= {"available", "running"}
    else:  # as in the table of queues, in status and in the metrics
        rows = [row for row in facts.queues if wanted.queue in (None, row.queue)]
        limited = [row.waiting for row in facts.limited if wanted.queue in (None, row.queue)]
        found["running"] = sum(row.running for row in rows)
        found["available"] = sum(row.available for row in rows) + sum(limited)
        many = len(facts.queues) >= Tuning.shown_queues or sum(limited) >= COUNT_CAP
        if many or any(row.capped for row in rows):
            cut |= {"available", "running"}
    return {
        state: ""
        if state in cut and not found[state]
        else f"{found[state]:,}{'+' * (state in cut)}"
        for state in filters.STATES
    }


async def preview(site: Site, request: Request) -> Response:
    """How many jobs a bulk action would change, and the form to confirm it."""
    text = request.query_params.get("q", "").strip()
    act = request.query_params.get("act", "")
    wanted = read_filter(text)
    count, more = await (await site.operator(request)).preview(wanted, act, may_stop=True)
    return await site.render(
        request,
        "bulk.html",
        page="jobs",
        q=text,
        act=act,
        count=count,
        more=more,
        seconds=Tuning.page_act_seconds,
    )


async def one(site: Site, request: Request) -> Response:
    job_id = job_of(request)
    operator = await site.operator(request)
    record = await operator.store.get(job_id)
    if record is None:
        raise errors.JobNotFound(
            "no such job", got=str(job_id), do="It may have been deleted after its retention period"
        )
    more = await operator.reports.job(job_id)
    now = await operator.reports.database_now(None)
    attempts = await operator.reports.attempts(job_id, Tuning.shown_attempts)
    until = (record.completed_at or now) + timedelta(minutes=2)
    since = record.created_at - timedelta(seconds=2)
    events = await operator.reports.job_events(job_id, since, until, 200)
    return await site.render(
        request,
        "job.html",
        page="jobs",
        job=record,
        more=more,
        now=now,
        why=await operator.why(record),
        stack=await _stack(operator, record),
        timeline=timeline(record, more, attempts, events),
        steps=await operator.reports.steps(job_id),
        inbox=await operator.reports.inbox(job_id),
        family=in_order(await operator.reports.family([job_id], Tuning.shown_jobs)),
        finished=record.state in FINISHED,
        runs=(now - record.started_at).total_seconds() if record.started_at else None,
    )


async def _stack(operator: Operator, record: JobRecord) -> StackView | None:
    """The stack that was requested, if it belongs to the current run."""
    if record.state != "running":
        return None
    found = await operator.reports.stack(record.id)
    return found if found and found.claim_token == record.claim_token else None


def job_of(request: Request) -> UUID:
    try:
        return UUID(request.path_params["job"])
    except ValueError:
        raise errors.JobNotFound(
            "a job's id is a UUID", got=request.path_params["job"][:60]
        ) from None


_OUTCOMES = {
    "retryable": "failed, will be retried", "discarded": "failed, no retries left",
    "crashed": "ended: the worker died", "cancelled": "was cancelled",
    "requeued": "was taken from its worker", "snoozed": "snoozed",
    "stopped": "returned to the queue: its worker stopped",
    "not_alone": "returned to the queue: it must run alone, and other jobs ran",
    "unknown_task": "returned to the queue: the node does not know the task",
    "unknown_version": "returned to the queue: the node does not know this version of the task",
    "unreadable": "returned to the queue: the node could not read the job's arguments",
    "no_process": "returned to the queue: the node could not start it",
}  # fmt: skip


def timeline(
    job: JobRecord, more: JobDetail | None, attempts: list[AttemptView], events: list[EventView]
) -> list[dict[str, Any]]:
    """The moments of a job, the oldest first: at, what, tone, worker, detail, took."""
    due = more.run_at if more else job.scheduled_for
    found = [_moment(job.created_at, "enqueued", f"queue {job.queue}, priority {job.priority}")]
    never = job.completed_at and due > job.completed_at  # cancelled before
    if due > job.created_at + timedelta(milliseconds=1) and not never:
        found.append(_moment(due, "due", ""))
    for tried in attempts:
        found += _attempt(tried)
    found += _claim(job, more)
    found += [_noted(event) for event in events if event.kind not in _SAID_ALREADY]
    known = {tried.token for tried in attempts}
    if job.completed_at and job.started_at and job.claim_token not in known:
        said = f"claim {term(job.claim_token)}"
        what = f"attempt {job.attempt} started"
        found.append(_moment(job.started_at, what, said, "", job.worker_id))
    if job.completed_at:
        tone = "good" if job.state == "completed" else "bad"
        found.append(
            _moment(job.completed_at, str(job.state), "", tone, job.worker_id, job.started_at)
        )
    return sorted(found, key=lambda moment: moment["at"])


_SAID_ALREADY = ("job_failed", "job_discarded")


def _attempt(tried: AttemptView) -> list[dict[str, Any]]:
    number, worker, started = tried.attempt, tried.worker_id, tried.started_at
    words = _OUTCOMES.get(tried.outcome, tried.outcome)
    tone = "bad" if tried.outcome in ("retryable", "discarded", "crashed", "requeued") else "warn"
    what, error = f"attempt {number} {words}", tried.error or ""
    found = [_moment(tried.ended_at, what, error, tone, worker, started, tried.traceback)]
    found[0]["log"] = tried.log
    if started:
        claim = f"claim {term(tried.token)}"
        found.insert(0, _moment(started, f"attempt {number} started", claim, "", worker))
    return found


def _noted(event: EventView) -> dict[str, Any]:
    left_out = ("job", "task", "on", "count")
    said = [f"{name}: {value}" for name, value in event.fields.items() if name not in left_out]
    tone = {"error": "bad", "warning": "warn"}.get(event.level, "")
    what = event.kind.replace("_", " ")
    return _moment(event.at, what, "  ".join(said), tone, event.worker_id)


def _claim(job: JobRecord, more: JobDetail | None) -> list[dict[str, Any]]:
    """The current claim."""
    if more is None or more.claimed_at is None:
        return []
    token = f"claim {term(job.claim_token)}"
    found = [_moment(more.claimed_at, "claimed", token, "live", job.worker_id)]
    if more.started_at:
        found.append(
            _moment(more.started_at, f"attempt {job.attempt} runs", "", "live", job.worker_id)
        )
    if job.cancel_requested:
        found.append(
            _moment(more.now, "cancellation requested", "the handler has not stopped yet", "warn")
        )
    return found


def _moment(
    at: datetime,
    what: str,
    detail: str,
    tone: str = "",
    worker: str | None = None,
    since: datetime | None = None,
    traceback: str | None = None,
) -> dict[str, Any]:
    took = short(max((at - since).total_seconds(), 0.0)) if since else ""
    said = {"at": at, "what": what, "detail": detail, "traceback": traceback, "log": None}
    return {**said, "tone": tone, "worker": worker, "took": took}
