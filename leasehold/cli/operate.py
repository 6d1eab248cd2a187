"""The verbs with which people and tools look at an application, and switch a few things."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leasehold.cli import tables
from leasehold.cli.asking import (
    Group,
    ask,
    database_options,
    end_badly,
    given,
    limit_option,
    reading_options,
)
from leasehold.cli.output import Column, show_json, show_pairs, show_table
from leasehold.errors import LeaseholdError

if TYPE_CHECKING:
    from leasehold.app import App

STATES = (
    "scheduled",
    "available",
    "running",
    "retryable",
    "completed",
    "cancelled",
    "discarded",
    "quarantined",
)


def _show(rows: list[dict[str, Any]], columns: list[Column], empty: str) -> None:
    if given("as_json"):
        show_json(rows)
    else:
        show_table(rows, columns, empty)


# -- status ----------------------------------------------------------------------------------------
@click.command()
@reading_options
def status(**_: Any) -> None:
    """A short overview, and what is wrong in words. Exit status 1 if anything is."""
    from leasehold.cli import overview

    async def work(app: App) -> overview.Overview:
        return overview.of_facts(await (await app.inspect()).facts(), app.settings.schema)

    try:
        found = ask(work)
    except LeaseholdError as error:
        found = overview.of_error(error)
    if given("as_json"):
        show_json(found.as_json())
    else:
        overview.show(found)
    if not found.ok:
        end_badly()


# -- jobs ------------------------------------------------------------------------------------------
@click.group(cls=Group, invoke_without_command=True)
@click.option("--state", type=click.Choice(STATES), help="Only these.")
@click.option("--queue", metavar="NAME", help="Only of this queue.")
@click.option("--task", metavar="NAME", help="Only of this task.")
@limit_option(50)
@reading_options
def jobs(
    state: str | None,
    queue: str | None,
    task: str | None,
    limit: int,
    **_: Any,
) -> None:
    """The newest jobs; or one of them: show, cancel, retry."""
    if click.get_current_context().invoked_subcommand:
        return

    async def work(app: App) -> list[dict[str, Any]]:
        found = await app.jobs(state=state, queue=queue, task=task, limit=limit)
        return [tables.as_row(job) for job in found]

    _show(ask(work), tables.JOBS, "No jobs.")


@jobs.command("show")
@click.argument("job_id", metavar="ID")
@reading_options
def show_job(job_id: str, **_: Any) -> None:
    """All of one job."""
    row = ask(lambda app: _one(app, job_id))
    if given("as_json"):
        show_json(row)
    else:
        show_pairs(row)


async def _one(app: App, job_id: str) -> dict[str, Any]:
    return tables.as_row(await app.get(job_id))


@jobs.command("cancel")
@click.argument("job_id", metavar="ID")
@click.option("--reason", default="cancelled by an operator", help="Is kept with the job.")
@database_options
def cancel_job(job_id: str, reason: str, **_: Any) -> None:
    """End a waiting job; ask a running one to end."""
    if ask(lambda app: app.cancel(job_id, reason)):
        row = ask(lambda app: _one(app, job_id))
        asked = row["state"] == "running"
        click.echo(f"Job {job_id} {'was asked to end' if asked else 'is ' + row['state']}.")
    else:
        click.echo(f"leasehold: Job {job_id} had finished already.", err=True)
        end_badly()


@jobs.command("retry")
@click.argument("job_id", metavar="ID")
@database_options
def retry_job(job_id: str, **_: Any) -> None:
    """Run a finished job again, or a waiting one now."""
    if ask(lambda app: app.retry(job_id)):
        click.echo(f"Job {job_id} may run now.")
    else:
        click.echo(f"leasehold: Job {job_id} runs already.", err=True)
        end_badly()


# -- schedules -------------------------------------------------------------------------------------
@click.group(cls=Group, invoke_without_command=True)
@reading_options
def schedules(**_: Any) -> None:
    """The schedules; list, pause and resume them, or read the ledger of their ticks."""
    if not click.get_current_context().invoked_subcommand:
        _list_schedules()


def _list_schedules() -> None:
    async def work(app: App) -> list[dict[str, Any]]:
        return await (await app.inspect()).schedules()

    _show(ask(work), tables.SCHEDULES, "No schedules.")


@schedules.command("list")
@reading_options
def list_schedules(**_: Any) -> None:
    """All schedules."""
    _list_schedules()


_app_option = click.option(
    "--app", "app_name", metavar="NAME", help="Where two applications have one of that name."
)


@schedules.command("pause")
@click.argument("name")
@_app_option
@database_options
def pause_schedule(name: str, app_name: str | None, **_: Any) -> None:
    """Fire no tick until it is resumed."""

    async def work(app: App) -> str:
        return await (await app.inspect()).pause(name, app_name)

    click.echo(f"Schedule {name} of {ask(work)} is paused.")


@schedules.command("resume")
@click.argument("name")
@_app_option
@database_options
def resume_schedule(name: str, app_name: str | None, **_: Any) -> None:
    """Go on; what was missed is decided by the schedule's own policy."""

    async def work(app: App) -> str:
        return await (await app.inspect()).resume(name, app_name)

    click.echo(f"Schedule {name} of {ask(work)} goes on.")


@schedules.command("ticks")
@click.argument("name", required=False)
@limit_option(50)
@reading_options
def ticks(name: str | None, limit: int, **_: Any) -> None:
    """What became of each due moment, the newest first."""

    async def work(app: App) -> list[dict[str, Any]]:
        return await (await app.inspect()).ticks(name, limit)

    _show(ask(work), tables.TICKS, "No ticks.")


# -- leaders, nodes, events ------------------------------------------------------------------------
@click.command()
@click.option("--terms", is_flag=True, help="The newest terms: who led, and from when.")
@limit_option(50)
@reading_options
def leaders(terms: bool, limit: int, **_: Any) -> None:
    """Who leads, and since when."""

    async def work(app: App) -> list[dict[str, Any]]:
        inspector = await app.inspect()
        return await (inspector.terms(limit=limit) if terms else inspector.leaders(limit))

    _show(ask(work), tables.TERMS if terms else tables.LEADERS, "Nobody ever led.")


@click.command()
@limit_option(200)
@reading_options
def locks(limit: int, **_: Any) -> None:
    """Leases and advisory locks: who holds them, and who waits."""

    async def work(app: App) -> list[dict[str, Any]]:
        return await (await app.inspect()).locks(limit)

    _show(ask(work), tables.LOCKS, "Nobody holds a lock.")


@click.command()
@limit_option(1000)
@reading_options
def nodes(limit: int, **_: Any) -> None:
    """The processes that take part."""

    async def work(app: App) -> list[dict[str, Any]]:
        return await (await app.inspect()).nodes(limit)

    _show(ask(work), tables.NODES, "No nodes.")


@click.command()
@click.option("--kind", metavar="KIND", help="Only these, such as node_died.")
@click.option("--follow", "-f", is_flag=True, help="Go on with new ones as they come.")
@limit_option(50)
@reading_options
def events(kind: str | None, follow: bool, limit: int, **_: Any) -> None:
    """What happened, the newest last."""
    from leasehold.cli.following import follow_events

    if follow:
        as_json = bool(given("as_json"))
        try:
            ask(lambda app: follow_events(app, kind, limit, as_json))
        except KeyboardInterrupt:
            return

    async def work(app: App) -> list[dict[str, Any]]:
        return (await (await app.inspect()).events(kind, limit=limit))[::-1]

    _show(ask(work), tables.EVENTS, "No events.")
