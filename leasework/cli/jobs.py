"""``leasework jobs``: list, show, cancel, retry, discard and reprioritize, by id or by filter."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from leasework.cli import tables
from leasework.cli.asking import (
    Option,
    act,
    acting_options,
    ask,
    end_badly,
    given,
    has_subcommand,
    limit_option,
    operator,
    show_line,
    show_rows,
    table_options,
    together,
)
from leasework.cli.output import counted, show_json, show_pairs, show_table, text
from leasework.model.filter import SIMPLE, STATES, JobFilter, parse
from leasework.model.states import State
from leasework.tuning import Tuning

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping
    from datetime import datetime
    from uuid import UUID

    from leasework.app import App
    from leasework.model.job import JobRecord
    from leasework.watch.operator import Operator

    Found = tuple[UUID, str]
    """A job, and the result of the action on it."""

_STACK_LOOKS, _STACK_LOOK_SECONDS = 3, 0.1


def _filter_option(name: str) -> Option:
    kind = {"type": click.Choice(STATES)} if name == "state" else {"metavar": "NAME"}
    how = {"state": "in", "tag": "with"}.get(name, "of")
    return click.option(f"--{name}", help=f"Show only jobs {how} this {name}.", **kind)


@click.group(invoke_without_command=True)
@together(*map(_filter_option, SIMPLE))
@click.option("--where", metavar="FILTER", help="Show only jobs that match, as in the dashboard.")
@click.option(
    "--sort",
    type=click.Choice(["created", "run_at", "finished", "duration"]),
    help="Sort the jobs that are found, at most 10,000. Times due: the earliest first.",
)
@click.option("--all", "to_the_end", is_flag=True, help="Search to the end, without a time limit.")
@click.option("--follow", is_flag=True, help="Then print new matches as they come, until Ctrl-C.")
@limit_option(50)
@table_options
def jobs(
    limit: int,
    where: str | None,
    sort: str | None,
    to_the_end: bool,
    follow: bool,
    **options: Any,
) -> None:
    """List the newest jobs, or act on jobs.

    With the state running, the oldest come first; with scheduled or retryable, those due next;
    with a fingerprint, those that failed last. --follow looks at the first 20,000 jobs in that
    order every two seconds, and prints each job once.

    ID is a job's id, or its first digits: at least 8, and enough to
    match only this job. Ids begin with the time: the first 8 digits stand for about a minute.
    """
    simple = {name: options[name] for name in SIMPLE}
    if has_subcommand(**simple, where=where, sort=sort):
        return
    if follow and (sort or to_the_end):
        raise click.UsageError("--follow needs neither --sort nor --all.")
    if where is not None and any(simple.values()):
        raise click.UsageError("Put all into --where, such as 'state:running queue:mail'.")
    wanted = JobFilter.only(**simple) if where is None else parse(where)
    if follow:
        with suppress(KeyboardInterrupt):
            ask(lambda app: _follow(app, wanted, limit))
        return
    found = ask(lambda app: _found(app, wanted, limit, sort, to_the_end))
    none = "No jobs match: the search has reached the end." if where else "No jobs."
    show_rows(found, tables.JOBS, none)


async def _found(
    app: App, wanted: JobFilter, limit: int, sort: str | None, to_the_end: bool
) -> list[dict[str, Any]]:
    most = Tuning.sorted_jobs if sort else limit
    found = await (await app.client()).jobs(wanted, most, to_the_end=to_the_end)
    if sort and len(found) == most:
        click.echo(f"leasework: only the first {counted(most, 'job')} were sorted.", err=True)
    if sort:
        now = await (await app.reports()).database_now(None)
        found.sort(key=lambda job: _place(job, sort, now))
    return [tables.as_row(job) for job in found[:limit]]


def _place(job: JobRecord, sort: str, now: datetime) -> float:
    """The newest and the longest come first, and those without such a time last."""
    if sort == "run_at":
        return job.scheduled_for.timestamp()
    if sort == "duration":
        began, ended = job.started_at, job.completed_at or now
        return -(ended - began).total_seconds() if began else math.inf
    moment = job.created_at if sort == "created" else job.completed_at
    return -moment.timestamp() if moment else math.inf


async def _follow(app: App, wanted: JobFilter, limit: int) -> None:
    """Print the jobs that match, and then those that match later, each once."""
    import asyncio  # imported late: --help must be quick

    reports, client = await app.reports(), await app.client()
    seen: dict[UUID, None] = {}
    while True:
        ids, _ = await reports.matching(wanted, None, Tuning.step_jobs)
        fresh = [job for job in ids if job not in seen]
        for job in sorted(fresh if seen else fresh[:limit]):
            if record := await client.get(job):
                show_line(tables.as_row(record), tables.JOBS)
        seen = dict.fromkeys([*seen, *fresh][-10 * Tuning.step_jobs :])
        await asyncio.sleep(Tuning.follow_seconds)


@jobs.command("show")
@click.argument("job_id", metavar="ID")
@table_options
def show_job(job_id: str, **_: Any) -> None:
    """Show one job, why it waits, and its attempts that did not complete or keep their log."""

    async def work(app: App) -> dict[str, Any]:
        return await one_job(app, await operator(app), job_id)

    row = ask(work)
    if given("as_json"):
        show_json(row)
        return
    attempts, why = row.pop("attempts"), row.pop("why")
    show_pairs(row)
    for sentence in why:
        click.echo(text(f"- {sentence}"))
    if attempts:
        click.echo()
        show_table(attempts, tables.ATTEMPTS, "", wide=bool(given("wide")))
        if log := next((row["log"] for row in attempts if row["log"]), ""):
            click.echo("\nLast lines of the newest attempt with a log:")
            for line in log.rstrip().split("\n"):
                click.echo(text(line or " "))


async def one_job(app: App, acting: Operator, job_id: str) -> dict[str, Any]:
    record = await app.get(await acting.job_named(job_id))
    attempts = await acting.reports.attempts(record.id, Tuning.shown_attempts)
    why = await acting.why(record)
    return {**tables.as_row(record), "why": why, "attempts": [row._asdict() for row in attempts]}


_act_options = together(
    click.argument("job_id", metavar="[ID]", required=False),
    click.option(
        "--where",
        metavar="FILTER",
        help="Act on all matching jobs, for example 'state:discarded queue:mail'.",
    ),
    click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
    acting_options,
)


@jobs.command("cancel")
@_act_options
@click.option("--family", is_flag=True, help="Also cancel the jobs that this one has made.")
def cancel_job(family: bool, **_: Any) -> None:
    """Cancel waiting jobs; request cancellation of running jobs."""
    told = {
        "waiting": "was cancelled",
        "running": "was asked to stop. A handler in a thread goes on unless it looks at "
        "ctx.cancelled; to take the job from it: leasework jobs requeue",
    }
    many = "cancelled, or cancellation requested if running"
    _act_on("cancel", many, told, alone="--family" if family else "", family=family)


@jobs.command("requeue")
@click.argument("job_id", metavar="ID")
@acting_options
def requeue_job(job_id: str, **_: Any) -> None:
    """Take a running job from its worker and queue it again.

    Its handler may go on, but can record nothing. To end a handler that hangs in a thread, end its
    process.
    """

    async def work(acting: Operator) -> State | None:
        return await acting.requeue(await acting.job_named(job_id))

    state = act(work)
    if state is None:
        click.echo(f"Job {job_id} does not run.")
    elif state is State.RUNNING:
        click.echo(f"Job {job_id} is locked by its handler's own transaction. Try again.", err=True)
        end_badly()
    else:
        click.echo(f"Job {job_id} was taken from its worker and is {state.value} now.")


@jobs.command("retry")
@_act_options
@click.option("--from", "step", metavar="STEP", help="Repeat this step and those after it.")
def retry_job(step: str | None, **_: Any) -> None:
    """Run finished jobs again, and waiting jobs now.

    --where needs a state, because it would otherwise run completed jobs again. A job that did not
    complete keeps the steps that it has recorded.
    """
    _act_on("retry", "queued to run now", alone="--from" if step else "", step=step)


@jobs.command("discard")
@_act_options
def discard_job(**_: Any) -> None:
    """Discard waiting and quarantined jobs."""
    _act_on("discard", "discarded", {"running": "is running: cancel it instead"})


@jobs.command("reprioritize")
@_act_options
@click.option("--priority", type=int, required=True, help="New priority; a smaller one runs first.")
def reprioritize_job(priority: int, **_: Any) -> None:
    """Give waiting jobs another priority. Running jobs do not change.

    The jobs line up behind those that have that priority already.
    """
    _act_on("reprioritize", f"given the priority {priority}", priority=priority)


@jobs.command("signal")
@click.argument("job_id", metavar="ID")
@click.argument("name")
@click.argument("payload", required=False)
@acting_options
def signal_job(job_id: str, name: str, payload: str | None, **_: Any) -> None:
    """Send a signal to a job. PAYLOAD is JSON, such as '{"by": "kim"}'."""
    value = None
    if payload is not None:
        try:
            value = json.loads(payload)
        except ValueError:
            raise click.BadParameter(f"{payload!r} is not JSON", param_hint="PAYLOAD") from None

    told = {
        "sent": f"got the signal {name}",
        "kept": f"does not wait for {name} now. It keeps the signal until it does",
    }
    _say(_on_one(job_id, lambda acting, job: acting.signal(job, name, value)), told, told)


@jobs.command("steps")
@click.argument("job_id", metavar="ID")
@table_options
def steps_of_job(job_id: str, **_: Any) -> None:
    """List what a job's handler has recorded, what it waits for, and signals that it has not
    taken."""

    from leasework.model.masking import masked  # imported late: --help must be quick
    from leasework.store.durable import StepView

    async def work(app: App) -> list[dict[str, Any]]:
        acting, job = await _named(app, job_id)
        steps = await acting.reports.steps(job)
        signals = [
            StepView(name, f"signal ({count} untaken)", False, None, None, None, at)
            for name, count, at in await acting.reports.inbox(job)
        ]
        return [{**asdict(step), "result": masked(step.result)} for step in steps + signals]

    show_rows(ask(work), tables.STEPS, "No steps.")


@jobs.command("family")
@click.argument("job_id", metavar="ID")
@limit_option(1000)
@table_options
def family_of_job(job_id: str, limit: int, **_: Any) -> None:
    """List the jobs that a job has made, and those have made, as a tree."""

    async def work(app: App) -> list[dict[str, Any]]:
        from leasework.store.durable import in_order  # imported late: --help must be quick

        acting, job = await _named(app, job_id)
        return [asdict(one) for one in in_order(await acting.reports.family([job], limit))]

    show_rows(ask(work), tables.FAMILY, "It has made no jobs.")


@jobs.command("stack")
@click.argument("job_id", metavar="ID")
@acting_options
def stack_of_job(job_id: str, **_: Any) -> None:
    """Show the current stack of a running job's handler."""
    job, says = ask(lambda app: _stack(app, job_id))
    if not says:
        _say((job, ""), {"": "is not running, or its node does not respond"}, ())
    else:
        for line in says.split("\n"):
            click.echo(text(line or " "))


async def _stack(app: App, job_id: str) -> Found:
    """Wait up to three renewals for the node's answer."""
    import asyncio  # imported late: --help must be quick

    acting, job = await _named(app, job_id)
    if not await acting.ask_stack(job):
        return job, ""
    for _ in range(int(_STACK_LOOKS * app.settings.timings.renew / _STACK_LOOK_SECONDS)):
        await asyncio.sleep(_STACK_LOOK_SECONDS)
        found = await acting.reports.stack(job)
        if found and found.says is not None:
            return job, found.says
    return job, ""


def _on_one(job_id: str | None, action: Callable[[Operator, UUID], Awaitable[str]]) -> Found:
    async def work(app: App) -> Found:
        acting, job = await _named(app, job_id)
        return job, await action(acting, job)

    return ask(work)


async def _named(app: App, job_id: str | None) -> tuple[Operator, UUID]:
    acting = await operator(app)
    return acting, await acting.job_named(str(job_id))


def _say(found: Found, told: Mapping[str, str], done: Collection[str]) -> None:
    """Print what became of the job. Exit with status 1 if that is none of ``done``."""
    job, what = found
    words = {"running": "is already running", **told}.get(what, "has already finished")
    if what in done:
        click.echo(f"Job {job} {words}.")
    else:
        click.echo(f"leasework: Job {job} {words}.", err=True)
        end_badly()


def _act_on(
    verb: str, done: str, told: Mapping[str, str] | None = None, alone: str = "", **how: Any
) -> None:
    """Act on the job that the command names, or on all that match its filter. ``told``: what is
    said of one job instead of ``done``. ``alone``: an option that is only for one job."""
    named = click.get_current_context().params
    job_id, where = named["job_id"], named["where"]
    if alone and where is not None:
        raise click.UsageError(f"{alone} needs a job ID, and not --where.")
    if (job_id is None) == (where is None):
        raise click.UsageError("Give a job ID or --where FILTER.")
    if where is not None:
        _act_on_many(verb, where, named["yes"], done, how.get("priority", 0))
        return
    from leasework.watch.bulk import CHANGED  # imported late: --help must be quick

    found = _on_one(job_id, lambda acting, job: getattr(acting, verb)(job, **how))
    changed = CHANGED[verb]
    _say(found, {**dict.fromkeys(changed, f"was {done}"), **(told or {})}, changed)


def _act_on_many(verb: str, where: str, yes: bool, told: str, priority: int) -> None:
    """Act on all matching jobs, after a preview."""
    if not where.strip():
        raise click.UsageError("--where is empty: it would match all jobs.")
    wanted = parse(where)
    if not yes:
        count, more = act(lambda acting: acting.preview(wanted, verb))
        number = f"{count:,} or more jobs" if more else counted(count, "job")
        if not count and not more:
            click.echo("No matching jobs.")
            return
        click.confirm(f"{verb.capitalize()} {number}?", abort=True)
    done = act(lambda acting: acting.bulk(verb, wanted, where, priority=priority))
    click.echo(f"{counted(done.changed, 'job')} {told}.")
    if done.held:
        from leasework.watch.bulk import skipped_by  # imported late: --help must be quick

        again = "" if verb == "retry" else " Repeat the command for the rest."
        click.echo(f"leasework: {skipped_by(done)}{again}", err=True)
        end_badly()
