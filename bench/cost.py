"""What the database paid: CPU of its processes, WAL, buffers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bench.server import Server

_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Counters at one moment; ``-`` gives those of a span. ``*_seconds`` is CPU."""

    backends_seconds: float
    """Client backends of the measured database alone (utime + stime)."""
    server_seconds: float
    """All processes of the server: autovacuum, WAL writer and those that have ended as well."""
    wal_bytes: int
    wal_fpi: int
    """Full pages in the WAL: a checkpoint lies within the span when these are many."""

    def __sub__(self, before: Cost) -> Cost:
        return Cost(
            self.backends_seconds - before.backends_seconds,
            self.server_seconds - before.server_seconds,
            self.wal_bytes - before.wal_bytes,
            self.wal_fpi - before.wal_fpi,
        )

    def per_job(self, jobs: int) -> dict[str, float]:
        return {
            "backend_cpu_us": self.backends_seconds / jobs * 1e6,
            "server_cpu_us": self.server_seconds / jobs * 1e6,
            "wal_bytes": self.wal_bytes / jobs,
        }


def cost_now(server: Server, dbname: str, harness_pid: int) -> Cost:
    """``harness_pid``: the backend that the harness itself looks through; not counted."""
    row = server.admin.execute(
        "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,"
        " (select wal_fpi from pg_stat_wal),"
        " (select array_agg(pid) from pg_stat_activity where datname = %s"
        "   and backend_type = 'client backend' and pid <> %s)",
        [dbname, harness_pid],
    ).fetchone()
    assert row
    wal, fpi, pids = row
    return Cost(
        backends_seconds=sum(cpu_seconds(pid) for pid in pids or ()),
        server_seconds=_whole_server(server, harness_pid),
        wal_bytes=wal,
        wal_fpi=fpi,
    )


def buffers_now(server: Server, dbname: str) -> int:
    """Pages hit or read in the database, ever. A backend tells only when it ends or sleeps, so
    ask when the workers are gone."""
    row = server.admin.execute(
        "select blks_hit + blks_read from pg_stat_database where datname = %s", [dbname]
    ).fetchone()
    return int(row[0]) if row else 0


def _whole_server(server: Server, harness_pid: int) -> float:
    if server.postmaster is None:
        return 0.0
    stat = _stat(server.postmaster)
    ended = sum(int(value) for value in stat[11:15]) * _TICK if stat else 0.0
    ours = {harness_pid, server.admin.info.backend_pid}
    return ended + sum(cpu_seconds(pid) for pid in children(server.postmaster) if pid not in ours)


def tree_seconds(pid: int) -> float:
    """CPU of a process with its threads, and of its living children with theirs."""
    threads = (path.name for path in Path(f"/proc/{pid}/task").iterdir())
    own = sum(cpu_seconds(int(thread), pid) for thread in threads)
    return own + sum(tree_seconds(child) for child in children(pid))


def resident_mb(pid: int, kind: str = "VmRSS") -> float:
    """What the process holds, its part of mapped files included; ``RssAnon``: without that."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in tasks for child in path.read_text().split()]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_seconds(thread: int, pid: int | None = None) -> float:
    """Of one thread (a backend has just one); in ns where the kernel says so, else in ticks."""
    try:
        return (
            int(Path(f"/proc/{pid or thread}/task/{thread}/schedstat").read_text().split()[0]) / 1e9
        )
    except (OSError, IndexError, ValueError):
        stat = _stat(thread)
        return (int(stat[11]) + int(stat[12])) * _TICK if stat else 0.0
