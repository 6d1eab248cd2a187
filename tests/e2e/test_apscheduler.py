"""APScheduler under gunicorn: several workers, a scheduler in each, of which the leader's runs."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise

import pytest

from tests.e2e.apps.journal import Entry, entries
from tests.e2e.apps.service import TIMINGS, Database
from tests.support.procs import Process, Processes
from tests.support.wait import BUSY_SECONDS, until

LONG = bool(os.environ.get("LEASEWORK_LONG"))
SECONDS = 30 if LONG else 10
Runs = Callable[[], list[Entry]]


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    opened = Database(dsn)
    yield opened
    opened.close()


class Services:
    """Deployments of the application with the scheduler, on one database."""

    def __init__(self, procs: Processes, dsn: str) -> None:
        self._procs = procs
        self._dsn = dsn
        self.journal = procs.folder / "journal"

    def start(self, workers: int = 4, release: str = "blue", **env: str) -> Process:
        stands = len(entries(self.journal, "stands"))
        command = [sys.executable, "-m", "gunicorn", "-k", "uvicorn_worker.UvicornWorker"]
        command += ["-w", str(workers), "-b", f"unix:{self._procs.folder}/{release}.sock"]
        command += ["--no-control-socket", "tests.e2e.apps.scheduled:asgi"]
        env = {
            "LEASEWORK_DSN": self._dsn,
            "LEASEWORK_RECOVER_WITHIN": "9",
            "LEASEWORK_RELEASE": release,
            "JOURNAL": str(self.journal),
            **env,
        }
        started = self._procs.run(command, name=release, env=env)
        wanted = stands + workers
        until(lambda: len(entries(self.journal, "stands")) == wanted, 60, "the workers")
        return started

    def runs(self) -> list[Entry]:
        return entries(self.journal, "run")


@pytest.fixture
def services(procs: Processes, database: Database, dsn: str) -> Services:
    return Services(procs, dsn)


def runs_in_a_while(runs: Runs) -> int:
    """How many runs there are in so many seconds, from the first one on."""
    first = until(runs, 30, "the first run")[0]
    until(lambda: runs()[-1].at > first.at + SECONDS, SECONDS + 30, "the runs")
    return sum(first.at <= run.at < first.at + SECONDS for run in runs())


def test_the_leader_runs_each_second_and_the_next_one_goes_on(services: Services) -> None:
    services.start()
    runs = services.runs
    count = runs_in_a_while(runs)
    print(f"\nMEASURED {count} runs in {SECONDS} s with 4 workers behind the gate")
    assert SECONDS / 2 <= count < 2 * SECONDS, "once a second, not once a second in each of four"
    leader = runs()[-1].pid
    assert {run.pid for run in runs()} == {leader}

    os.kill(leader, signal.SIGKILL)
    killed_at = time.time()
    after = until(lambda: [r for r in runs() if r.pid != leader], 60, "another's run")[0]
    took = after.at - killed_at
    print(f"MEASURED another worker ran {took:.2f} s after kill -9 (F is {TIMINGS.failover:.2f} s)")
    assert took <= TIMINGS.failover + BUSY_SECONDS, "and the next second has to come"

    late = runs_of_one_that_slept(runs, after.pid)
    print(f"MEASURED {len(late)} runs of one that was stopped for two leases, after its deadline")
    assert not late, f"{len(late)} runs of one whose lease was over"


if LONG:

    def test_without_the_question_before_each_run_one_that_slept_makes_up_for_its_sleep(
        services: Services,
    ) -> None:
        """That the test before this one can fail: pausing the scheduler is not enough."""
        services.start(WITHOUT_CHECK="1")
        first = until(services.runs, 30, "the first run")[0]
        late = runs_of_one_that_slept(services.runs, first.pid)
        print(
            f"\nMEASURED {len(late)} runs after its deadline without the question before each run"
        )
        assert late


def runs_of_one_that_slept(runs: Runs, pid: int) -> list[Entry]:
    """Those that it did after its deadline, when it was stopped for two leases."""
    before = {run.pid for run in runs()}
    os.kill(pid, signal.SIGSTOP)
    stopped_at = time.time()
    try:
        until(lambda: [r for r in runs() if r.pid not in before], 60, "the run of a new one")
        until(lambda: time.time() > stopped_at + 2 * TIMINGS.lease, 60, "two leases")
    finally:
        os.kill(pid, signal.SIGCONT)
    seen = len(runs())
    until(lambda: len(runs()) > seen + 3, 30, "more runs")
    return [r for r in runs() if r.pid == pid and r.at > stopped_at + TIMINGS.trust]


def test_a_rollout_goes_on_each_second(services: Services) -> None:
    """Two deployments at once, then the old one ends."""
    blue = services.start(workers=2, release="blue")
    old = until(services.runs, 30, "the first run")[0]
    services.start(workers=2, release="green")
    side_by_side = time.time()
    until(lambda: services.runs()[-1].at > side_by_side + 2, 30, "both deployments")
    blue.kill(signal.SIGTERM)
    ended_at = time.time()
    assert blue.wait(30) == 0
    until(lambda: services.runs()[-1].at > ended_at + 4, 60, "the new deployment's runs")

    runs = services.runs()
    assert {r.release for r in runs if r.at < ended_at} == {"blue"}, "who leads goes on"
    assert runs[-1].release == "green"
    owners = [pid for pid, _ in groupby(r.pid for r in runs)]
    assert len(owners) == len(set(owners)), "each led once, and nobody beside another"
    gaps = [after.at - before.at for before, after in pairwise(runs)]
    seconds = runs[-1].at - old.at
    print(
        f"\nMEASURED {len(runs)} runs in {seconds:.1f} s of a rollout behind the gate, of"
        f" {len(owners)} processes, the longest pause {max(gaps):.2f} s"
    )
    assert abs(len(runs) - 1 - seconds) <= len(owners), "each process has seconds of its own"
