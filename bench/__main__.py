"""``python -m bench MEASURE``: side by side, interleaved; a table, and JSON with ``--json``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from bench.drain import Work, drain
from bench.process import Contender
from bench.report import Result, machine, write_json
from bench.server import Server, server
from bench.table import LEASEHOLD, RAW

_DRAIN = {
    "jobs_per_second": "jobs/s",
    "backend_cpu_us": "backend CPU µs/job",
    "server_cpu_us": "server CPU µs/job",
    "wal_bytes": "WAL B/job",
    "buffers": "buffers/job",
}


@click.group(context_settings={"show_default": True})
def main() -> None:
    """Side by side with peers and with the raw SQL bound."""


def common(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--json", "json_path", type=click.Path(path_type=Path), help="write JSON"),
        click.option("--dsn", help="a server on this machine instead of one of our own"),
        click.option("--postgres", help="major version of the server of our own"),
        click.option("--rounds", default=3),
    ):
        command = option(command)
    return command


def interleave(
    result: Result,
    rounds: int,
    contenders: Sequence[Contender],
    measure: Callable[[Contender], dict[str, float]],
) -> None:
    """A B, B A, A B ...: whatever drifts on the machine meets both."""
    for turn in range(rounds):
        for contender in contenders if turn % 2 == 0 else reversed(contenders):
            figures = measure(contender)
            result.add(contender.name, figures)
            shown = " ".join(f"{k}={figures[k]:.4g}" for k in result.columns if k in figures)
            click.echo(f"round {turn + 1} {contender.name}: {shown}", err=True)


def finish(results: Sequence[Result], running: Server, json_path: Path | None) -> None:
    click.echo(" · ".join(f"{k} {v}" for k, v in machine().items()))
    click.echo(" · ".join(f"{k} {v}" for k, v in running.settings().items()))
    for result in results:
        click.echo("\n" + result.table())
    if json_path:
        write_json(json_path, results, running.settings())


@main.command("drain")
@common
@click.option("--jobs", default=50_000)
@click.option("--workers", default=1)
@click.option("--size", default=80, help="bytes of text in each job's payload")
@click.option("--history", type=click.Choice(["both", "on", "off"]), default="both")
def drain_command(
    jobs: int, workers: int, size: int, history: str, rounds: int, json_path: Path | None, **at: Any
) -> None:
    """A loaded queue, drained by worker processes; and what it costs the server."""
    results = []
    with server(at["dsn"], at["postgres"]) as running:
        for kept in {"both": (True, False), "on": (True,), "off": (False,)}[history]:
            work = Work(jobs, workers, size, kept)
            said = f"{jobs:,} no-op async jobs, {workers} worker process(es), history " + (
                "kept" if kept else "not kept"
            )
            result = Result("drain", said, _DRAIN, RAW.name)
            interleave(result, rounds, (RAW, LEASEHOLD), lambda c, w=work: drain(running, c, w))
            results.append(result)
        finish(results, running, json_path)


if __name__ == "__main__":
    main()
