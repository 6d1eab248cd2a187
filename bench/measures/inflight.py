"""Jobs in flight: a steady stream of short jobs, while other processes run many long jobs of the
same queue."""

from __future__ import annotations

import time
from contextlib import ExitStack
from math import ceil
from typing import Any, NamedTuple

import click

from bench.command import common, run
from bench.measures.held import open_transaction, streamed
from bench.measures.latency import percentile
from bench.parties import LEASEWORK
from bench.report import Result
from bench.server import Server
from bench.workers import place

COLUMNS = {
    "core_percent": "server CPU, % of a core",
    "p50_ms": "wait p50 ms",
    "p99_ms": "wait p99 ms",
    "claim_ms": "one claim, ms in the server",
    "claims_per_second": "claims/s",
}
_LONG_MS = 86_400_000.0
_LIMIT_SECONDS = 600.0


class Load(NamedTuple):
    """``rate`` short jobs a second for ``seconds``, run by ``workers`` processes, while ``holders``
    processes run the long jobs; ``held``: beside a held snapshot."""

    rate: float
    seconds: float
    workers: int
    holders: int
    settle: float
    held: bool


def inflight(server: Server, load: Load, slots: int) -> dict[str, float]:
    """One slice: each holder runs ``slots`` long jobs, which is all that it may run at once. The
    stream begins before it is measured: the first claim of a process looks at everything."""
    long, jobs = load.holders * slots, int(load.rate * load.seconds)
    early = int(load.rate * load.settle)
    limit = 2 * load.settle + load.seconds + _LIMIT_SECONDS
    with ExitStack() as stack:
        here = stack.enter_context(place(server, LEASEWORK))
        here.queries.track_claims(here.watcher)
        here.call("load", jobs=long, size=80)
        options: dict[str, Any] = {"sleep_ms": _LONG_MS, "slots": slots}
        holders = stack.enter_context(here.workers(load.holders, 2 * slots, limit, **options))
        holders.wait_ran(long, 0.05)
        here.fresh_ledgers()
        workers = stack.enter_context(here.workers(load.workers, early + jobs, limit, timed=True))
        here.watcher.execute("analyze")
        time.sleep(load.settle)
        here.call("stream", rate=load.rate, seconds=load.settle, size=80)
        workers.wait_ran(early)
        if load.held:
            stack.enter_context(open_transaction(here.database, writes=False))
        claims, took_ms = here.queries.claims(here.watcher)
        waits, (before, after) = streamed(here, workers, load.rate, (0.0, load.seconds))
        workers.stop()  # a backend that ends tells its last counts
        claims_after, took_ms_after = here.queries.claims(here.watcher)
    ms = [wait for _, wait in waits]
    claims = claims_after - claims
    spent = after[0] - before[0]
    return {
        "core_percent": spent.server_seconds / load.seconds * 100,
        "p50_ms": percentile(ms, 0.5),
        "p99_ms": percentile(ms, 0.99),
        "claim_ms": (took_ms_after - took_ms) / max(1, claims),
        "claims_per_second": claims / load.seconds,
        "jobs": jobs,
        "long_jobs": long,
    }


@click.command("inflight")
@common()
@click.option("--long", multiple=True, default=(0, 15_000, 100_000), help="again for each number")
@click.option("--rate", default=200.0, help="short jobs a second")
@click.option("--seconds", default=60.0)
@click.option("--workers", default=10, help="processes that run the short jobs")
@click.option("--holders", default=10, help="processes that run the long jobs, one each at least")
@click.option("--held", is_flag=True, help="beside a reading transaction that keeps its snapshot")
@click.option("--settle", default=10.0, help="seconds for the start, and again for first claims")
def command(
    long: tuple[int, ...],
    rate: float,
    seconds: float,
    workers: int,
    holders: int,
    held: bool,
    settle: float,
    **options: Any,
) -> None:
    """Short jobs, while many long ones run."""
    load = Load(rate, seconds, workers, holders, settle, held)
    cases = {}
    for count in long:
        slots = max(1, ceil(count / holders))
        cases[f"{holders * slots:,} long jobs"] = slots
    with run(**options) as this:
        said = f"{rate:g} no-op jobs/s for {seconds:g} s on {workers} worker processes, while "
        said += f"{holders} others run the long jobs" + ", beside a held snapshot" * held
        result = Result("Jobs in flight, leasework", said, COLUMNS, next(iter(cases)))
        this.results.append(result)
        for turn in range(this.rounds):
            for name, slots in list(cases.items())[:: 1 if turn % 2 == 0 else -1]:
                result.add(name, figures := inflight(this.server, load, slots))
                click.echo(f"round {turn + 1} {name}: {figures}", err=True)
