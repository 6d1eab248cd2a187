"""``leasework bench`` on a real database, with real workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psycopg
from leasework_lab.bench.tables import SCHEMA


def bench(dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leasework", "bench", "--dsn", dsn, *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        env={k: v for k, v in os.environ.items() if not k.startswith("LEASEWORK_")},
    )


def schemas(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute("select nspname from pg_namespace")]


def test_bench_tells_figures_and_leaves_nothing_behind(direct_dsn):
    done = bench(direct_dsn, "--jobs", "300", "--rounds", "1", "--idle", "1", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    enqueue, drain, quiet, context = figures.values()
    assert all(value > 0 for value in enqueue.values()), enqueue
    assert all(value is not None and value > 0 for value in drain.values()), drain
    assert 0 < quiet["enqueue to start, p50 ms"] <= quiet["enqueue to start, p99 ms"]
    assert quiet["connections"] >= 1
    assert context["fsync"] in ("on", "off")
    assert SCHEMA not in schemas(direct_dsn)


def test_bench_does_not_drop_a_schema_that_somebody_works_in(direct_dsn):
    environ = {**os.environ, "LEASEWORK_DSN": direct_dsn, "LEASEWORK_SCHEMA": SCHEMA}
    apply = [sys.executable, "-m", "leasework", "schema", "apply"]
    subprocess.run(apply, check=True, env=environ, capture_output=True)
    with psycopg.connect(direct_dsn) as connection:
        connection.execute(
            f"insert into {SCHEMA}.node"
            " (id, token, lease_seconds, app, release, host, pid, version)"
            " values (gen_random_uuid(), 1, 600, 'a', 'r', 'h', 1, '0')"
        )
    done = bench(direct_dsn, "--jobs", "100", "--rounds", "1", "--idle", "1")
    assert done.returncode == 1 and "another benchmark" in done.stderr
    assert SCHEMA in schemas(direct_dsn)
