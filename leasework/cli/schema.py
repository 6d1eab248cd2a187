"""``leasework schema``: apply, sql, verify, lift-tokens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from leasework.cli.asking import (
    ask,
    chosen,
    database_options,
    end_badly,
    given,
    reading_options,
)
from leasework.cli.output import fancy, show_json, text


@click.group()
@database_options
def schema(**_: Any) -> None:
    """Create or check the tables and views of leasework."""


@schema.command("apply")
@database_options
def apply_schema(**_: Any) -> None:
    """Apply missing migrations. Several processes can do this at the same time."""
    with _progress() as tell:
        applied = ask(lambda app: app.apply_schema(tell))
    for name in applied:
        click.echo(f"Applied {name}.")
    if not applied:
        click.echo("Nothing to do: the schema is up to date.")


@schema.command("sql")
@click.option("--roles", is_flag=True, help="Print the SQL that creates roles to grant to logins.")
@click.option(
    "--no-transaction",
    is_flag=True,
    help="Omit begin and commit, for tools that open the transaction themselves.",
)
@database_options
def schema_sql(roles: bool, no_transaction: bool, **_: Any) -> None:
    """Print the SQL that creates the whole schema, to apply it with other tools.

    In a migration of Alembic, call App.schema_statements() and execute each statement.

    With --roles, for an existing schema: the roles enqueue, worker, operator, observer and admin,
    named after the schema (leasework_worker …), and their grants. You can run it repeatedly.
    """
    app = chosen(None)
    if roles:
        click.echo(app.roles_sql(), nl=False)
    elif no_transaction:
        click.echo(";\n\n".join([*app.schema_statements(), ""]), nl=False)
    else:
        click.echo(app.schema_sql(), nl=False)


@schema.command("verify")
@reading_options
def verify_schema(**_: Any) -> None:
    """Compare the schema with a new one. Exit status 1 if they differ."""
    differences = ask(lambda app: app.verify_schema())
    if given("as_json"):
        show_json({"ok": not differences, "differences": differences})
    else:
        for difference in differences:
            click.echo(text(difference))
        if not differences:
            click.echo("The schema is correct.")
    if differences:
        end_badly()


@schema.command("lift-tokens")
@database_options
def lift_tokens(**_: Any) -> None:
    """Make every later token higher than all earlier ones.

    Run it after a restore from an older backup, after a failover that lost commits, and when doctor
    recommends it. Fences in other stores may remember tokens that the database does not know. It
    also advances sequences past rows that were copied without them. It works while nodes run.
    """
    timeline = ask(lambda app: app.lift_tokens())
    click.echo(f"Tokens continue at timeline {timeline}: from {timeline - 1 << 32:,}.")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A spinner on a terminal; elsewhere, lines on stderr for steps that take long."""
    if not (fancy() and sys.stderr.isatty()):
        yield lambda what: click.echo(f"{what} …", err=True)
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("connecting") as status:
        yield lambda what: status.update(Text(what))
