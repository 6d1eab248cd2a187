"""The commands that show an application's state, and switch a few things."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leasework.cli import tables
from leasework.cli.asking import (
    act,
    acting_options,
    ask,
    end_badly,
    given,
    has_subcommand,
    limit_option,
    reading_options,
    show_rows,
    table_options,
    together,
)
from leasework.cli.output import counted, show_json
from leasework.errors import LeaseworkError
from leasework.model.filter import seconds_ago

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasework.app import App
    from leasework.app.diagnosis import Role
    from leasework.cli.overview import Overview
    from leasework.watch.operator import Operator


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
        facts, found = await (await app.inspect()).look()
        if facts is None:
            return overview.Overview(found=found)
        return overview.of_facts(facts, app.settings.schema, apps)

    _report(work)


@click.command()
@click.option(
    "--role",
    type=click.Choice(["worker", "operator", "enqueue", "observer"]),
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
        told = await diagnose(inspector, app.settings, role)
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


@click.command()
@click.argument("kind")
@click.argument("subject", default="")
@click.option(
    "--for",
    "time",
    default="1h",
    metavar="DURATION",
    show_default=True,
    help="How long, such as 30min or 2h. 0 ends a silence.",
)
@acting_options
def silence(kind: str, subject: str, time: str, **_: Any) -> None:
    """Silence problems of a KIND, such as queue_overdue, for a while.

    SUBJECT is what the problem is about, such as queue:mail; without it, all problems of the kind
    are silenced. status and the dashboard still show them, and alerts do not fire. A silence needs
    a --reason; its end does not.
    """
    seconds = 0.0 if time == "0" else seconds_ago(time)
    act(lambda acting: acting.silence(kind, subject, seconds))
    what = kind + (f" of {subject}" if subject else "")
    click.echo(f"{what} is silenced." if seconds else f"{what} is not silenced any more.")


@click.command()
@click.option(
    "--since", default="24h", show_default=True, metavar="AGO", help="Since when: 30min, 2h or 7d."
)
@limit_option(50)
@table_options
def failures(since: str, limit: int, **_: Any) -> None:
    """List failed attempts by what their errors have in common.

    Numbers, ids, quoted values and addresses do not count. List the jobs of one kind of error with
    leasework jobs --where error:FINGERPRINT, or retry and discard them.
    """
    seconds = seconds_ago(since)
    found = act(lambda acting: acting.failures(seconds, limit))
    rows = [{**group._asdict(), "pattern": group.pattern} for group in found]
    show_rows(rows, tables.FAILURES, "No failures.")


@click.group(invoke_without_command=True)
@click.option("--app", "app_name", metavar="NAME", help="List only schedules of this application.")
@click.option(
    "--name", "prefix", metavar="PREFIX", help="List only schedules whose names begin with PREFIX."
)
@limit_option(1000)
@table_options
def schedules(app_name: str | None, prefix: str | None, limit: int, **_: Any) -> None:
    """List, pause, resume, run or remove schedules, or list their ticks."""
    if has_subcommand(app=app_name, name=prefix):
        return
    found = act(lambda acting: acting.inspector.schedules(app_name, prefix or "", limit))
    show_rows(found, tables.SCHEDULES, "No schedules.")
    if len(found) == limit:
        click.echo(
            f"Showing only the first {counted(limit, 'schedule')}. There may be more: "
            "use --app, --name or --limit.",
            err=True,
        )


_app_option = click.option(
    "--app",
    "app_name",
    metavar="NAME",
    help="Application of the schedule, if several have one with this name.",
)
_on_schedule = together(click.argument("name"), _app_option, acting_options)


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


_on_node = together(click.argument("node"), acting_options)


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
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SECONDS",
    help="How long running jobs may take before the worker is asked to exit.",
)
@click.option("--wait", is_flag=True, help="Wait until it has exited, and list what it cut short.")
def drain_node(node: str, grace: float, wait: bool, **_: Any) -> None:
    """Stop claiming jobs; a worker process also exits when its running jobs have finished, or its
    own grace is over. Other workers of the same supervisor continue."""
    from leasework.watch.operator import drained

    async def work(acting: Operator) -> None:
        found, ends = await acting.drain_node(node, grace)
        click.echo(drained(found, ends))
        if wait and ends:
            cut = await acting.has_left(found)
            click.echo(f"It has exited. Its stop cut {counted(len(cut), 'job')} short.")
            for job in cut:
                click.echo(str(job))

    act(work)


@nodes.command("seen")
@click.argument("node", required=False)
@acting_options
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
