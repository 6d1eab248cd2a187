"""``leasehold deadlines``: what was promised, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leasehold.cli.asking import ask, end_badly, given, limit_option, reading_options
from leasehold.cli.output import Column, show_json, show_table
from leasehold.model.deadline import STATES

if TYPE_CHECKING:
    from leasehold.app import App


def _late(row: dict[str, Any]) -> str | None:
    from leasehold.services.health import duration

    late = row["late_seconds"]
    return duration(late) if late is not None and late > 0 else None


COLUMNS: list[Column] = [
    ("deadline", lambda row: row["key"]),
    ("name", lambda row: row["name"]),
    ("state", lambda row: row["state"]),
    ("due", lambda row: row["due_at"]),
    ("verdict", lambda row: row["closed_at"]),
    ("late", _late),
    ("job was", lambda row: row["job_state"]),
    ("on breach", lambda row: row["on_breach"]),
    ("callback", lambda row: row["callback_job"]),
]


@click.command()
@click.option("--state", type=click.Choice(STATES), help="Only these.")
@click.option("--name", metavar="NAME", help="Only of this name.")
@click.option("--unhandled", is_flag=True, help="Breaches of which nobody was told; exit status 1.")
@limit_option(50)
@reading_options
def deadlines(state: str | None, name: str | None, unhandled: bool, limit: int, **_: Any) -> None:
    """Promised times: the open ones, what is due first; then those with a verdict."""

    async def work(app: App) -> list[dict[str, Any]]:
        inspector = await app.inspect()
        if unhandled:
            return await inspector.unhandled_breaches(limit)
        return await inspector.deadlines(state, name, limit)

    rows = ask(work)
    columns: list[Column] = COLUMNS
    if unhandled:
        names = ("id", "level", "name", "task", "callback_job", "why")
        columns = [(heading, lambda row, key=heading: row[key]) for heading in names]  # type: ignore[misc]
    if given("as_json"):
        show_json(rows)
    else:
        show_table(rows, columns, "No deadlines.")
    if unhandled and rows:
        end_badly()
