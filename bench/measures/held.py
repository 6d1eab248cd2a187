"""A transaction that somebody holds open: dead rows cannot be removed meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import click
import psycopg

from bench.command import common, run
from bench.cost import Cost, cost_now
from bench.measures.latency import percentile
from bench.parties import LEASEWORK, RAW
from bench.process import Contender, Side
from bench.report import Result, median
from bench.server import Server
from bench.workers import Place, Workers, Wrong, place

COLUMNS = {
    "p99_first": "p99 ms, first stretch",
    "p99_last": "p99 ms, last stretch",
    "p99_growth": "growth",
    "p999_first": "p99.9 ms, first stretch",
    "p999_last": "... last stretch",
    "cpu_growth": "server CPU/job, growth",
    "memory_first": "worker's own MB, after the first stretch",
    "memory_last": "... after the last",
    "burst_held": "burst at the end, jobs/s",
    "burst_beside": "... beside, nothing held",
    "burst_kept": "kept",
}


_BURSTS = 9

Seen = tuple[Cost, int, float]
"""What it has cost so far, the jobs, and the worker's memory."""


@contextmanager
def open_transaction(dsn: str, writes: bool = True) -> Iterator[psycopg.Connection[Any]]:
    """Repeatable read: a forgotten report or a stuck web request. It holds back every vacuum; with
    ``writes``, it has an xid as well."""
    with psycopg.connect(dsn) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select pg_current_xact_id()" if writes else "select 1")
        yield holder
        holder.rollback()


def held(
    server: Server, contender: Contender, rate: float, seconds: float, stretch: float, burst: int
) -> dict[str, float]:
    """One slice: ``rate`` jobs a second for ``seconds``, the first and the last ``stretch``
    compared; at its end bursts of ``burst`` jobs, in turn here and in another database, which the
    transaction does not concern. A worker of each lives all the time."""
    room, limit = 2 * (int(rate * seconds) + (_BURSTS + 1) * burst), seconds + 180
    with ExitStack() as stack:
        here, beside = (stack.enter_context(place(server, contender)) for _ in range(2))
        mine, theirs = (
            stack.enter_context(at.workers(1, room, limit, timed=True)) for at in (here, beside)
        )
        time.sleep(3.0)  # they have started and found nothing
        for at, workers in (here, mine), (beside, theirs):
            _burst(at, workers, burst)  # the first one makes the table's files
        with open_transaction(here.database):
            moments = (0.0, stretch, seconds - stretch, seconds)
            waits, seen = streamed(here, mine, rate, moments)
            kept = []
            for turn in range(_BURSTS):
                order = [(here, mine), (beside, theirs)]
                rates = {
                    at.dbname: _burst(at, workers, burst)
                    for at, workers in (order if turn % 2 else order[::-1])
                }
                kept.append((rates[here.dbname], rates[beside.dbname]))
        mine.stop()
        theirs.stop()
    first, last = _between(*seen[:2]), _between(*seen[2:])
    early = [w for at, w in waits if at < stretch]
    late = [w for at, w in waits if at >= seconds - stretch]
    return {
        "p99_first": percentile(early, 0.99),
        "p99_last": percentile(late, 0.99),
        "p99_growth": percentile(late, 0.99) / percentile(early, 0.99),
        "p999_first": percentile(early, 0.999),
        "p999_last": percentile(late, 0.999),
        "cpu_growth": last.server_seconds / first.server_seconds,
        "memory_first": first.memory_mb,
        "memory_last": last.memory_mb,
        "burst_held": median([ours for ours, _ in kept]),
        "burst_beside": median([other for _, other in kept]),
        "burst_kept": median([ours / other for ours, other in kept]),
    }


class Stretch(NamedTuple):
    server_seconds: float
    """CPU a job."""
    memory_mb: float
    """The worker's own, at its end."""


def streamed(
    here: Place, workers: Workers, rate: float, moments: Sequence[float]
) -> tuple[list[tuple[float, float]], list[Seen]]:
    """``rate`` jobs a second until the last of the ``moments``: (seconds since the start, wait in
    ms) of each job, and what was seen at each moment."""
    seconds = moments[-1]
    jobs, ran = int(rate * seconds), here.ledgers.count
    pid = here.watcher.info.backend_pid
    seen: list[Seen] = []
    options = {"rate": rate, "seconds": seconds, "size": 80}
    with Side(here.contender, "stream", dsn=here.dsn, **options) as producer:
        producer.ready().go()
        start = time.monotonic()
        for at in moments:
            workers.wait(lambda at=at: time.monotonic() >= start + at, 0.01)
            cost = cost_now(here.server, here.dbname, pid)
            seen.append((cost, here.ledgers.count, workers.memory_mb("RssAnon")))
        sent = producer.answer(seconds + 60)
    workers.wait_ran(ran + jobs)
    started = {n: ns for n, ns in here.ledgers.timed() if ns > sent[0][2]}
    if len(started) != jobs or here.ledgers.count != ran + jobs:
        raise Wrong(f"{jobs} jobs, {here.ledgers.count - ran} runs of {len(started)}")
    base = sent[0][2]
    waits = [
        ((ns - base) / 1e9, (started[n] - ns) / 1e6)
        for first, count, ns in sent
        for n in range(first, first + count)
    ]
    return waits, seen


def _between(before: Seen, after: Seen) -> Stretch:
    jobs = max(1, after[1] - before[1])
    return Stretch((after[0] - before[0]).server_seconds / jobs, after[2])


def _burst(here: Place, workers: Workers, jobs: int) -> float:
    """Jobs a second, from before they are enqueued, all at once beside a worker that has nothing
    to do, until the last one is recorded."""
    ran, newest = here.ledgers.count, here.newest()
    with Side(here.contender, "load", dsn=here.dsn, jobs=jobs, size=80) as producer:
        producer.ready()
        start = time.monotonic()
        producer.go().answer()
    workers.wait(
        lambda: here.ledgers.count >= ran + jobs and not here.unfinished_since(newest), 0.01
    )
    return jobs / (time.monotonic() - start)


@click.command("held")
@common(rounds=1)
@click.option("--minutes", default=10.0)
@click.option("--stretch", default=60.0, help="seconds at either end that are compared")
@click.option("--rate", default=1000.0, help="jobs a second")
@click.option("--burst", default=30_000)
@click.option("--alone", is_flag=True, help="leasework only, in half the time")
def command(
    minutes: float, stretch: float, rate: float, burst: int, alone: bool, **options: Any
) -> None:
    """A transaction held open elsewhere, under a steady load."""
    with run(**options) as this:
        said = f"{rate:g} jobs/s for {minutes:g} minutes, stretches of {stretch:g} s"
        result = Result(
            "A transaction held open", said, COLUMNS, (LEASEWORK if alone else RAW).name
        )
        this.interleave(
            result,
            lambda c: held(this.server, c, rate, minutes * 60, stretch, burst),
            [LEASEWORK] if alone else None,
        )
