"""Many contenders for one lock, in several processes; never two holders."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import click

from bench.command import common, run
from bench.cost import cost_now
from bench.measures.latency import percentile
from bench.process import Contender, Side
from bench.report import Result
from bench.server import Server
from bench.workers import Wrong, place

COLUMNS = {
    "per_second": "acquisitions/s",
    "p50_ms": "wait p50 ms",
    "p99_ms": "wait p99 ms",
    "max_ms": "longest ms",
    "idle_ms": "nobody holds it, % of the time",
    "server_cpu_us": "server CPU µs each",
}
KINDS = {
    "app.lock (lease)": "lease",
    "advisory, session": "session",
    "advisory, transaction": "transaction",
    "plain advisory, 100 open connections": "plain",
}
LOCKS = Contender("locks", "locks", "")


def contend(
    server: Server, kind: str, contenders: int, processes: int, seconds: float, hold_ms: float
) -> dict[str, float]:
    """One slice."""
    with place(server, LOCKS) as here, ExitStack() as stack:
        pid = here.watcher.info.backend_pid
        options = {"kind": kind, "contenders": contenders // processes, "seconds": seconds}
        sides = [
            stack.enter_context(Side(LOCKS, "contend", dsn=here.dsn, hold_ms=hold_ms, **options))
            for _ in range(processes)
        ]
        for side in sides:
            side.ready()
        before = cost_now(server, here.dbname, pid)
        for side in sides:
            side.go()
        held = sorted(
            (got, gone, asked) for side in sides for asked, got, gone in side.answer(seconds + 120)
        )
        spent = cost_now(server, here.dbname, pid) - before
    if not held:
        raise Wrong(f"{kind}: nobody ever had the lock")
    overlaps = [1 for (_, gone, _), (got, _, _) in pairwise(held) if got < gone]
    if overlaps:
        raise Wrong(f"{kind}: {len(overlaps)} times two held it")
    waits = [(got - asked) / 1e6 for got, _, asked in held]
    span = held[-1][1] - held[0][0]
    busy = sum(gone - got for got, gone, _ in held)
    return {
        "per_second": len(held) / (span / 1e9),
        "p50_ms": percentile(waits, 0.5),
        "p99_ms": percentile(waits, 0.99),
        "max_ms": max(waits),
        "idle_ms": (span - busy) / span * 100,
        "server_cpu_us": spent.server_seconds / len(held) * 1e6,
    }


@click.command("locks")
@common(rounds=3)
@click.option("--contenders", default=100)
@click.option("--processes", default=4)
@click.option("--seconds", default=5.0)
@click.option("--hold-ms", default=1.0)
def command(
    contenders: int, processes: int, seconds: float, hold_ms: float, **options: Any
) -> None:
    """Contenders for one lock: lease, session advisory, transaction advisory."""
    with run(**options) as this:
        said = f"{contenders} contenders in {processes} processes, each holds it for {hold_ms:g} ms"
        result = Result("One lock", said, COLUMNS, "plain advisory, 100 open connections")
        this.results.append(result)
        for turn in range(this.rounds):
            for name, kind in list(KINDS.items())[:: 1 if turn % 2 == 0 else -1]:
                figures = contend(this.server, kind, contenders, processes, seconds, hold_ms)
                result.add(name, figures)
                click.echo(f"round {turn + 1} {name}: {figures}", err=True)
