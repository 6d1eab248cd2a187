"""Idle: what a worker that has nothing to do, and does not lead, costs."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from bench.command import common, run
from bench.cost import cost_now, cpu_seconds
from bench.parties import RAW
from bench.process import Contender
from bench.report import Result
from bench.server import Server
from bench.workers import Place, Workers, Wrong, place

COLUMNS = {
    "statements_per_second": "statements/s",
    "worker_cpu_seconds": "worker CPU s",
    "backends_cpu_seconds": "backends CPU s",
    "connections": "connections",
}
_STATEMENT = re.compile(r"\[(\d+)\] LOG:  (?:statement|execute [^:]*):")


Found = tuple[Place, set[int], set[int], Workers]
"""Where, the first worker's backends, those of the others, and the others."""


@contextmanager
def beside_a_leader(
    server: Server, contender: Contender, count: int, settle: float
) -> Iterator[Found]:
    """A first worker that leads if there is such a thing, then ``count`` others; all idle."""
    with place(server, contender) as here:
        here.call("load", jobs=1, size=80)
        with here.workers(1, 10) as leading:
            leading.wait_ran(1)
            time.sleep(settle)
            leaders = server.backends(here.dbname) - {here.watcher.info.backend_pid}
            with here.workers(count, 10) as followers:
                time.sleep(settle)
                others = server.backends(here.dbname) - leaders - {here.watcher.info.backend_pid}
                if len(others) < count:
                    raise Wrong(f"{contender.name}: a worker has no connection")
                yield here, leaders, others, followers
                followers.stop()
            leading.stop()


@contextmanager
def counted(server: Server) -> Iterator[Counter[int]]:
    """The statements of each backend, from the server's log; known at the end."""
    if server.log is None:
        raise click.UsageError("this reads the server's log: it needs a server of our own")
    server.admin.execute("alter system set log_statement = 'all'")
    server.admin.execute("select pg_reload_conf()")
    time.sleep(0.5)
    statements: Counter[int] = Counter()
    try:
        start = server.log.stat().st_size
        yield statements
        with server.log.open(errors="replace") as log:
            log.seek(start)
            statements.update(int(m[1]) for line in log if (m := _STATEMENT.search(line)))
    finally:
        server.admin.execute("alter system reset log_statement")
        server.admin.execute("select pg_reload_conf()")
    del statements[server.admin.info.backend_pid]


def quiet(server: Server, here: Place, seconds: float) -> tuple[float, Counter[int]]:
    """The server's CPU in % of a core; then, in as many seconds again, the statements: to log them
    costs CPU."""
    pid = here.watcher.info.backend_pid
    before = cost_now(server, here.dbname, pid)
    time.sleep(seconds)
    spent = cost_now(server, here.dbname, pid) - before
    with counted(server) as statements:
        time.sleep(seconds)
    return spent.server_seconds / seconds * 100, statements


def idle(server: Server, contender: Contender, seconds: float, settle: float) -> dict[str, float]:
    """One slice: the follower."""
    with beside_a_leader(server, contender, 1, settle) as (_, _, mine, follower):
        with counted(server) as statements:
            worker, theirs = follower.cpu_seconds(), sum(map(cpu_seconds, mine))
            time.sleep(seconds)
            worker = follower.cpu_seconds() - worker
            theirs = sum(map(cpu_seconds, mine)) - theirs
        said = sum(statements[pid] for pid in mine)
    return {
        "statements_per_second": said / seconds,
        "worker_cpu_seconds": worker * 30 / seconds,
        "backends_cpu_seconds": theirs * 30 / seconds,
        "connections": len(mine),
    }


@click.command("idle")
@common()
@click.option("--seconds", default=30.0)
@click.option("--settle", default=8.0, help="seconds before, for elections and first polls")
def command(seconds: float, settle: float, **options: Any) -> None:
    """A follower with nothing to do: statements and CPU (both told for 30 s)."""
    with run(**options) as this:
        said = f"a second worker process, {seconds:g} s; CPU seconds in 30 s"
        result = Result("Idle cost", said, COLUMNS, RAW.name)
        this.interleave(result, lambda c: idle(this.server, c, seconds, settle))
