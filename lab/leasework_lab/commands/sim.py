"""``leasework sim``: tests the protocol against thousands of generated faults, in virtual time."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from leasework.cli.output import show_json

if TYPE_CHECKING:
    from leasework_lab.sim.cluster import Result

_PROFILES = ("calm", "deploy", "process", "network", "database", "everything", "failover")
_TOLD = {
    "faults": "faults",
    "enqueues": "enqueues",
    "jobs": "jobs run",
    "ticks": "ticks",
    "terms": "terms",
    "unknown": "unknown outcomes",
    "node_fenced": "self-fencings",
    "stale": "stale completions",
    "fenced": "fenced duties",
    "lost": "jobs lost in failovers",
}


@click.command(epilog="Exit status: 0 every invariant held, 1 one was violated, 2 wrong usage.")
@click.option(
    "--seeds", type=click.IntRange(1), default=1000, show_default=True, help="Number of seeds."
)
@click.option("--first", type=click.IntRange(0), default=0, show_default=True,
              help="First seed.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), help="Run this seed only.")
@click.option("--trace", is_flag=True, help="Print every step. Requires --seed.")
@click.option(
    "--profile", type=click.Choice(_PROFILES), help="Kind of faults. [default: the seed chooses]"
)
@click.option("--processes", "-p", type=click.IntRange(1, 256),
              help="Number of processes. [default: one per core]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def sim(
    seeds: int,
    first: int,
    seed: int | None,
    trace: bool,
    profile: str | None,
    processes: int | None,
    as_json: bool,
) -> None:
    """Run the real services in a simulated world, and check every promise.

    Each seed is one run. Processes crash, stall and are deployed. Calls are lost or answered late.
    Clocks step, and the database fails over. A seed always gives the same run. For each failure,
    the command prints how to replay it step by step.
    """
    if trace and seed is None:
        raise click.UsageError("--trace requires --seed")
    if seed is not None:
        sys.exit(_one(seed, profile, trace, as_json))
    sys.exit(_many(seeds, first, profile, processes or os.cpu_count() or 1, as_json))


def _one(seed: int, profile: str | None, trace: bool, as_json: bool) -> int:
    from leasework_lab.sim.cluster import run_seed

    result = run_seed(seed, profile=profile, trace=trace)
    if as_json:
        show_json({**_failed(result, profile), "totals": result.counts, "trace": result.trace})
        return 1 if result.violations else 0
    for line in result.trace:
        click.echo(line)
    for violation in result.violations:
        click.echo(f"VIOLATED {violation}")
    told = f"Seed {seed} ({result.profile}), {result.seconds:.0f} virtual seconds"
    click.echo(
        f"{told}: {'an invariant was violated' if result.violations else 'every invariant held'}."
    )
    return 1 if result.violations else 0


def _many(seeds: int, first: int, profile: str | None, processes: int, as_json: bool) -> int:
    from leasework.env import Env
    from leasework_lab.sim.sweep import sweep

    clock = Env()
    began = clock.boot_now()
    totals: Counter[str] = Counter()
    failed: list[dict[str, Any]] = []
    for done, result in enumerate(sweep(range(first, first + seeds), profile, processes), 1):
        totals.update(result.counts)
        if result.violations:
            failed.append(_failed(result, profile))
            if not as_json:
                _tell(failed[-1])
        if sys.stderr.isatty() and done % 20 == 0:
            click.echo(f"\r{done} of {seeds} seeds, {len(failed)} failed", nl=False, err=True)
    seconds = clock.boot_now() - began
    if sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)
    if as_json:
        given = {"first": first, "seeds": seeds, "seconds": round(seconds, 1)}
        show_json({**given, "failed": failed, "totals": dict(sorted(totals.items()))})
    else:
        _sum_up(seeds, seconds, totals, len(failed))
    return 1 if failed else 0


def _failed(result: Result, profile: str | None) -> dict[str, Any]:
    chosen = f" --profile {profile}" if profile else ""
    return {
        "seed": result.seed,
        "profile": result.profile,
        "violations": result.violations,
        "replay": f"leasework sim --seed {result.seed}{chosen} --trace",
    }


def _tell(failed: dict[str, Any]) -> None:
    for violation in failed["violations"]:
        click.echo(f"VIOLATED seed {failed['seed']} ({failed['profile']}): {violation}")
    click.echo(f"  replay: {failed['replay']}")


def _sum_up(seeds: int, seconds: float, totals: Counter[str], failed: int) -> None:
    click.echo(", ".join(f"{totals[name]:,} {words}" for name, words in _TOLD.items()))
    kinds = {n.removeprefix("fault "): c for n, c in totals.items() if n.startswith("fault ")}
    if kinds:
        click.echo("Faults: " + ", ".join(f"{c:,} {kind}" for kind, c in sorted(kinds.items())))
    verdict = f"{failed} violated an invariant" if failed else "every invariant held"
    click.echo(f"{seeds:,} seeds in {seconds:.0f} s: {verdict}.")
