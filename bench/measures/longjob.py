"""One transaction held for each long job, as the plain SKIP LOCKED recipe has it: what it does to
the dead rows of a busy table beside it. leasework holds none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click
import psycopg

from bench.command import common, run
from bench.parties import LEASEWORK, RAW
from bench.report import Result
from bench.server import Server
from bench.sql import one
from bench.workers import Place, place

COLUMNS = {
    "dead_rows": "dead rows left in a busy table",
    "size_growth": "its size, times",
    "oldest_seconds": "oldest transaction s",
    "update_ms": "its update p50 ms, at the end",
}
_BUSY_ROWS = 1000


@contextmanager
def _recipe(here: Place, jobs: int) -> Iterator[None]:
    """``jobs`` transactions, each with its row locked FOR UPDATE SKIP LOCKED and left open."""
    here.call("load", jobs=jobs, size=80)
    with ExitStack() as stack:
        for _ in range(jobs):
            held = stack.enter_context(psycopg.connect(here.database))
            held.execute(
                "select id from job where state = 'ready' order by id limit 1"
                " for update skip locked"
            )
        yield


@contextmanager
def _leasework(here: Place, jobs: int) -> Iterator[None]:
    here.call("load", jobs=jobs, size=80)
    with here.workers(1, 2 * jobs + 10, sleep_ms=600_000.0) as workers:
        workers.wait_ran(jobs)
        yield
        for side in workers.sides:
            side.process.kill()


def beside(server: Server, here: Place, seconds: float) -> dict[str, float]:
    """A busy table of the user's, while the long jobs run."""
    with psycopg.connect(here.database, autocommit=True) as busy:
        busy.execute("create table busy (id int primary key, n int not null default 0)")
        busy.execute("insert into busy select generate_series(1, %s)", [_BUSY_ROWS])
        busy.execute("vacuum analyze busy")
        size = one(busy, "select pg_relation_size('busy')")
        busy.execute("set synchronous_commit = off")
        times: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.monotonic()
            busy.execute("update busy set n = n + 1 where id = 1 + (random() * 998)::int")
            times.append(time.monotonic() - start)
        oldest = one(
            busy,
            "select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8"
            " from pg_stat_activity where datname = current_database()"
            " and coalesce(backend_xmin, backend_xid) is not null and pid <> pg_backend_pid()",
        )
        busy.execute("vacuum busy")
        dead = one(busy, "select n_dead_tup from pg_stat_user_tables where relname = 'busy'")
        grown = one(busy, "select pg_relation_size('busy')")
    tail = sorted(times[-max(1, len(times) // 10) :])
    return {
        "dead_rows": float(dead),
        "size_growth": grown / size,
        "oldest_seconds": oldest,
        "update_ms": tail[len(tail) // 2] * 1000,
    }


@click.command("longjob")
@common(rounds=1)
@click.option("--jobs", default=20, help="long jobs at once")
@click.option("--seconds", default=20.0)
def command(jobs: int, seconds: float, **options: Any) -> None:
    """One transaction held per long job, beside leasework's claims."""
    with run(**options) as this:
        said = f"{jobs} long jobs for {seconds:g} s; a table of {_BUSY_ROWS:,} rows updated beside"
        result = Result("Long jobs", said, COLUMNS, "leasework")
        this.results.append(result)
        for _ in range(this.rounds):
            for name, contender, jobs_run in (
                ("a transaction per job", RAW, _recipe),
                ("leasework", LEASEWORK, _leasework),
            ):
                with place(this.server, contender) as here, jobs_run(here, jobs):
                    result.add(name, beside(this.server, here, seconds))
