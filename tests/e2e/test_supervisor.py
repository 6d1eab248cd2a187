"""``leasework worker --processes N``: children die, and their jobs run elsewhere at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leasework.jobs.process import kill_processes_of
from tests.e2e.apps.journal import Entry, entries
from tests.e2e.apps.service import AT_ONCE, RECOVER_WITHIN, Database, measured
from tests.support.procs import Process, Processes
from tests.support.wait import BUSY_SECONDS, until

APP = "tests.e2e.apps.worker:app"
TASK = "tests.e2e.apps.worker."


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    opened = Database(dsn)
    yield opened
    opened.close()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


Start = Callable[..., Process]


@pytest.fixture
def start(procs: Processes, dsn: str, journal: Path) -> Start:
    """``start(processes, slots, **env)``: ``leasework worker``."""

    def begin(processes: int, slots: int = 50, dsn: str = dsn, **env: str) -> Process:
        return procs.start(
            *("-m", "leasework", "worker", APP, "--processes", str(processes)),
            *("--queue", f"work={slots}", "--queue", "own=1"),
            name=f"worker-{processes}",
            env={
                "LEASEWORK_DSN": dsn,
                "LEASEWORK_RECOVER_WITHIN": f"{RECOVER_WITHIN:g}",
                "JOURNAL": str(journal),
                **env,
            },
        )

    return begin


def alive(pid: int) -> bool:
    """Does it run (a zombie does not)?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def second_runs(journal: Path, jobs: list[str], what: str = "began") -> list[Entry]:
    """The first entry of the second attempt of each job, when all have one."""

    def found() -> list[Entry]:
        again: dict[str, Entry] = {}
        for entry in entries(journal, what):
            if entry.attempt == 2 and entry.key in jobs:
                again.setdefault(entry.key, entry)
        return list(again.values()) if len(again) == len(jobs) else []

    return until(found, RECOVER_WITHIN + BUSY_SECONDS, f"a second run of {len(jobs)} jobs")


def test_fifty_running_jobs_of_a_killed_child_run_elsewhere_within_a_second(
    start: Start, database: Database, journal: Path
) -> None:
    start(2)
    database.wait_for_nodes(2)
    jobs = database.enqueue(TASK + "hold", 100)
    until(lambda: len(entries(journal, "began")) == 100, 20, "100 running jobs")
    victim = next(pid for pid in database.nodes() if pid != database.leader())
    lost = [e.key for e in entries(journal, "began") if e.pid == victim]
    assert len(lost) == 50
    # the other has no room: the jobs start again in the child's successor or a worker elsewhere
    start(1)
    database.wait_for_nodes(3)
    killed_at = time.time()
    os.kill(victim, signal.SIGKILL)
    again = second_runs(journal, lost)
    measured("50 jobs of a killed child run again", max(e.at for e in again) - killed_at, AT_ONCE)
    assert {e.pid for e in again}.isdisjoint({victim})
    assert len(entries(journal, "began")) == 150, "jobs that were not lost ran once"
    [event] = until(lambda: database.events("node_certified"), 20, "the event's row")
    assert event["how"] == "killed by SIGKILL"
    assert len(jobs) == 100


def test_the_jobs_of_a_killed_child_need_no_leader(
    start: Start, database: Database, journal: Path
) -> None:
    """Its parent frees them, whatever the leader does."""
    start(2, slots=5)
    leader = database.wait_for_nodes(2)
    database.enqueue(TASK + "hold", 10)
    until(lambda: len(entries(journal, "began")) == 10, 20, "10 running jobs")
    [victim] = set(database.nodes()) - {leader}
    lost = [e.key for e in entries(journal, "began") if e.pid == victim]
    start(1)
    database.wait_for_nodes(3)
    os.kill(leader, signal.SIGSTOP)
    killed_at = time.time()
    os.kill(victim, signal.SIGKILL)
    again = max(e.at for e in second_runs(journal, lost))
    measured("jobs run again while the leader stands still", again - killed_at, AT_ONCE)


def test_the_leading_child_is_killed_and_its_leadership_is_taken_at_once(
    start: Start, database: Database
) -> None:
    start(2)
    leader = database.wait_for_nodes(2)
    killed_at = time.time()
    os.kill(leader, signal.SIGKILL)
    acquired_at = database.next_term(killed_at)
    measured("takeover after kill -9 of the leading child", acquired_at - killed_at, AT_ONCE)
    until(lambda: len(database.nodes()) == 2, 10, "the child's successor")
    assert leader not in database.nodes()


def test_a_child_that_was_fenced_before_is_certified_all_the_same(
    start: Start, database: Database
) -> None:
    """It joined again under an id that its parent did not choose."""
    start(2)
    leader = database.wait_for_nodes(2)
    ids = "select id from leasework.node where pid = %s"
    old = database.rows(ids, leader)
    database.rows("delete from leasework.node where pid = %s returning id", leader)
    until(lambda: database.rows(ids, leader) not in ([], old), 10, "another id of the process")
    assigned = "select info ->> 'assigned' from leasework.node where pid = %s"
    given = [(str(old[0][0]),)]
    until(lambda: database.rows(assigned, leader) == given, 10, "the id that it was given")
    os.kill(leader, signal.SIGKILL)
    killed_at = time.time()
    until(lambda: database.rows(ids, leader) == [], 20, "the end of its row")
    measured("certificate of a child that was fenced before", time.time() - killed_at, AT_ONCE)


def test_a_killed_tree_is_recovered_by_another_hosts_worker_within_recover_within(
    start: Start, database: Database, journal: Path
) -> None:
    """Nobody is left to certify: the leases decide."""
    tree = start(2)
    database.wait_for_nodes(2)
    dead = set(database.nodes())
    lost = database.enqueue(TASK + "hold", 50)
    until(lambda: len(entries(journal, "began")) == 50, 20, "50 running jobs")
    start(1)
    database.wait_for_nodes(3)
    assert database.leader() in dead
    killed_at = time.time()
    tree.kill()  # the parent first, or it would see its children die
    for pid in dead:
        os.kill(pid, signal.SIGKILL)
    again = second_runs(journal, lost)
    what = "50 jobs of a killed tree, the leader among it, run again"
    measured(what, max(e.at for e in again) - killed_at, RECOVER_WITHIN + BUSY_SECONDS)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_the_children_of_a_killed_supervisor_stop_in_good_order(
    start: Start, database: Database
) -> None:
    supervisor = start(2)
    database.wait_for_nodes(2)
    children = database.nodes()
    supervisor.kill()
    until(lambda: not database.nodes(), 10, "both rows gone")
    until(lambda: not any(alive(pid) for pid in children), 10, "both processes gone")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_the_children_in_good_order(
    start: Start, database: Database, number: signal.Signals
) -> None:
    supervisor = start(2)
    database.wait_for_nodes(2)
    children = database.nodes()
    supervisor.kill(number)
    assert supervisor.wait(60) == 0
    assert not any(alive(pid) for pid in children)
    assert not database.nodes()
    assert not database.events("node_certified"), "who leaves in good order needs no certificate"


def test_a_child_that_does_not_stop_is_killed_and_certified(
    start: Start, database: Database
) -> None:
    supervisor = start(2, LEASEWORK_GRACE="0")
    leader = database.wait_for_nodes(2)
    os.kill(leader, signal.SIGSTOP)
    supervisor.kill(signal.SIGTERM)
    assert supervisor.wait(60) == 1
    assert not alive(leader)
    assert not database.nodes()
    [event] = database.events("node_certified")
    assert event["dead"].split(":")[1] == str(leader)


@pytest.mark.parametrize("task", ["in_process", "with_helper"])
def test_a_dead_childs_own_processes_are_dead_before_its_jobs_run_again(
    start: Start, database: Database, journal: Path, task: str
) -> None:
    start(2)
    database.wait_for_nodes(2)
    database.enqueue(TASK + task, queue="own")
    own = until(lambda: entries(journal, "child-lives"), 20, "a job with a process of its own")[0]
    worker = parent(own.pid)
    if task == "in_process":
        worker = parent(worker)
    killed_at = time.time()
    os.kill(worker, signal.SIGKILL)
    [again] = second_runs(journal, [own.key], "child-began")
    last_sign = max(e.at for e in entries(journal, "child-lives") if e.pid == own.pid)
    assert last_sign < again.at
    assert not alive(own.pid)
    assert not kill_processes_of(worker)
    print(
        f"\nMEASURED {task}: last sign of the child {last_sign - killed_at:.3f} s after the kill "
        f"of its worker, the job again at {again.at - killed_at:.3f} s"
    )


def test_a_worker_that_dies_at_once_is_started_again_ever_more_slowly(
    procs: Processes, dsn: str, database: Database
) -> None:
    code = (
        "import sys; from leasework.cli.work.supervisor import run_supervisor; "
        f"sys.exit(run_supervisor({APP!r}, 1, {{}}, [], command=(sys.executable, '-c', 'exit(3)')))"
    )
    supervisor = procs.start(code=code, name="supervisor", env={"LEASEWORK_DSN": dsn})
    supervisor.wait_for(r"exit code 3", 20, count=3)
    supervisor.wait_for(r"worker_dies_at_once .*times=2 pause=(0\.8|0\.9|1\.\d)$")
    supervisor.wait_for(r"worker_dies_at_once .*times=3 pause=(1\.[6-9]|2\.\d)$")
    supervisor.kill(signal.SIGTERM)
    assert supervisor.wait() == 0


def test_an_application_that_cannot_be_loaded_is_said_once(procs: Processes, dsn: str) -> None:
    command = ("-m", "leasework", "worker", "tests.e2e.apps.worker:ap", "--processes", "2")
    supervisor = procs.start(*command, env={"LEASEWORK_DSN": dsn})
    assert supervisor.wait(60) == 1
    assert supervisor.output.count("has no 'ap'") == 1, supervisor.output


def test_a_certificate_outlives_a_database_that_is_away(
    own_postgres: Callable[..., Any], start: Start
) -> None:
    server = own_postgres()
    database = Database(server.dsn)
    supervisor = start(2, dsn=server.dsn)
    leader = database.wait_for_nodes(2)
    database.close()
    postgres = server.pid
    os.kill(postgres, signal.SIGQUIT)  # an immediate stop
    until(lambda: not alive(postgres), 20, "the server's end")
    os.kill(leader, signal.SIGKILL)
    supervisor.wait_for(r"database_lost .*service=certifier", 20)
    server.restart()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        query = "select fields ->> 'dead' from leasework.events where kind = 'node_certified'"
        [(dead,)] = until(lambda: connection.execute(query).fetchall(), 10, "the certificate")
    assert dead.split(":")[1] == str(leader)
