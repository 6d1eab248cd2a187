"""``leasework doctor``: checks the database and the connection, and says how to fix problems."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import click

from leasework.cli.asking import ask, end_badly, given, reading_options
from leasework.cli.output import counted, heading, show_json, show_pairs, text

if TYPE_CHECKING:
    from leasework.app.diagnosis import Diagnosis, Role


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0.2, 600),
    default=5.0,
    show_default=True,
    help="How long to observe clocks and renewals.",
)
@click.option(
    "--role",
    type=click.Choice(["worker", "enqueue", "observer"]),
    default="worker",
    show_default=True,
    help="Role to check this login for.",
)
@click.option(
    "--recover-within",
    type=float,
    help="Value of recover_within to check. [env: LEASEWORK_RECOVER_WITHIN; default: that of the "
    "nodes]",
)
@reading_options
def doctor(seconds: float, role: str, recover_within: float | None, **_: Any) -> None:
    """Check the database, the connection and the nodes. Exit status 1 if anything is wrong.

    Changes nothing: the schema that it creates for comparison is rolled back.
    """

    async def work(app: Any) -> Diagnosis:
        from leasework.app.diagnosis import diagnose

        if recover_within is not None:
            app.configure(recover_within=recover_within)
        assumed = recover_within is None and not os.environ.get("LEASEWORK_RECOVER_WITHIN")
        settings = await app.located()
        return await diagnose(settings, app.env, seconds, cast("Role", role), as_nodes=assumed)

    diagnosis = ask(work)
    if given("as_json"):
        show_json(diagnosis.as_json())
    else:
        show(diagnosis)
    if not diagnosis.ok:
        end_badly()


def show(diagnosis: Diagnosis) -> None:
    """Print each finding with its fix below it, then the figures."""
    levels = Counter(finding.level for finding in diagnosis.findings)
    wrong, notes = levels["wrong"], levels["note"]
    for finding in diagnosis.findings:
        mark = "WRONG" if finding.level == "wrong" else finding.level
        click.echo(f"{mark:<6}{finding.kind}: {text(finding.sentence)}")
        if finding.do:
            click.echo(f"      -> {text(finding.do)}")
    click.echo()
    show_pairs(diagnosis.intervals)
    click.echo()
    if wrong:
        heading(f"{counted(wrong, 'problem')} to fix", good=False)
    elif notes:
        heading(f"Nothing to fix. {counted(notes, 'note')}", good=True)
    else:
        heading("No problems found", good=True)
