"""Idle: what a worker that has nothing to do, and does not lead, costs."""

from __future__ import annotations

import re
import time
from typing import Any

import click

from bench.command import common, run
from bench.cost import cpu_seconds, tree_seconds
from bench.parties import RAW
from bench.process import Contender
from bench.report import Result
from bench.server import Server
from bench.workers import Wrong, place

COLUMNS = {
    "statements_per_second": "statements/s",
    "worker_cpu_seconds": "worker CPU s",
    "backends_cpu_seconds": "backends CPU s",
    "connections": "connections",
}
_STATEMENT = re.compile(r"\[(\d+)\] LOG:  (?:statement|execute [^:]*):")


def idle(server: Server, contender: Contender, seconds: float, settle: float) -> dict[str, float]:
    """One slice: a first worker that leads if there is such a thing, then the measured one. The
    server's log names each statement with its backend."""
    if server.log is None:
        raise click.UsageError("idle reads the server's log: it needs a server of our own")
    with place(server, contender) as here:
        here.call("load", jobs=1, size=80)
        with here.workers(1, 10) as leading:
            leading.wait_ran(1)
            time.sleep(settle)
            others = server.backends(here.dbname)
            with here.workers(1, 10) as follower:
                time.sleep(settle)
                mine = server.backends(here.dbname) - others
                if not mine:
                    raise Wrong(f"{contender.name}: the second worker has no connection")
                server.admin.execute("alter system set log_statement = 'all'")
                server.admin.execute("select pg_reload_conf()")
                time.sleep(0.5)
                try:
                    figures = _watch(server, follower.sides[0].process.pid, mine, seconds)
                finally:
                    server.admin.execute("alter system reset log_statement")
                    server.admin.execute("select pg_reload_conf()")
                follower.stop()
            leading.stop()
    return figures


def _watch(server: Server, pid: int, backends: set[int], seconds: float) -> dict[str, float]:
    assert server.log
    start = server.log.stat().st_size
    worker, theirs = tree_seconds(pid), sum(map(cpu_seconds, backends))
    time.sleep(seconds)
    worker, theirs = tree_seconds(pid) - worker, sum(map(cpu_seconds, backends)) - theirs
    with server.log.open(errors="replace") as log:
        log.seek(start)
        statements = sum(
            1 for line in log if (m := _STATEMENT.search(line)) and int(m[1]) in backends
        )
    return {
        "statements_per_second": statements / seconds,
        "worker_cpu_seconds": worker * 30 / seconds,
        "backends_cpu_seconds": theirs * 30 / seconds,
        "connections": len(backends),
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
