"""``leasework jobs``: list, show, cancel, retry, discard and reprioritize, by id or by filter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from leasework.cli import tables
from leasework.cli.asking import (
    Option,
    act,
    ask,
    database_options,
    end_badly,
    given,
    has_subcommand,
    limit_option,
    operator,
    show_rows,
    table_options,
    together,
)
from leasework.cli.output import counted, show_json, show_pairs, show_table, text
from leasework.model.filter import SIMPLE, STATES, parse
from leasework.tuning import Tuning

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from leasework.app import App
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
@limit_option(50)
@table_options
def jobs(limit: int, **options: Any) -> None:
    """List the newest jobs, or act on jobs.

    With --state running, the oldest come first; with scheduled or retryable, those due next.

    ID is a job's id, or its first digits: at least 8, and enough to
    match only this job. Ids begin with the time: the first 8 digits stand for about a minute.
    """
    wanted = {name: options[name] for name in SIMPLE}
    if has_subcommand(**wanted):
        return
    found = ask(lambda app: app.jobs(limit=limit, **wanted))
    show_rows([tables.as_row(job) for job in found], tables.JOBS, "No jobs.")


@jobs.command("show")
@click.argument("job_id", metavar="ID")
@table_options
def show_job(job_id: str, **_: Any) -> None:
    """Show one job, why it waits, and its failed or interrupted attempts."""
    row = ask(lambda app: _one(app, job_id))
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


async def _one(app: App, job_id: str) -> dict[str, Any]:
    acting = await operator(app)
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
    database_options,
)


@jobs.command("cancel")
@_act_options
@click.option("--reason", default="", help="Reason to record with the job.")
@click.option("--family", is_flag=True, help="Also cancel the jobs that this one has made.")
def cancel_job(
    job_id: str | None, where: str | None, yes: bool, reason: str, family: bool, **_: Any
) -> None:
    """Cancel waiting jobs; request cancellation of running jobs."""
    told_many = "cancelled, or cancellation requested if running"
    _only_one(where, family, "--family")
    if _many("cancel", job_id, where, yes, told_many, reason):
        return
    found = _on_one(job_id, lambda acting, job: acting.cancel(job, reason, family=family))
    told = {"waiting": "was cancelled", "running": "was asked to stop"}
    _say(found, told, "has already finished")


@jobs.command("retry")
@_act_options
@click.option("--from", "step", metavar="STEP", help="Repeat this step and those after it.")
def retry_job(job_id: str | None, where: str | None, yes: bool, step: str | None, **_: Any) -> None:
    """Run finished jobs again, and waiting jobs now.

    --where needs a state, because it would otherwise run completed jobs again. A job that did not
    complete keeps the steps that it has recorded.
    """
    _only_one(where, bool(step), "--from")
    if _many("retry", job_id, where, yes, "queued to run now"):
        return
    found = _on_one(job_id, lambda acting, job: acting.retry(job, step))
    told = {"waiting": "was queued to run now", "finished": "was queued to run now"}
    _say(found, told, "is already running")


@jobs.command("discard")
@_act_options
@click.option("--reason", default="", help="Reason to record with the job.")
def discard_job(job_id: str | None, where: str | None, yes: bool, reason: str, **_: Any) -> None:
    """Discard waiting and quarantined jobs."""
    if _many("discard", job_id, where, yes, "discarded", reason):
        return
    found = _on_one(job_id, lambda acting, job: acting.discard(job, reason))
    why = "is running: cancel it instead" if found[1] == "running" else "has already finished"
    _say(found, dict.fromkeys(("waiting", "quarantined"), "was discarded"), why)


@jobs.command("reprioritize")
@_act_options
@click.option("--priority", type=int, required=True, help="New priority; a smaller one runs first.")
def reprioritize_job(
    job_id: str | None, where: str | None, yes: bool, priority: int, **_: Any
) -> None:
    """Give waiting jobs another priority. Running jobs do not change.

    The jobs line up behind those that have that priority already.
    """
    told = f"given the priority {priority}"
    if _many("reprioritize", job_id, where, yes, told, priority=priority):
        return
    found = _on_one(job_id, lambda acting, job: acting.reprioritize(job, priority))
    why = "is already running" if found[1] == "running" else "has already finished"
    _say(found, {"waiting": f"was {told}"}, why)


@jobs.command("signal")
@click.argument("job_id", metavar="ID")
@click.argument("name")
@click.argument("payload", required=False)
@database_options
def signal_job(job_id: str, name: str, payload: str | None, **_: Any) -> None:
    """Send a signal to a job. PAYLOAD is JSON, such as '{"by": "kim"}'."""
    value = None
    if payload is not None:
        try:
            value = json.loads(payload)
        except ValueError:
            raise click.BadParameter(f"{payload!r} is not JSON", param_hint="PAYLOAD") from None

    async def send(acting: Operator, job: UUID) -> str:
        return "sent" if await acting.signal(job, name, value) else ""

    _say(_on_one(job_id, send), {"sent": f"got the signal {name}"}, "has already finished")


@jobs.command("steps")
@click.argument("job_id", metavar="ID")
@table_options
def steps_of_job(job_id: str, **_: Any) -> None:
    """List what a job's handler has recorded, and what it waits for."""

    async def work(app: App) -> list[dict[str, Any]]:
        acting, job = await _named(app, job_id)
        return [asdict(step) for step in await acting.reports.steps(job)]

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
@database_options
def stack_of_job(job_id: str, **_: Any) -> None:
    """Show the current stack of a running job's handler."""
    job, says = ask(lambda app: _stack(app, job_id))
    if not says:
        _say((job, ""), {}, "is not running, or its node does not respond")
    else:
        click.echo(says)


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


def _only_one(where: str | None, given_too: bool, option: str) -> None:
    if where is not None and given_too:
        raise click.UsageError(f"{option} needs a job ID, and not --where.")


def _on_one(job_id: str | None, action: Callable[[Operator, UUID], Awaitable[str]]) -> Found:
    async def work(app: App) -> Found:
        acting, job = await _named(app, job_id)
        return job, await action(acting, job)

    return ask(work)


async def _named(app: App, job_id: str | None) -> tuple[Operator, UUID]:
    acting = await operator(app)
    return acting, await acting.job_named(str(job_id))


def _say(found: Found, told: dict[str, str], otherwise: str) -> None:
    job, what = found
    if what in told:
        click.echo(f"Job {job} {told[what]}.")
    else:
        click.echo(f"leasework: Job {job} {otherwise}.", err=True)
        end_badly()


def _many(
    verb: str,
    job_id: str | None,
    where: str | None,
    yes: bool,
    told: str,
    reason: str = "",
    priority: int = 0,
) -> bool:
    """Act on all matching jobs, after a preview. False if the command is about one job."""
    if (job_id is None) == (where is None):
        raise click.UsageError("Give a job ID or --where FILTER.")
    if where is None:
        return False
    if not where.strip():
        raise click.UsageError("--where is empty: it would match all jobs.")
    wanted, words = parse(where), where
    if not yes:
        count, more = act(lambda acting: acting.preview(wanted, verb))
        number = f"{count:,} or more jobs" if more else counted(count, "job")
        if not count and not more:
            click.echo("No matching jobs.")
            return True
        click.confirm(f"{verb.capitalize()} {number}?", abort=True)
    done = act(lambda acting: acting.bulk(verb, wanted, words, reason, priority=priority))
    click.echo(f"{counted(done.changed, 'job')} {told}.")
    if done.held:
        from leasework.watch.bulk import skipped_by  # imported late: --help must be quick

        again = "" if verb == "retry" else " Repeat the command for the rest."
        click.echo(f"leasework: {skipped_by(done)}{again}", err=True)
        end_badly()
    return True
