"""``make detection``: measures all of them, prints the table and writes the page."""

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
# How soon problems are detected

This page shows how many seconds it takes until leasework reports a problem. The measurement causes
26 problems in real processes: for example, it kills or freezes a worker, terminates a session,
sets a clock, or makes jobs fail. From that moment four observers check repeatedly:

- `leasework status` must exit with status 1 and print the sentence;
- the dashboard's page *Overview* must show the sentence;
- the metric `leasework_problems{{kind="…"}}` must be greater than 0;
- Prometheus scrapes two endpoints and evaluates the rules of `leasework metrics rules` every
  second. There must be an active alert, of this problem or of its cause.

The table shows after how many seconds each observer reported the problem. The target is
{limit:g} s. The figures include the time that the observer itself takes. For example, on a busy
machine the command needs some seconds to start.

| problem | kind | status | dashboard | metric | alert |
|---|---|---:|---:|---:|---:|
{rows}

`leasework status` printed these sentences:

{sentences}

These figures were measured with the default, `recover_within=15`, on {cpus} CPUs that also had
other work (load {load:.1f} at the end).

## When the measurement starts

The measurement starts when the problem is caused, with these exceptions:

- For a transaction, it starts when the transaction is older than `pin_seconds`. For a waiting job,
  it starts when the job has waited for longer than `overdue_seconds`. The defaults are 300 s and
  60 s. The measurement uses {pin:g} s for both.
- For a hanging job, it starts after 10 s, and for a session that blocks, after 5 s.
- For a deadline, it starts at its due time.
- For a missed moment, it starts when the leader is stopped for 4 s.
- For lost notifications, another version and a failing schedule, it starts when the worker that
  causes the problem has started.

## What limits the time

- If a node does not renew its lease, leasework reports it when three renewals in a row are missing:
  after 6 s by default. The node is declared dead after its whole lease, 10 s, or at once if its
  parent saw it die.
- Four alerts are active at once, but fire later: `LeaseworkNoLiveNode` and `LeaseworkQueueUnworked`
  after 10 s, `LeaseworkWakeupsLost` after a minute and `LeaseworkVersionsDiffer` after an hour. All
  others fire at once.

Run the measurement with `make detection`. `ARGS="poison_job"` measures one problem. `make healthy`
measures the opposite: it runs a healthy, busy application with deployments and counts the problems
that leasework reports, each of which is false.
"""


@click.command()
@click.argument("names", nargs=-1)
@click.option("--page", type=click.Path(path_type=Path), help="Write it here.")
def main(names: tuple[str, ...], page: Path | None) -> None:
    wrong = set(names) - set(SCENES)
    if wrong:
        raise click.UsageError(f"no such problem: {', '.join(wrong)}. Known: {', '.join(SCENES)}")
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
