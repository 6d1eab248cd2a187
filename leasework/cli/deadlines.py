"""``leasework deadlines``: lists deadlines and their verdicts."""

from __future__ import annotations

from typing import Any

import click

from leasework.cli.asking import act, end_badly, limit_option, show_rows, table_options
from leasework.cli.fitting import Column
from leasework.model.deadline import STATES
from leasework.model.moments import duration


def _late(row: dict[str, Any]) -> str | None:
    late = row["late_seconds"]
    return duration(late) if late is not None and late > 0 else None


COLUMNS: list[Column] = [
    Column("deadline", lambda row: row["id"], rank=6, cut=12),
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
    Column("id", lambda row: row["id"], rank=2),
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
    help="Show breaches whose callback failed or cannot run; exit status 1 if any.",
)
@limit_option(50)
@table_options
def deadlines(state: str | None, name: str | None, unhandled: bool, limit: int, **_: Any) -> None:
    """List deadlines: open ones by due time, then closed ones, newest first."""
    if not unhandled:
        found = act(lambda acting: acting.inspector.deadlines(state, name, limit))
        show_rows(found, COLUMNS, "No deadlines.")
        return
    if state or name:
        raise click.UsageError("--unhandled shows breaches of all names: drop --state and --name")
    breaches = act(lambda acting: acting.inspector.unhandled_breaches(limit))
    show_rows(breaches, UNHANDLED, "No unhandled breaches.")
    if breaches:
        end_badly()
