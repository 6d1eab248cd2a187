"""APScheduler under gunicorn: four workers, four schedulers, each run once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.apps.journal import Entry, entries
from tests.e2e.apps.service import TIMINGS, Database
from tests.support.procs import Processes
from tests.support.wait import until

SECONDS = 30 if os.environ.get("LEASEHOLD_LONG") else 10
Runs = Callable[[], list[Entry]]


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    opened = Database(dsn)
    yield opened
    opened.close()


@pytest.fixture
def service(procs: Processes, database: Database, dsn: str) -> Callable[[str], Runs]:
    """Starts it with four workers in a mode; its runs so far."""

    def start(mode: str) -> Runs:
        journal = procs.folder / "journal"
        command = [
            sys.executable,
            "-m",
            "gunicorn",
            "-k",
            "uvicorn_worker.UvicornWorker",
            "-w",
            "4",
        ]
        command += ["-b", f"unix:{procs.folder}/s.sock", "--no-control-socket"]
        env = {
            "LEASEHOLD_DSN": dsn,
            "LEASEHOLD_RECOVER_WITHIN": "9",
            "JOURNAL": str(journal),
            "MODE": mode,
            "WITHOUT_CHECK": os.environ.get("WITHOUT_CHECK", ""),
        }
        procs.run([*command, "tests.e2e.apps.scheduled:asgi"], name="gunicorn", env=env)
        until(lambda: len(entries(journal, "stands")) == 4, 60, "four workers")
        return lambda: entries(journal, "run")

    return start


def runs_in_a_while(runs: Runs) -> int:
    """How many runs there are in so many seconds, from the first one on."""
    first = until(runs, 30, "the first run")[0]
    until(lambda: runs()[-1].at > first.at + SECONDS, SECONDS + 30, "the runs")
    return sum(first.at <= run.at < first.at + SECONDS for run in runs())


def test_the_leader_runs_each_second_and_the_next_one_goes_on(
    service: Callable[[str], Runs],
) -> None:
    runs = service("gate")
    count = runs_in_a_while(runs)
    print(f"\nMEASURED {count} runs in {SECONDS} s with 4 workers behind the gate")
    assert abs(count - SECONDS) <= 1
    leader = runs()[-1].pid
    assert {run.pid for run in runs()} == {leader}

    os.kill(leader, signal.SIGKILL)
    killed_at = time.time()
    after = until(lambda: [r for r in runs() if r.pid != leader], 60, "another's run")[0]
    took = after.at - killed_at
    print(f"MEASURED another worker ran {took:.2f} s after kill -9 (F is {TIMINGS.failover:.2f} s)")
    assert took <= TIMINGS.failover + 1.0, "and the next second has to come"

    stopped = after.pid
    os.kill(stopped, signal.SIGSTOP)
    stopped_at = time.time()
    try:
        until(
            lambda: [r for r in runs() if r.pid not in (leader, stopped)], 60, "a third one's run"
        )
        until(lambda: time.time() > stopped_at + 2 * TIMINGS.lease, 60, "two leases")
    finally:
        os.kill(stopped, signal.SIGCONT)
    seen = len(runs())
    until(lambda: len(runs()) > seen + 3, 30, "more runs")
    late = [r for r in runs() if r.pid == stopped and r.at > stopped_at + TIMINGS.trust]
    assert not late, f"{len(late)} runs of one whose lease was over"


def test_each_run_is_one_job_whichever_scheduler_comes_first(
    service: Callable[[str], Runs], database: Database
) -> None:
    runs = service("adopt")
    count = runs_in_a_while(runs)
    print(f"\nMEASURED {count} runs in {SECONDS} s with 4 workers that all schedule")
    assert abs(count - SECONDS) <= 1
    jobs = database.rows("select count(*), count(distinct id) from leasehold.jobs")[0]
    keys = database.rows("select count(*) from leasehold.job_key")[0]
    assert jobs[0] == jobs[1] == keys[0], "each run has a key, and one job"
