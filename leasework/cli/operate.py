"""The commands that show an application's state, and switch a few things."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from leasework.cli import tables
from leasework.cli.asking import (
    act,
    ask,
    database_options,
    end_badly,
    given,
    has_subcommand,
    limit_option,
    operator,
    reading_options,
    show_rows,
    table_options,
    together,
)
from leasework.cli.output import counted, show_json
from leasework.errors import LeaseworkError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from leasework.app import App
    from leasework.app.diagnosis import Role
    from leasework.cli.overview import Overview


@click.command()
@click.option(
    "--app",
    "apps",
    metavar="NAME",
    multiple=True,
    help="Check only this application; can be repeated.",
)
@reading_options
def status(apps: tuple[str, ...], **_: Any) -> None:
    """Show an overview and all problems. Exit status 1 if there are problems."""
    from leasework.cli import overview

    async def work(app: App) -> overview.Overview:
        facts = await (await app.inspect()).facts()
        return overview.of_facts(facts, app.settings.schema, apps)

    _report(work)


@click.command()
@click.option(
    "--role",
    type=click.Choice(["worker", "enqueue", "observer"]),
    default="worker",
    show_default=True,
    help="Role to check this login for.",
)
@reading_options
def doctor(role: Role, **_: Any) -> None:
    """Show what status shows, and check the set-up: the login, the connection and the server.
    Exit status 1 if there are problems.

    Changes nothing: the schema that it creates for comparison is rolled back.
    """
    from leasework.app.diagnosis import diagnose
    from leasework.cli import overview

    async def work(app: App) -> overview.Overview:
        inspector = await app.inspect()
        told = await diagnose(inspector, app.settings, app.env, role)
        return overview.of_diagnosis(told, app.settings.schema)

    _report(work)


def _report(work: Callable[[App], Awaitable[Overview]]) -> None:
    """Print the overview; exit with status 1 if it has problems."""
    from leasework.cli import overview
    from leasework.watch.checks import database_problem

    try:
        found = ask(work)
    except LeaseworkError as error:
        found = overview.Overview(found=[database_problem(error)])
    if given("as_json"):
        show_json(found.as_json())
    else:
        overview.show(found)
    if not found.ok:
        end_badly()


_list_options = together(
    click.option(
        "--app", "app_name", metavar="NAME", help="List only schedules of this application."
    ),
    click.option(
        "--name",
        "prefix",
        metavar="PREFIX",
        help="List only schedules whose names begin with PREFIX.",
    ),
    limit_option(1000),
    table_options,
)


@click.group(invoke_without_command=True)
@_list_options
def schedules(app_name: str | None, prefix: str | None, limit: int, **_: Any) -> None:
    """List, create, pause, resume, run, backfill or remove schedules, or list their ticks."""
    if not has_subcommand(app=app_name, name=prefix):
        _list_schedules(app_name, prefix, limit)


def _list_schedules(app_name: str | None, prefix: str | None, limit: int) -> None:
    found = act(lambda acting: acting.inspector.schedules(app_name, prefix or "", limit))
    show_rows(found, tables.SCHEDULES, "No schedules.")
    if len(found) == limit:
        click.echo(
            f"Showing only the first {counted(limit, 'schedule')}. There may be more: "
            "use --app, --name or --limit.",
            err=True,
        )


@schedules.command("list")
@_list_options
def list_schedules(app_name: str | None, prefix: str | None, limit: int, **_: Any) -> None:
    """List schedules by application and name."""
    _list_schedules(app_name, prefix, limit)


_app_option = click.option(
    "--app",
    "app_name",
    metavar="NAME",
    help="Application of the schedule, if several have one with this name.",
)
_on_schedule = together(click.argument("name"), _app_option, database_options)


@schedules.command("pause")
@_on_schedule
def pause_schedule(name: str, app_name: str | None, **_: Any) -> None:
    """Pause a schedule: it does not fire until you resume it."""
    app = act(lambda acting: acting.pause(name, app_name))
    click.echo(f"Schedule {name} of {app} is paused.")


@schedules.command("resume")
@_on_schedule
def resume_schedule(name: str, app_name: str | None, **_: Any) -> None:
    """Resume a schedule; `missed` decides what happens to moments missed while paused."""
    app = act(lambda acting: acting.resume(name, app_name))
    click.echo(f"Schedule {name} of {app} is resumed.")


@schedules.command("run")
@_on_schedule
def run_schedule(name: str, app_name: str | None, **_: Any) -> None:
    """Run a schedule's job once now; its moments do not change."""
    job = act(lambda acting: acting.run_now(name, app_name))
    click.echo(f"Job {job} of schedule {name} is queued to run now.")


@schedules.command("remove")
@_on_schedule
def remove_schedule(name: str, app_name: str | None, **_: Any) -> None:
    """Remove a schedule. If the code still defines it, it comes back."""
    app = act(lambda acting: acting.remove_schedule(name, app_name))
    click.echo(f"Schedule {name} of {app} was removed.")


def _moment(value: str) -> datetime:
    from datetime import datetime

    with suppress(ValueError):
        moment = datetime.fromisoformat(value)
        if moment.utcoffset() is not None:
            return moment
    what = f"{value!r} is not a time with a time zone, such as 2030-01-31T07:00:00Z"
    raise click.BadParameter(what)


def _object(value: str) -> dict[str, Any] | None:
    import json

    with suppress(ValueError):
        found = json.loads(value)
        if isinstance(found, dict | None):
            return found
    raise click.BadParameter(f"{value!r} is not a JSON object")


@schedules.command("put")
@click.argument("target", metavar="MODULE:APP")
@click.argument("name")
@click.argument("task")
@click.option("--cron", metavar="EXPRESSION", help='For example "0 7 * * *".')
@click.option("--every", metavar="SECONDS", type=float, help="Interval in seconds.")
@click.option(
    "--at",
    metavar="TIME",
    type=_moment,
    help="One moment, with a time zone: 2030-01-31T07:00:00+09:00.",
)
@click.option(
    "--timezone", metavar="NAME", default="UTC", show_default=True, help="Time zone of --cron."
)
@click.option(
    "--arguments",
    metavar="JSON",
    type=_object,
    help='The arguments of the task: {"customer": 42}.',
)
@click.option(
    "--missed",
    type=click.Choice(["latest", "all", "skip"]),
    default="latest",
    show_default=True,
    help="What happens to missed moments.",
)
@database_options
def put_schedule(
    target: str, name: str, task: str, arguments: dict[str, Any] | None, **given: Any
) -> None:
    """Create a schedule, or replace one that was created this way. MODULE:APP is the App that
    has the task."""
    options = {option: given[option] for option in ("cron", "every", "at", "timezone", "missed")}

    async def work(app: App) -> None:
        await app.schedules.put(name, task, arguments=arguments, **options)
        await (await operator(app)).note_put(name, app.settings.name)

    ask(work, target)
    click.echo(f"Schedule {name} is stored.")


@schedules.command("backfill")
@click.argument("name")
@click.argument("start", type=_moment)
@click.argument("end", type=_moment)
@_app_option
@database_options
def backfill_schedule(
    name: str, start: datetime, end: datetime, app_name: str | None, **_: Any
) -> None:
    """Run a schedule's job for each moment that did not fire, from START up to but not including
    END. Both are times with a time zone, such as 2030-01-31T07:00:00Z."""
    queued = act(lambda acting: acting.backfill(name, start, end, app_name))
    click.echo(f"Queued {counted(queued, 'job')} of schedule {name} to run now.")


@schedules.command("ticks")
@click.argument("name", required=False)
@limit_option(50)
@table_options
def ticks(name: str | None, limit: int, **_: Any) -> None:
    """List ticks and their outcomes, newest first."""
    show_rows(act(lambda acting: acting.inspector.ticks(name, limit)), tables.TICKS, "No ticks.")


@click.command()
@click.option("--terms", is_flag=True, help="List terms, newest first, and why each ended.")
@limit_option(50)
@table_options
def leaders(terms: bool, limit: int, **_: Any) -> None:
    """List elections and their leaders."""
    empty = "No leader has been elected yet."
    if terms:
        show_rows(act(lambda acting: acting.terms(limit)), tables.TERMS, empty)
    else:
        show_rows(act(lambda acting: acting.inspector.leaders(limit)), tables.LEADERS, empty)


@click.command()
@limit_option(200)
@table_options
def locks(limit: int, **_: Any) -> None:
    """List leases and advisory locks, their holders and waiters."""
    show_rows(act(lambda acting: acting.inspector.locks(limit)), tables.LOCKS, "No locks are held.")


@click.group(invoke_without_command=True)
@limit_option(1000)
@table_options
def nodes(limit: int, **_: Any) -> None:
    """List nodes (processes that run leasework), stop them from claiming jobs, or drain them.

    NODE is a worker id such as web-1:4711:9fd4e2, or an unambiguous beginning of one.
    """
    if click.get_current_context().invoked_subcommand:
        return
    found = act(lambda acting: acting.inspector.nodes(limit))
    rows = [{**n._asdict(), "pid": int(n.worker_id.rsplit(":", 2)[1])} for n in found]
    show_rows(rows, tables.NODES, "No nodes.")


_on_node = together(click.argument("node"), database_options)


@nodes.command("stop-claiming")
@_on_node
def stop_claiming(node: str, **_: Any) -> None:
    """Stop claiming jobs at the next renewal; running jobs continue."""
    worker_id = act(lambda acting: acting.halt(node))
    click.echo(f"{worker_id} stops claiming jobs.")


@nodes.command("resume")
@_on_node
def resume_node(node: str, **_: Any) -> None:
    """Let NODE claim jobs again."""
    worker_id = act(lambda acting: acting.resume_node(node))
    click.echo(f"{worker_id} claims jobs again.")


@nodes.command("drain")
@_on_node
def drain_node(node: str, **_: Any) -> None:
    """Stop claiming jobs; a worker process also finishes its running jobs and exits. Other
    workers of the same supervisor continue."""
    from leasework.watch.operator import drained

    click.echo(drained(*act(lambda acting: acting.drain_node(node))))


@nodes.command("seen")
@click.argument("node", required=False)
@database_options
def seen_nodes(node: str | None, **_: Any) -> None:
    """Acknowledge the death of NODE, or of all dead nodes; status stops reporting it."""
    count = act(lambda acting: acting.seen(node))
    click.echo(f"{counted(count, 'dead node')} acknowledged.")


@click.command()
@click.option(
    "--kind", metavar="KIND", help="Show only events of this kind, for example node_died."
)
@limit_option(50)
@table_options
def events(kind: str | None, limit: int, **_: Any) -> None:
    """List events, newest last."""
    found = act(lambda acting: acting.inspector.events(kind, limit=limit))
    show_rows(found[::-1], tables.EVENTS, "No events.")
