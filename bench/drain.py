"""Drain: a loaded queue, and worker processes until it is empty; each job ran exactly once."""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.cost import buffers_now, cost_now
from bench.ledger import Ledgers
from bench.process import Contender, Side, call
from bench.server import Server

LOOK_SECONDS = 0.003


class Wrong(Exception):
    """A job was lost, ran twice, or is not recorded as finished."""


@dataclass(frozen=True)
class Work:
    """What is to be done: ``jobs`` of ``size`` bytes of text by ``workers`` processes."""

    jobs: int
    workers: int = 1
    size: int = 80
    history: bool = True
    limit_seconds: float = 170.0


def drain(
    server: Server,
    contender: Contender,
    work: Work,
    after_load: Callable[[str], None] | None = None,
) -> dict[str, float]:
    """One slice, in a database of its own. The rate counts from the first job seen running to the
    moment when the database calls none unfinished."""
    queries = importlib.import_module(f"bench.queries.{contender.module}")
    with server.database() as dsn, tempfile.TemporaryDirectory(prefix="ledger-") as folder:
        server.checkpoint()  # so that full pages in the WAL are the load's
        call(contender, "prepare", dsn=dsn)
        loaded = call(
            contender, "load", dsn=dsn, jobs=work.jobs, size=work.size, history=work.history
        )
        with psycopg.connect(dsn, autocommit=True) as watcher:
            watcher.execute("analyze")
            if after_load:
                after_load(dsn)
            measured = _measure(server, contender, work, dsn, Path(folder), watcher, queries)
            _check(work, Ledgers(Path(folder)), watcher, queries)
        return {"load_jobs_per_second": work.jobs / loaded["seconds"], **measured}


def _measure(
    server: Server,
    contender: Contender,
    work: Work,
    dsn: str,
    folder: Path,
    watcher: psycopg.Connection[Any],
    queries: Any,
) -> dict[str, float]:
    dbname = str(conninfo_to_dict(dsn)["dbname"])
    options = {"dsn": dsn, "folder": str(folder), "entries": 2 * work.jobs}
    buffers = buffers_now(server, dbname)
    ledgers = Ledgers(folder)
    with ExitStack() as stack:
        sides = [
            stack.enter_context(Side(contender, "work", history=work.history, **options))
            for _ in range(work.workers)
        ]
        for side in sides:
            side.ready()
        for side in sides:
            side.go()
        limit = time.monotonic() + work.limit_seconds

        def wait(until: Callable[[], bool], pause: float) -> None:
            while not until():
                for side in sides:
                    side.check()
                if time.monotonic() > limit:
                    raise Wrong(f"{contender.name}: {ledgers.count} of {work.jobs} in time")
                time.sleep(pause)

        wait(lambda: ledgers.count > 0, 0.001)
        pid = watcher.info.backend_pid
        before = cost_now(server, dbname, pid)
        first, start = ledgers.count, time.monotonic()
        wait(lambda: ledgers.count >= work.jobs, LOOK_SECONDS)
        ran = time.monotonic()
        wait(lambda: not _one(watcher, queries.UNFINISHED), LOOK_SECONDS)
        end = time.monotonic()
        spent = cost_now(server, dbname, pid) - before
        for side in sides:
            side.stop()
    jobs = work.jobs - first
    time.sleep(0.05)  # a backend tells its last counts while it ends
    return {
        "jobs_per_second": jobs / (end - start),
        "seconds": end - start,
        "recorded_after_seconds": end - ran,
        **spent.per_job(jobs),
        "wal_fpi": spent.wal_fpi,
        "buffers": (buffers_now(server, dbname) - buffers) / work.jobs,
    }


def _check(work: Work, ledgers: Ledgers, watcher: psycopg.Connection[Any], queries: Any) -> None:
    numbers = ledgers.numbers()
    if len(numbers) != work.jobs or set(numbers) != set(range(work.jobs)):
        raise Wrong(f"{work.jobs} jobs, {len(numbers)} runs of {len(set(numbers))} of them")
    finished = _one(watcher, queries.FINISHED)
    if work.history and finished != work.jobs:
        raise Wrong(f"{work.jobs} jobs, {finished} recorded as finished at the first attempt")


def _one(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row
    return row[0]
