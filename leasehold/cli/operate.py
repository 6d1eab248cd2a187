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
    operator,
    reading_options,
    table_options,
)
from leasehold.cli.fitting import Column
from leasehold.cli.output import show_json, show_table
from leasehold.errors import LeaseholdError

if TYPE_CHECKING:
    from uuid import UUID

    from leasehold.app import App


def _show(rows: list[dict[str, Any]], columns: list[Column], empty: str) -> None:
    if given("as_json"):
        show_json(rows)
    else:
        show_table(rows, columns, empty, wide=bool(given("wide")))


# -- status ----------------------------------------------------------------------------------------
@click.command()
@click.option(
    "--app", "apps", metavar="NAME", multiple=True, help="Only this application; may be repeated."
)
@reading_options
def status(apps: tuple[str, ...], **_: Any) -> None:
    """A short overview, and what is wrong in words. Exit status 1 if anything is."""
    from leasehold.cli import overview

    async def work(app: App) -> overview.Overview:
        facts = await (await app.inspect()).facts()
        return overview.of_facts(facts, app.settings.schema, apps)

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


# -- schedules -------------------------------------------------------------------------------------
@click.group(cls=Group, invoke_without_command=True)
@table_options
def schedules(**_: Any) -> None:
    """The schedules; list, pause and resume them, or read the ledger of their ticks."""
    if not click.get_current_context().invoked_subcommand:
        _list_schedules()


def _list_schedules() -> None:
    async def work(app: App) -> list[dict[str, Any]]:
        return await (await app.inspect()).schedules()

    _show(ask(work), tables.SCHEDULES, "No schedules.")


@schedules.command("list")
@table_options
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
        return await (await operator(app)).pause(name, app_name)

    click.echo(f"Schedule {name} of {ask(work)} is paused.")


@schedules.command("resume")
@click.argument("name")
@_app_option
@database_options
def resume_schedule(name: str, app_name: str | None, **_: Any) -> None:
    """Go on; what was missed is decided by the schedule's own policy."""

    async def work(app: App) -> str:
        return await (await operator(app)).resume(name, app_name)

    click.echo(f"Schedule {name} of {ask(work)} goes on.")


@schedules.command("run")
@click.argument("name")
@_app_option
@database_options
def run_schedule(name: str, app_name: str | None, **_: Any) -> None:
    """Run its job once now, beside its ticks."""

    async def work(app: App) -> UUID:
        return await (await operator(app)).run_now(name, app_name)

    click.echo(f"Job {ask(work)} of the schedule {name} may run now.")


@schedules.command("remove")
@click.argument("name")
@_app_option
@database_options
def remove_schedule(name: str, app_name: str | None, **_: Any) -> None:
    """Take away a schedule whose code is gone; code that defines it brings it back."""

    async def work(app: App) -> str:
        return await (await operator(app)).remove_schedule(name, app_name)

    click.echo(f"Schedule {name} of {ask(work)} was removed.")


@schedules.command("ticks")
@click.argument("name", required=False)
@limit_option(50)
@table_options
def ticks(name: str | None, limit: int, **_: Any) -> None:
    """What became of each due moment, the newest first."""

    async def work(app: App) -> list[dict[str, Any]]:
        return await (await app.inspect()).ticks(name, limit)

    _show(ask(work), tables.TICKS, "No ticks.")


# -- leaders, nodes, events ------------------------------------------------------------------------
@click.command()
@click.option("--terms", is_flag=True, help="List terms, newest first, and why each ended.")
@limit_option(50)
@table_options
def leaders(terms: bool, limit: int, **_: Any) -> None:
    """Who leads, and since when."""

    async def work(app: App) -> list[dict[str, Any]]:
        acting = await operator(app)
        if terms:
            return await acting.terms(limit)
        return await acting.inspector.leaders(limit)

    _show(ask(work), tables.TERMS if terms else tables.LEADERS, "Nobody ever led.")


@click.command()
@limit_option(200)
@table_options
def locks(limit: int, **_: Any) -> None:
    """Leases and advisory locks: who holds them, and who waits."""

    async def work(app: App) -> list[dict[str, Any]]:
        return await (await app.inspect()).locks(limit)

    _show(ask(work), tables.LOCKS, "Nobody holds a lock.")


@click.group(cls=Group, invoke_without_command=True)
@limit_option(1000)
@table_options
def nodes(limit: int, **_: Any) -> None:
    """The processes that take part; stop one from claiming, or drain it.

    NODE is a worker's id, such as web-1:4711:9fd4e2, or enough of its beginning.
    """
    if click.get_current_context().invoked_subcommand:
        return

    async def work(app: App) -> list[dict[str, Any]]:
        return await (await app.inspect()).nodes(limit)

    _show(ask(work), tables.NODES, "No nodes.")


@nodes.command("stop-claiming")
@click.argument("node")
@database_options
def stop_claiming(node: str, **_: Any) -> None:
    """Claim no more jobs from the next renewal on; what runs goes on."""

    async def work(app: App) -> str:
        return await (await operator(app)).halt(node)

    click.echo(f"{ask(work)} stops claiming.")


@nodes.command("resume")
@click.argument("node")
@database_options
def resume_node(node: str, **_: Any) -> None:
    """Claim again."""

    async def work(app: App) -> str:
        return await (await operator(app)).resume_node(node)

    click.echo(f"{ask(work)} claims again.")


@nodes.command("drain")
@click.argument("node")
@database_options
def drain_node(node: str, **_: Any) -> None:
    """Claim no more; a worker process finishes what it has, and ends; others of its supervisor go
    on."""

    async def work(app: App) -> tuple[str, bool]:
        return await (await operator(app)).drain_node(node)

    worker_id, ends = ask(work)
    how = "finishes what it has, and ends" if ends else "stops claiming; what started it ends it"
    click.echo(f"{worker_id} {how}.")


@nodes.command("seen")
@click.argument("node", required=False)
@database_options
def seen_nodes(node: str | None, **_: Any) -> None:
    """You have seen that NODE died, or all dead nodes: `leasehold status` stops telling of them."""

    async def work(app: App) -> int:
        return await (await operator(app)).seen(node)

    count = ask(work)
    click.echo(f"{count} dead node{'' if count == 1 else 's'} marked as seen.")


@click.command()
@click.option("--kind", metavar="KIND", help="Only these, such as node_died.")
@click.option("--follow", "-f", is_flag=True, help="Go on with new ones as they come.")
@limit_option(50)
@table_options
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
