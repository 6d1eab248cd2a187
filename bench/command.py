"""What the commands share: options, interleaving, the report at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from bench.parties import chosen, version
from bench.process import Contender
from bench.report import Result, machine, shown, write_json
from bench.server import Server, server

WITH = "a peer; peers: all of them; build=PATH: leasework of another checkout with its own .venv"


def common(rounds: int = 3) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of :func:`run`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in (
            click.option("--json", "json_path", type=click.Path(path_type=Path), help="write JSON"),
            click.option("--dsn", help="a server on this machine instead of one of our own"),
            click.option("--postgres", help="major version of the server of our own"),
            click.option("--with", "names", multiple=True, help=WITH),
            click.option("--rounds", default=rounds),
        ):
            command = option(command)
        return command

    return decorate


@dataclass
class Run:
    """One run of the harness: its server, its contenders and what came of it."""

    server: Server
    contenders: Sequence[Contender]
    rounds: int
    results: list[Result] = field(default_factory=list)

    def interleave(
        self,
        result: Result,
        measure: Callable[[Contender], dict[str, float]],
        contenders: Sequence[Contender] | None = None,
    ) -> None:
        """A B, B A, A B ...: whatever drifts on the machine meets both."""
        order = self.contenders if contenders is None else contenders
        self.results.append(result)
        for turn in range(self.rounds):
            for contender in order if turn % 2 == 0 else list(reversed(order)):
                figures = measure(contender)
                result.add(contender.name, figures)
                shown = " ".join(f"{k}={figures[k]:.4g}" for k in result.columns if k in figures)
                click.echo(f"round {turn + 1} {contender.name}: {shown}", err=True)


@contextmanager
def run(
    rounds: int,
    names: Sequence[str],
    dsn: str | None,
    postgres: str | None,
    json_path: Path | None,
    always: Sequence[str] = (),
    parties: Callable[[Sequence[str]], Sequence[Contender]] = chosen,
) -> Iterator[Run]:
    """Prints the tables and writes the JSON at the end. ``always``: besides ``names``. ``parties``
    finds the contenders of names."""
    with server(dsn, postgres) as running:
        this = Run(running, parties([*always, *names]), rounds)
        try:
            yield this
        finally:  # also what there was before a failure
            _finish(this, json_path)


def _finish(this: Run, json_path: Path | None) -> None:
    settings = this.server.settings()
    click.echo(_line(machine()))
    click.echo(_line(settings))
    parties = [_party(contender) for contender in this.contenders]
    for party in parties:
        click.echo(party)
    for result in this.results:
        click.echo("\n" + shown(result))
    if json_path:
        write_json(json_path, this.results, settings, parties)


def _party(contender: Contender) -> str:
    """Who it is, for people."""
    share = "" if contender.share == 1 else f"; {contender.share:g} of the jobs of a drain"
    return f"{contender.name} {version(contender)}".strip() + f": {contender.settings}{share}"


def _line(facts: dict[str, Any]) -> str:
    return " · ".join(f"{name} {value}" for name, value in facts.items())
