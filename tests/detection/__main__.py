"""``make detection``: measures all twenty, prints the table and writes the page."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import click

from tests.detection.measure import LIMIT_SECONDS, Result, measure
from tests.detection.scenes import PIN_SECONDS, SCENES
from tests.detection.watch import SOURCES
from tests.support import postgres as servers

_PAGE = """\
# How soon trouble is detected

The measurement makes each of twenty troubles for real processes: it kills or freezes a worker, ends
a session, sets a clock, lets jobs fail. From then on four look again and again:

- `leasehold status`, which must end with exit status 1 and the sentence;
- the dashboard's page *now*, which must show the sentence;
- the metric `leasehold_problems{{kind="…"}}`, which must be more than 0;
- a Prometheus that scrapes two endpoints and evaluates the rules of `leasehold metrics rules` each
  second: the alert must be active, and active once.

The table has the seconds until each of them said it. The aim is {limit:g} s. The time of a look is
part of it: on a busy machine the command alone takes some seconds to start.

| what happens | kind | status | dashboard | metric | alert |
|---|---|---:|---:|---:|---:|
{rows}

The sentences that `status` said:

{sentences}

Measured with `recover_within=15`, the default, on {cpus} CPUs that were also busy with other
work (load {load:.1f} at the end).

From when the seconds count:

- A frozen or silent node is told when three renewals in a row are missing, 6 s at the default; a
  dead one after its whole lease, 10 s, or at once if its parent saw it die.
- A missed moment counts from the stop that held the leader up for 4 s.
- A transaction counts from when it is older than `pin_seconds`, and a waiting job from when it has
  waited for longer than `overdue_seconds`: 300 s and 60 s by default, {pin:g} s here.
- A deadline counts from its due time.
- A deaf link, another version and a failing schedule count from when the worker that brings them
  takes part.
- The alerts `LeaseholdWakeupsLost` and `LeaseholdVersionsDiffer` are active at once and fire after
  a minute and after an hour. All others fire at once.

Repeat it with `make detection`; `ARGS="poison_job"` measures one. `make healthy` is the other
side: it runs a healthy, busy application with deployments, and reports each problem that is said.
"""


@click.command()
@click.argument("names", nargs=-1)
@click.option("--page", type=click.Path(path_type=Path), help="Write it here.")
def main(names: tuple[str, ...], page: Path | None) -> None:
    wrong = set(names) - set(SCENES)
    if wrong:
        raise click.UsageError(f"no such trouble: {', '.join(wrong)}. Known: {', '.join(SCENES)}")
    results: list[Result] = []
    with servers.server() as shared, tempfile.TemporaryDirectory(prefix="lh-detect-") as folder:
        for name in names or SCENES:
            (Path(folder) / name).mkdir()
            result = measure(name, shared.dsn, Path(folder) / name)
            results.append(result)
            click.echo(f"{'ok  ' if result.good else 'LATE'} {_row(result)}")
    if page and not names:
        page.write_text(_page(results))
        click.echo(f"written: {page}")
    sys.exit(0 if all(result.good for result in results) else 1)


def _row(result: Result) -> str:
    scene = SCENES[result.name]
    seconds = [
        f"{result.seconds[s]:.1f}" if s in result.seconds else "not within 60" for s in SOURCES
    ]
    return f"| {scene.title} | `{scene.kind}` | {' | '.join(seconds)} |"


def _page(results: list[Result]) -> str:
    return _PAGE.format(
        limit=LIMIT_SECONDS,
        rows="\n".join(_row(result) for result in results),
        sentences="\n".join(
            f"- `{SCENES[result.name].kind}`: {_plain(result.sentence)}" for result in results
        ),
        cpus=os.cpu_count(),
        load=os.getloadavg()[0],
        pin=PIN_SECONDS,
    )


def _plain(sentence: str) -> str:
    """Host names of the machine that measured say nothing."""
    return re.sub(r"\b[\w.-]+:\d+:(?:[0-9a-f]{6}\b|-)", "web1:4711:0e54e3", sentence)


if __name__ == "__main__":
    main()
