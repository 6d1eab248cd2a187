"""``leasework chaos``: injects real faults into real processes, and gives a verdict."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leasework.cli.asking import database, database_options
from leasework.errors import ConfigError, LeaseworkError

if TYPE_CHECKING:
    from leasework_lab.chaos.campaign import Order
    from leasework_lab.chaos.gate import Verdict

_PROFILES = ("process", "network", "database", "all", "none")
_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)
_SEEDS = 1_000_000
EXIT_NOTHING_SHOWN = 3
"""The exit status if no promise was seen broken, but none was proved to hold either."""


class _Campaign(click.Command):
    """An end without a verdict is not a broken promise: it has a different exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Stopped before a verdict was reached.", err=True)
        except LeaseworkError as error:
            click.echo(f"leasework: {' '.join(str(error).split())}", err=True)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception:
            traceback.print_exc()
        sys.exit(EXIT_NOTHING_SHOWN)


@click.command(
    cls=_Campaign,
    epilog="Exit status: 0 every promise held, 1 a promise was broken, 2 wrong usage, 3 no verdict "
    "(too little happened, the database could not be read, or the campaign was interrupted).",
)
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option("--seconds", type=click.FloatRange(5, 7200), default=65.0, show_default=True,
              help="Duration of the faults. The queues are drained afterwards.")  # fmt: skip
@click.option(
    "--seed",
    type=click.IntRange(0),
    help="Random seed for the kinds and durations of faults. It does not fix their timing.",
)
@click.option("--profile", type=click.Choice(_PROFILES), default="all", show_default=True)
@click.option("--processes", "-p", type=click.IntRange(2, 50), help="Number of nodes. [default: 4]")
@click.option(
    "--postgres", metavar="MAJOR", help="Version of the server that is started. [default: newest]"
)
@click.option(
    "--recover-within",
    type=float,
    help="recover_within of the built-in application, in seconds. [default: 9]",
)
@click.option(
    "--gate", is_flag=True, help="Run 60 s without faults, then every profile (ten minutes)."
)
@click.option("--soak", is_flag=True, help="Run the gate for an hour, on three servers.")
@click.option("--report", type=_FILE, help="Write an HTML report.")
@click.option("--json", "json_file", type=_FILE, help="Write a JSON report.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path),
              help="Keep histories and logs in this directory.")  # fmt: skip
@database_options
def chaos(
    target: str | None,
    seconds: float,
    seed: int | None,
    profile: str,
    processes: int | None,
    postgres: str | None,
    recover_within: float | None,
    gate: bool,
    soak: bool,
    report: Path | None,
    json_file: Path | None,
    keep: Path | None,
    **_: Any,
) -> None:
    """Kill, freeze and disconnect real processes, and check every promise.

    Without MODULE:APP, the campaign runs its built-in application, either on a PostgreSQL server
    that it starts or in the schema leasework_chaos of --dsn. With MODULE:APP, it starts workers of
    your application on your application's database and injects the same faults. Use a staging
    environment, never production.
    """
    from leasework.config import MIN_RECOVER_WITHIN, Timings
    from leasework.env import Env
    from leasework_lab.chaos.campaign import Order
    from leasework_lab.chaos.fleet import Plan
    from leasework_lab.chaos.gate import play

    if target and (gate or soak):
        raise click.UsageError("--gate and --soak only work without MODULE:APP")
    drawn = Env().rng.randrange(_SEEDS) if seed is None else seed
    plan = Plan(nodes=processes) if processes else Plan()
    within = Timings.derive(recover_within or MIN_RECOVER_WITHIN).recover_within
    order = Order(
        profile, drawn, seconds, dsn=_dsn(), postgres=postgres, recover_within=within, plan=plan,
        keep=keep,
    )  # fmt: skip
    if target:
        _aim(order, target, plan)
    kind = "gate" if gate else "soak" if soak else "one"
    verdict = play(kind, order, lambda text: click.echo(text, err=True))
    _write(verdict, report, json_file)
    _tell(verdict)
    sys.exit(verdict.exit_code)


def _dsn() -> str:
    dsn = database().get("dsn", "")
    return "" if dsn == "embedded" else dsn


def _aim(order: Order, target: str, plan: Any) -> None:
    """Aim at a user's application: its database, schema and name."""
    import asyncio
    from dataclasses import replace

    from leasework.app.load import load_app

    app = load_app(target)
    if database():
        app.configure(**database())
    if app.settings.dsn == "embedded":
        raise ConfigError(
            "workers cannot share the embedded PostgreSQL", got="embedded", do="Pass --dsn"
        )
    order.dsn = asyncio.run(app.dsn())
    order.settings = app.settings
    order.plan = replace(plan, target=target, producers=0)


def _write(verdict: Verdict, report: Path | None, json_file: Path | None) -> None:
    from leasework_lab.chaos.report import to_html, to_json

    given = (verdict.results, verdict.total, verdict.void)
    for file in (report, json_file):
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
    if report:
        report.write_text(to_html(*given), encoding="utf-8")
    if json_file:
        json_file.write_text(json.dumps(to_json(*given), indent=2) + "\n", encoding="utf-8")


def _tell(verdict: Verdict) -> None:
    total = verdict.total
    for result in verdict.results:
        campaign = result.campaign
        held = sum(check.verdict == "held" for check in result.checks)
        idle = sum(check.verdict == "idle" for check in result.checks)
        click.echo(
            f"{campaign.profile:9} seed {campaign.seed:<8} {result.counts.faults:4} faults, "
            f"{held} of {len(result.checks)} checks held"
            + (f", {idle} had nothing to check" if idle else "")
        )
        for check in result.checks:
            if check.unknown:
                click.echo(f"  UNKNOWN {check.name}: the database could not be read at the end")
            for text in check.violations:
                click.echo(f"  VIOLATED {check.name}: {text}")
    figures = (
        f"{total.faults} faults",
        f"{total.acknowledged:,} acknowledged enqueues",
        f"{total.terms} terms",
        f"{total.unknown} unknown outcomes ({total.recovered} had succeeded)",
        f"{total.stale} stale completions",
        f"{total.fenced} fenced duties",
    )
    click.echo(", ".join(figures))
    for text in verdict.void:
        click.echo(f"VOID: {text}")
    words = {0: "Every promise held.", 1: "A promise was broken.", 3: "No verdict."}
    unseen = [check.name for check in verdict.results[0].checks if _idle(verdict, check.name)]
    apart = f" Nothing to check: {', '.join(unseen)}." if unseen else ""
    click.echo(words[verdict.exit_code] + apart)


def _idle(verdict: Verdict, name: str) -> bool:
    """Did this check examine nothing in all runs?"""
    checks = [check for result in verdict.results for check in result.checks]
    return all(check.verdict == "idle" for check in checks if check.name == name)
