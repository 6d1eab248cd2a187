"""leasework's jobs that wait: suspended ones beside plain ones, signals that wake them, and the end
of a batch."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import click

from bench.command import common, run
from bench.measures.drain import emptied
from bench.measures.latency import SETTLE_SECONDS, percentile
from bench.measures.limits import COLUMNS as CLAIM_COLUMNS, PLAIN, claims
from bench.parties import DURABLE, durable
from bench.report import Result
from bench.server import Server
from bench.sql import one
from bench.workers import Place, Wrong, place

SIGNALS = {
    "p50_ms": "signal to ctx.event p50 ms",
    "p99_ms": "p99 ms",
    "enqueue_p50_ms": "enqueue to handler p50 ms",
    "enqueue_p99_ms": "p99 ms",
    "beyond_p99_ms": "p99 beyond enqueue ms",
}
BATCHES = {
    "enqueued_per_second": "enqueued/s",
    "jobs_per_second": "jobs/s",
    "whole_per_second": "both, jobs/s",
    "backend_cpu_us": "backend CPU µs/job",
    "called_back_ms": "last outcome to callback ms",
}
_SUSPENDED = """
with made as (
    insert into leasework.job (id, queue, task_name, payload, ready, held_because, run_at)
    select leasework.new_id(), 'default', 't', '{{}}', false, 'event', now() + interval '100 years'
    from generate_series(1, {count}) returning id
)
insert into leasework.step (job, name, kind, token, open, at)
select id, 'go', 'event', 1, true, now() from made
"""
_CALLED_BACK = """
select extract(epoch from (select started_at from leasework.job_done where task_name = 'report')
                          - (select max(finished_at) from leasework.job_done
                             where task_name = 'noop'))::float8 * 1000
"""


def signals(server: Server, jobs: int, gap: float) -> dict[str, float]:
    """One slice: suspended jobs, each woken by a signal; in turn with plain ones."""
    with place(server, DURABLE) as here:
        ids = here.call("wait", jobs=jobs)
        with here.workers(1, 4 * jobs, flow=False) as workers:
            workers.wait(lambda: _suspended(here) == jobs)
            time.sleep(SETTLE_SECONDS)
            sent = here.call("signals", ids=ids, gap=gap)
            workers.wait_ran(2 * jobs)
            workers.stop()
        ran = dict(here.ledgers.timed())
    if len(ran) != 2 * jobs:
        raise Wrong(f"{2 * jobs} jobs, {len(ran)} ran")
    woken = [(ran[n] - after) / 1e6 for n, _, after in sent if n < jobs]
    plain = [(ran[n] - after) / 1e6 for n, _, after in sent if n >= jobs]
    figures = {}
    for key, waits in ("", woken), ("enqueue_", plain):
        for share in (50, 99):
            figures[f"{key}p{share}_ms"] = percentile(waits, share / 100)
    return {**figures, "beyond_p99_ms": figures["p99_ms"] - figures["enqueue_p99_ms"]}


def _suspended(here: Place) -> int:
    return int(one(here.watcher, "select count(*) from leasework.job where held_because = 'event'"))


def batch(server: Server, jobs: int, of_batch: bool) -> dict[str, float]:
    """One slice: jobs of nothing, enqueued in one call and then drained."""
    with place(server, DURABLE) as here:
        took = here.call("many", jobs=jobs, batch=of_batch)["seconds"]
        here.watcher.execute("analyze")
        with here.workers(1, 2 * jobs, flow=False) as workers:
            workers.wait_ran(1, 0.001)
            figures = emptied(here, workers, jobs)
            if of_batch:
                workers.wait_ran(jobs + 1)
                workers.wait(
                    lambda: bool(one(here.watcher, f"select ({_CALLED_BACK}) is not null"))
                )
            workers.stop()
        if here.finished() != jobs + of_batch:
            raise Wrong(f"{jobs} jobs, {here.finished()} finished")
        called = {"called_back_ms": one(here.watcher, _CALLED_BACK)} if of_batch else {}
    whole = took + jobs / figures["jobs_per_second"]
    rates = {"enqueued_per_second": jobs / took, "whole_per_second": jobs / whole}
    return {**figures, **rates, **called}


@click.command("suspended")
@common()
@click.option("--jobs", default=20_000)
@click.option("--suspended", default=100_000)
def suspended_command(jobs: int, suspended: int, **options: Any) -> None:
    """Plain jobs, claimed and acknowledged beside suspended ones."""
    with run(**options, parties=durable) as this:
        said = f"{jobs:,} plain jobs, claimed and acknowledged in batches of 50 on one connection"
        result = Result("Suspended jobs, leasework", said, CLAIM_COLUMNS, "none")
        this.results.append(result)
        beside = replace(
            PLAIN, name=f"{suspended:,} suspended", also=_SUSPENDED.format(count=suspended)
        )
        cases = [replace(PLAIN, name="none"), beside]
        for turn in range(this.rounds):
            for case in cases if turn % 2 == 0 else cases[::-1]:
                with this.server.database() as dsn:
                    figures = asyncio.run(claims(this.server, dsn, case, jobs))
                result.add(case.name, figures)
                click.echo(f"round {turn + 1} {case.name}: {figures}", err=True)


@click.command("signals")
@common()
@click.option("--jobs", default=300)
@click.option("--gap", default=0.03, help="seconds between two, plus or minus a half")
def signals_command(jobs: int, gap: float, **options: Any) -> None:
    """From a signal's commit to the handler that waits for it."""
    with run(**options, parties=durable) as this:
        said = f"{jobs} suspended jobs, in turn with as many plain ones, one each {gap:g} s; from"
        said += " the end of the call that commits"
        this.interleave(
            Result("Signals, leasework", said, SIGNALS, ""),
            lambda _: signals(this.server, jobs, gap),
            [DURABLE],
        )


@click.command("batch")
@common()
@click.option("--jobs", default=100_000)
def batch_command(jobs: int, **options: Any) -> None:
    """A batch, against as many jobs by ``enqueue_many``."""
    with run(**options, parties=durable) as this:
        said = f"{jobs:,} jobs of nothing, enqueued in one call, then drained by one worker process"
        result = Result("Batch, leasework", said, BATCHES, "enqueue_many")
        this.results.append(result)
        kinds = [("enqueue_many", False), ("batch", True)]
        for turn in range(this.rounds):
            for name, of_batch in kinds if turn % 2 == 0 else kinds[::-1]:
                figures = batch(this.server, jobs, of_batch)
                result.add(name, figures)
                click.echo(f"round {turn + 1} {name}: {figures}", err=True)
