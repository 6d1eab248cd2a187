"""``leasework lock`` as real processes, with the commands of examples/singleton_cron."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from leasework.config import Timings, wait_seconds
from tests.support.procs import ROOT, Process, Processes
from tests.support.wait import until

TIMES = Timings.derive(9)
Lock = Callable[..., Process]
REPORT = str(ROOT / "examples" / "singleton_cron" / "report.py")


@pytest.fixture
def lock(dsn: str, migrated: str, procs: Processes) -> Lock:

    def start(*arguments: str, name: str = "lock", **env: str) -> Process:
        base = {"LEASEWORK_DSN": dsn, "LEASEWORK_RECOVER_WITHIN": "9", "REPORT_SECONDS": "600"}
        return procs.start("-m", "leasework", "lock", *arguments, name=name, env={**base, **env})

    return start


def report(lock: Lock, *options: str, **env: str) -> Process:
    return lock("nightly", *options, "--", sys.executable, REPORT, **env)


def test_the_first_runs_the_command_and_the_second_says_who_and_exits_well(lock: Lock) -> None:
    first = report(lock)
    first.wait_for("report: begins, token 1", 30)
    second, third = report(lock), report(lock, "--fail")
    assert second.wait(30) == 0
    assert f":{first.pid}:" in second.output and "was not run" in second.output
    assert third.wait(30) == 1 and "was not run" in third.output
    assert "begins" not in second.output + third.output
    waits = report(lock, "--wait", "0.3")
    assert waits.wait(30) == 0 and "was not run" in waits.output
    tries = report(lock, "--wait", "0", "--fail")
    assert tries.wait(30) == 1 and "was not run" in tries.output
    free = lock("another", "--wait", "0", "--", "echo", "it", "runs")
    assert free.wait(30) == 0 and "it runs" in free.output, "0 is one try, not none"
    next_one = report(lock, "--wait", "60", REPORT_SECONDS="0", REPORT_STATUS="3")
    os.kill(first.pid, signal.SIGTERM)
    assert first.wait(30) == 128 + signal.SIGTERM, "the command's end, by the signal passed on"
    next_one.wait_for("report: begins, token 2", 30)
    assert next_one.wait(30) == 3, "the command's own status"


def test_a_signal_while_it_waits_ends_the_waiting(lock: Lock, direct_dsn: str) -> None:
    first = report(lock)
    first.wait_for("report: begins", 30)
    waits = report(lock, "--wait", "60")
    with psycopg.connect(direct_dsn, autocommit=True) as sql:
        bids = "select 1 from leasework.bid"
        until(lambda: sql.execute(bids).fetchall(), 30, "the second waits")
        waits.kill(signal.SIGTERM)
        assert waits.wait(30) == 128 + signal.SIGTERM
        assert not sql.execute(bids).fetchall()
        nodes = "select pid from leasework.node"
        assert sql.execute(nodes).fetchall() == [(first.pid,)], "it left in good order"


def test_the_command_ends_with_a_lost_lock_also_one_that_ignores_it(
    lock: Lock, direct_dsn: str
) -> None:
    deaf = "trap '' TERM; echo runs $$; sleep 60 & wait; wait"
    runs = lock("x", "--grace", "0.3", "--", "sh", "-c", deaf)
    shell = int(runs.wait_for(r"runs (\d+)", 30)[1])
    with psycopg.connect(direct_dsn, autocommit=True) as sql:
        sql.execute("delete from leasework.node")
    assert runs.wait(30) == 1
    assert "lost" in runs.output
    until(lambda: not _group_lives(shell), 10, "the end of what it started")


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


SLOW_CHILD = """
trap 'echo obeyed; sleep 1; echo finished; exit' TERM
echo working
while true; do sleep 0.05; done
"""


def test_the_lock_is_kept_until_what_the_command_has_started_obeys_the_signal_too(
    lock: Lock,
) -> None:
    first = lock("x", "--grace", "20", "--", "sh", "-c", 'sh -c "$CHILD" & wait', CHILD=SLOW_CHILD)
    first.wait_for("^working", 30)
    first.kill(signal.SIGTERM)
    first.wait_for("^obeyed", 30)
    assert first.wait(30) == 128 + signal.SIGTERM
    assert "finished" in first.output


SLOW_COMMAND = """
sh -c 'trap "" TERM; while true; do sleep 0.05; done' &
trap 'sleep 1; exit 0' TERM
echo working $$
while true; do sleep 0.05; done
"""


def test_what_the_command_has_started_is_killed_also_if_the_command_takes_its_time(
    lock: Lock,
) -> None:
    first = lock("x", "--grace", "0.1", "--", "sh", "-c", SLOW_COMMAND)
    group = int(first.wait_for(r"^working (\d+)", 30)[1])
    first.kill(signal.SIGTERM)
    assert first.wait(30) == 0
    until(lambda: not _group_lives(group), 10, "the end of what it started")


def test_the_lock_of_a_machine_that_died_is_taken_over_by_who_asks(lock: Lock) -> None:
    first = report(lock)
    first.wait_for("report: begins, token 1", 30)
    first.kill(signal.SIGKILL, group=True)
    second = report(lock, REPORT_SECONDS="0")
    second.wait_for("report: begins, token 2", wait_seconds(TIMES.lease) + 30)
    assert second.wait(30) == 0


def test_wrong_use_is_said(lock: Lock, dsn: str) -> None:
    assert lock("x").wait(30) == 2
    assert lock("x", "--wait", "-1", "--", "true").wait(30) == 2
    missing = lock("x", "--", "no-such-command")
    assert missing.wait(30) == 127 and "could not be started" in missing.output
    data = lock("x", "--", "/etc/passwd")
    assert data.wait(30) == 126 and "could not be started: Permission denied" in data.output
    nowhere = lock("x", "--dsn", make_conninfo(dsn, dbname="no_such"), "--", "true")
    assert nowhere.wait(30) == 1 and "no_such" in nowhere.output


IGNORES = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "leasework", "lock", *sys.argv[1:]])
"""


def test_the_command_can_be_stopped_from_its_own_terminal(lock: Lock) -> None:
    look = "import signal; print(signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL)"
    command = lock("x", "--", sys.executable, "-c", look)
    assert command.wait(30) == 0 and "True" in command.output


def test_a_run_under_nohup_outlives_the_end_of_its_terminal(
    lock: Lock, dsn: str, procs: Processes
) -> None:
    env = {"LEASEWORK_DSN": dsn, "REPORT_SECONDS": "600"}
    run = procs.start("nightly", "--", sys.executable, REPORT, code=IGNORES, env=env)
    run.wait_for("report: begins", 30)
    other = report(lock)
    run.kill(signal.SIGHUP)
    assert other.wait(60) == 0 and "was not run" in other.output
    run.kill(signal.SIGTERM)
    assert run.wait(30) == 128 + signal.SIGTERM


def test_a_command_that_reads_from_the_terminal_reads_nothing(lock: Lock, dsn: str) -> None:
    """A process in the background that reads from its terminal would be stopped for good."""
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "leasework", "lock", "nightly", "--", "cat"]
    env = {**os.environ, "LEASEWORK_DSN": dsn}
    assert subprocess.run(command, stdin=its, env=env, timeout=60).returncode == 0
    os.close(ours)
    os.close(its)
