"""What the commands share: options, and running a function on the application's database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from leasework.cli.fitting import GAP, Column
from leasework.cli.output import show_json, show_table, text

if TYPE_CHECKING:
    from leasework.app import App
    from leasework.watch.operator import Operator

T = TypeVar("T")
Function = Callable[..., Any]
Option = Callable[[Function], Function]


def together(*options: Option) -> Option:
    """Several options and arguments as one decorator, in the order of the help."""

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


database_options = together(
    click.option("--dsn", metavar="DSN", help="Database to use. [env: LEASEWORK_DSN]"),
    click.option(
        "--schema", "schema_name", metavar="NAME", help="Schema to use. [env: LEASEWORK_SCHEMA]"
    ),
)
"""On a group they hold for its subcommands too."""
acting_options = together(
    click.option("--reason", default="", metavar="TEXT", help="Why; recorded with the act."),
    database_options,
)
"""Of the commands whose act is recorded with the person."""
reading_options = together(
    database_options, click.option("--json", "as_json", is_flag=True, help="Print JSON.")
)
table_options = together(
    reading_options,
    click.option(
        "--wide", is_flag=True, help="Show all columns in full, even if the terminal is narrower."
    ),
)


def limit_option(default: int) -> Option:
    return click.option(
        "--limit",
        type=click.IntRange(1, 10_000),
        default=default,
        show_default=True,
        help="Maximum number of rows.",
    )


def given(name: str) -> Any:
    """The value of an option of this command, or else of its group."""
    context: click.Context | None = click.get_current_context()
    while context is not None:
        value = context.params.get(name)
        if value not in (None, False):
            return value
        context = context.parent
    return None


def has_subcommand(**filters: str | None) -> bool:
    """Return whether a subcommand follows the group. Raises UsageError if it would ignore one of
    ``filters``, the options of the group's list."""
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        return False
    for name, value in filters.items():
        if value is not None:
            command = f"{context.command_path} {context.invoked_subcommand}"
            raise click.UsageError(f"--{name} filters the list only. See {command} --help.")
    return True


def end_badly() -> NoReturn:
    """Exit with status 1; the problem has already been printed."""
    click.get_current_context().exit(1)


def database() -> dict[str, Any]:
    """The options of App that the command line sets."""
    options = {"dsn": given("dsn"), "schema": given("schema_name")}
    return {name: value for name, value in options.items() if value is not None}


def chosen(target: str | None) -> App:
    """An App on the chosen database: that of ``target``, MODULE:APP, or one without tasks."""
    if target is None:
        from leasework.app import App

        return App(**database())
    from leasework.app.load import load_app

    return load_app(target, database())


def ask(work: Callable[[App], Awaitable[T]], target: str | None = None) -> T:
    """Run ``work`` with the :func:`chosen` App."""
    import asyncio

    app = chosen(target)

    async def run() -> T:
        try:
            return await work(app)
        finally:
            await app.close()

    return asyncio.run(run())


async def operator(app: App) -> Operator:
    """An operator that acts as the user who runs this command, for the reason that it gives."""
    return await app.operator(app.env.user, "cli", given("reason") or "")


def act(action: Callable[[Operator], Awaitable[T]]) -> T:
    """Act as the user who runs this command."""

    async def work(app: App) -> T:
        return await action(await operator(app))

    return ask(work)


def show_rows(found: Sequence[Any], columns: list[Column], empty: str) -> None:
    """Print a table or JSON, as the options of the command say."""
    rows = [row if isinstance(row, dict) else row._asdict() for row in found]
    if given("as_json"):
        show_json(rows)
    else:
        show_table(rows, columns, empty, wide=bool(given("wide")))


def show_line(row: dict[str, Any], columns: list[Column]) -> None:
    """Print a row as it comes: in full, or as JSON on one line."""
    if given("as_json"):
        show_json(row, None)
    else:
        click.echo(GAP.join(text(column.show(row)) for column in columns))
