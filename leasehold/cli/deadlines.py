"""``leasehold deadlines``: lists deadlines and their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from leasehold.cli.asking import ask, end_badly, given, limit_option, table_options
from leasehold.cli.fitting import Column
from leasehold.cli.output import show_json, show_table
from leasehold.model.deadline import STATES

if TYPE_CHECKING:
    from leasehold.app import App


def _late(row: dict[str, Any]) -> str | None:
    from leasehold.watch.facts import duration

    late = row["late_seconds"]
    return duration(late) if late is not None and late > 0 else None


COLUMNS: list[Column] = [
    Column("deadline", lambda row: row["key"], rank=6, cut=12),
    Column("name", lambda row: row["name"], cut=16),
    Column("state", lambda row: row["state"]),
    Column("due", lambda row: row["due_at"]),
    Column("closed", lambda row: row["closed_at"], rank=4),
    Column("late", _late, rank=1),
    Column("job state", lambda row: row["job_state"], rank=2),
    Column("on breach", lambda row: row["on_breach"], rank=3, cut=12),
    Column("callback", lambda row: row["callback_job"], rank=5, short=18),
]
UNHANDLED: list[Column] = [
    Column("id", lambda row: row["id"], rank=3),
    Column("level", lambda row: row["level"], rank=2),
    Column("name", lambda row: row["name"], cut=16),
    Column("task", lambda row: row["task"], cut=16),
    Column("callback_job", lambda row: row["callback_job"], rank=1, short=18),
    Column("why", lambda row: row["why"]),
]


@click.command()
@click.option("--state", type=click.Choice(STATES), help="Show only deadlines in this state.")
@click.option("--name", metavar="NAME", help="Show only deadlines with this name.")
@click.option(
    "--unhandled",
    is_flag=True,
    help="Show breaches whose callback did not run; exit status 1 if any.",
)
@limit_option(50)
@table_options
def deadlines(state: str | None, name: str | None, unhandled: bool, limit: int, **_: Any) -> None:
    """List deadlines: open ones by due time, then closed ones, newest first."""

    async def work(app: App) -> list[dict[str, Any]]:
        inspector = await app.inspect()
        if unhandled:
            found: Sequence[Any] = await inspector.unhandled_breaches(limit)
        else:
            found = await inspector.deadlines(state, name, limit)
        return [row._asdict() for row in found]

    rows = ask(work)
    if given("as_json"):
        show_json(rows)
    else:
        columns = UNHANDLED if unhandled else COLUMNS
        show_table(rows, columns, "No deadlines.", wide=bool(given("wide")))
    if unhandled and rows:
        end_badly()
