"""See the package."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from bench.cost import _stat, children, cpu_seconds
from bench.measures.held import open_transaction
from bench.measures.latency import percentile
from leasework.config import Settings
from leasework.pg.schema import migrate
from tests.limits_rates.application import alone, app, space, spend
from tests.support import postgres
from tests.support.procs import Process, Processes
from tests.support.wait import until

MODULE = "tests.limits_rates.application:app"
WORKERS = 3
TENANTS = """
insert into leasework.job (id, queue, task_name, payload, lane, ready, held_because)
select leasework.new_id(), 'tenants', 'tests.limits_rates.application.serve',
       jsonb_build_object('tenant', tenant), tenant, false, 'limit'
from (select 't' || t as tenant
      from generate_series(%s::integer, %s::integer) t, generate_series(1, %s::integer)) x
"""
Line = tuple[float, str]


class Bench:
    """A database, worker processes, and the ledger of their handlers."""

    def __init__(self, dsn: str, folder: Path, procs: Processes, server: int) -> None:
        self.dsn, self.procs, self.ledger, self.server = dsn, procs, folder / "ledger", server
        self.ledger.touch()

    def worker(self) -> Process:
        env = {"LEASEWORK_DSN": self.dsn, "RATES_LEDGER": str(self.ledger)}
        name = f"worker-{len(self.procs.all)}"
        return self.procs.start("-m", "leasework", "worker", MODULE, name=name, env=env)

    def lines(self) -> list[Line]:
        rows = (line.split() for line in self.ledger.read_text().splitlines())
        return sorted((float(at), what) for at, what in rows)

    def enqueue(self, jobs: list[Any]) -> None:
        async def work() -> None:
            app.configure(dsn=self.dsn)
            await app.enqueue_many(jobs)
            await app.close()

        asyncio.run(work())

    def count(self, table: str) -> int:
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute(f"select count(*) from {table}".encode()).fetchone()
        return int(row[0]) if row else 0

    def starts(self) -> int:
        return self.ledger.read_bytes().count(b"\n")

    def server_seconds(self) -> float:
        """CPU of all processes of the server that live or have ended."""
        ended = sum(int(ticks) for ticks in _stat(self.server)[11:15]) / os.sysconf("SC_CLK_TCK")
        return ended + sum(map(cpu_seconds, children(self.server)))

    def burn(self, seconds: float, kills: bool = True) -> list[Line]:
        """Run for so many seconds from the first line; kill a worker after a third of that."""
        workers = [self.worker() for _ in range(WORKERS)]
        until(self.lines, 60, "a first job")
        begin, killed = self.lines()[0][0], False
        while (passed := time.time() - begin) < seconds:
            if kills and not killed and passed > seconds / 3:
                workers[0].kill()
                self.worker()
                killed = True
            time.sleep(0.1)
        return [(at - begin, what) for at, what in self.lines() if at - begin < seconds]


def rate(bench: Bench, seconds: float) -> bool:
    bench.enqueue([space.job() for _ in range(int(seconds * 12))])
    found = [at for at, _ in bench.burn(seconds)]
    windows = [sum(at <= other < at + 1.0 for other in found) for at in found]
    print(f"{len(found)} starts in {seconds:g} s, at most {max(windows)} in any second")
    return abs(len(found) - seconds * 10) <= seconds / 10 and max(windows) <= 11


def cost(bench: Bench, seconds: float) -> bool:
    rng = random.Random(7)
    bench.enqueue([spend.job(rng.randint(500, 8000)) for _ in range(int(seconds))])
    found = [(at, int(what)) for at, what in bench.burn(seconds)]
    worst = 0.0
    for first, (begin, _) in enumerate(found):
        used = 0
        for at, spent in found[first:]:
            used += spent
            worst = max(worst, used - (8000 + 1500 * (at - begin + 0.1)))  # late by 0.1 s at most
    used = sum(spent for _, spent in found)
    print(
        f"{used} of {1500 * seconds:.0f} tokens, {used / 15 / seconds:.1f} %; over by {worst:.0f}"
    )
    return worst <= 0 and used >= 0.95 * 1500 * seconds


def fair(bench: Bench, seconds: float) -> bool:
    with psycopg.connect(bench.dsn, autocommit=True) as connection:
        connection.execute(TENANTS.encode(), (0, 0, 1_000_000))
        connection.execute(TENANTS.encode(), (1, 9, 1_000))
        connection.execute("analyze leasework.job")
    found = [what for _, what in bench.burn(seconds)]
    weights = {f"t{n}": {1: 2.0, 2: 0.5}.get(n, 1.0) for n in range(10)}
    worst, looked = 0.0, 0
    for begin in range(0, len(found) - 2000, 2000):
        window = Counter(found[begin : begin + 2000])
        after = Counter(found[begin + 2000 :])
        if not all(after[tenant] for tenant in weights):
            break  # one of them has run out of jobs
        looked += 1
        whole = sum(weights.values())
        worst = max(worst, *(abs(window[t] / 2000 / (weights[t] / whole) - 1) for t in weights))
    print(f"{len(found)} starts, {looked} windows of 2,000; the worst share is {worst:.1%} off")
    return looked > 0 and worst <= 0.05


def freed(bench: Bench, seconds: float) -> bool:
    bench.enqueue([alone.job() for _ in range(int(seconds * 80))])
    bench.burn(seconds, kills=False)
    with psycopg.connect(bench.dsn) as connection:
        rows = connection.execute(
            "select extract(epoch from finished_at)::float8 from leasework.job_done order by 1"
        ).fetchall()
    starts = [at for at, _ in bench.lines()]
    ends = [at for (at,) in rows if at < starts[-1]]
    waits = [(starts[bisect_right(starts, at)] - at) * 1000 for at in ends]
    middle, most = percentile(waits, 0.5), percentile(waits, 0.99)
    print(f"{len(waits)} slots were taken again after {middle:.1f} ms (p50), {most:.1f} ms (p99)")
    return most <= 50


def held(bench: Bench, minutes: float, limit: str = "few") -> bool:
    """500 jobs a second start beside an idle transaction with a snapshot."""
    jobs = [
        {
            "task": "tests.limits_rates.application.keyed",
            "payload": {"key": key},
            "limits": [{"limit": "few", "key": key} if limit == "few" else limit],
        }
        for key in range(50)
    ]
    workers, used = [bench.worker() for _ in range(2)], []
    until(lambda: bench.count("leasework.node") == len(workers), 60, "the workers")
    with (
        open_transaction(bench.dsn),
        psycopg.connect(bench.dsn, autocommit=True) as connection,
    ):
        for minute in range(round(minutes)):
            cpu, ran, begin = bench.server_seconds(), bench.starts(), time.time()
            for step in range(600):
                connection.execute("select leasework.enqueue(%s)", [json.dumps(jobs)])
                time.sleep(max(0.0, begin + (step + 1) / 10 - time.time()))
            ran = bench.starts() - ran
            used.append((bench.server_seconds() - cpu) / ran * 1e6)
            print(
                f"minute {minute + 1}: {ran} starts, {used[-1]:.0f} µs of the server's CPU a job, "
                f"{used[-1] / used[0]:.2f} of the first minute's; "
                f"{bench.count('leasework.job')} jobs are left",
                flush=True,
            )
    return max(used) <= 1.5 * used[0]


def held_rate(bench: Bench, minutes: float) -> bool:
    return held(bench, minutes, "fast")


MEASURES = {
    "rate": (rate, 60.0), "cost": (cost, 60.0), "fair": (fair, 40.0), "freed": (freed, 30.0),
    "held": (held, 10.0), "held_rate": (held_rate, 10.0),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(MEASURES)[:4])
    parser.add_argument("--minutes", type=float, default=10.0, help="of held and held_rate")
    given = parser.parse_args()
    kept = True
    for name in given.names:
        measure, length = MEASURES[name]
        length = given.minutes if name.startswith("held") else length
        with (
            tempfile.TemporaryDirectory(prefix="leasework-rates-") as folder,
            postgres.server(settings={"fsync": "off", "max_connections": "100"}) as server,
            postgres.database(server.dsn) as dsn,
            Processes(Path(folder)) as procs,
        ):
            asyncio.run(migrate.apply(Settings(dsn=dsn)))
            kept_it = measure(Bench(dsn, Path(folder), procs, server.pid), length)
        print(f"{name}: {'held' if kept_it else 'NOT held'}", flush=True)
        kept = kept and kept_it
    return 0 if kept else 1


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", os.getcwd())
    sys.exit(main())
