"""Tests of the helpers that other tests use."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess

import psycopg
import pytest

import leasework
from tests.support.procs import Processes
from tests.support.wait import NeverHappened, forever, until, until_async


# -- waiting -------------------------------------------------------------------------------------
def test_until_returns_the_first_true_value():
    values = iter([0, None, "yes"])
    assert until(lambda: next(values), 5, "a yes") == "yes"


def test_until_says_what_it_waited_for_and_what_it_saw():
    with pytest.raises(NeverHappened, match=r"waited [\d.]+ s for the moon; last seen: 0"):
        until(lambda: 0, 0.05, "the moon")


def test_until_ignores_only_the_errors_it_was_told_to():
    with pytest.raises(NeverHappened, match="last error: KeyError"):
        until(lambda: {}["x"], 0.05, "a key", ignoring=(KeyError,))
    with pytest.raises(KeyError):
        until(lambda: {}["x"], 5, "a key", ignoring=(ValueError,))


async def test_until_async_takes_plain_and_async_functions():
    async def later() -> str:
        await asyncio.sleep(0)
        return "yes"

    assert await until_async(later, 5) == "yes"
    assert await until_async(lambda: "yes", 5) == "yes"
    with pytest.raises(NeverHappened, match=r"waited [\d.]+ s for forever"):
        await until_async(forever, 0.05)


# -- processes -----------------------------------------------------------------------------------
def alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return state.stdout.strip()[:1] not in ("", "Z")


def test_a_process_is_watched_through_its_output_and_ends_with_its_children(tmp_path):
    parent = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('child', child.pid)\n"
        "time.sleep(600)\n"
    )
    with Processes(tmp_path) as procs:
        process = procs.start(code=parent, name="parent")
        child = int(process.wait_for(r"^child (\d+)$")[1])
        assert process.running and alive(child)
        process.stop()
    assert not alive(process.pid)
    until(lambda: not alive(child), what="the child's end")


def test_children_end_even_when_their_parent_went_first(tmp_path):
    parent = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('child', child.pid)\n"
    )
    with Processes(tmp_path) as procs:
        process = procs.start(code=parent)
        child = int(process.wait_for(r"child (\d+)")[1])
        assert process.wait() == 0
        assert alive(child)
    until(lambda: not alive(child), what="the child's end")


def test_the_exit_status_tells_an_exit_from_a_signal(procs):
    assert procs.start(code="raise SystemExit(3)").wait() == 3
    killed = procs.start(code="print('up'); import time; time.sleep(600)")
    killed.wait_for("up")
    killed.kill(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL


def test_waiting_for_output_of_a_process_that_ended_fails_at_once_with_its_log(procs):
    process = procs.start(code="import sys; sys.exit('no such table')", name="worker")
    with pytest.raises(NeverHappened, match=r"worker ended with 1 .*\n.*no such table"):
        process.wait_for("ready", timeout=60)


def test_a_process_imports_this_tree(procs):
    process = procs.start(code="import leasework; print(leasework.__file__)")
    assert process.wait_for(r"^/.*$")[0] == leasework.__file__


# -- servers -------------------------------------------------------------------------------------
def scalar(dsn: str, query: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.prepare_threshold = None
        return connection.execute(query).fetchone()[0]


def test_the_server_is_the_version_that_was_asked_for(postgres, direct_dsn):
    wanted = os.environ.get("LEASEWORK_TEST_POSTGRES") or "18"
    assert str(scalar(direct_dsn, "show server_version")).split(".")[0] == wanted


@pytest.mark.parametrize("round", [1, 2])
def test_each_test_has_an_empty_database(dsn, round):
    assert scalar(dsn, "select count(*) from pg_class where relname = 'mine'") == 0
    with psycopg.connect(dsn) as connection:
        connection.execute("create table mine ()")
    assert scalar(dsn, "select count(*) from pg_class where relname = 'mine'") == 1


def test_the_pooler_keeps_no_session_between_transactions(pgbouncer, direct_dsn):
    """Two clients share one server connection; and it is the same database."""
    with (
        psycopg.connect(pgbouncer.dsn, autocommit=True) as one,
        psycopg.connect(pgbouncer.dsn, autocommit=True) as two,
    ):
        pids = {c.execute("select pg_backend_pid()").fetchone()[0] for c in (one, two)}
    assert len(pids) == 1
    assert scalar(pgbouncer.dsn, "select current_database()") == scalar(
        direct_dsn, "select current_database()"
    )
    modes = {row["database"]: row["pool_mode"] for row in pgbouncer.admin("show pools")}
    assert "transaction" in modes.values()


def test_the_pooler_can_go_away_and_come_back(pgbouncer):
    first = pgbouncer.pid
    pgbouncer.stop()
    with pytest.raises(psycopg.OperationalError):
        scalar(pgbouncer.dsn, "select 1")
    pgbouncer.start()
    assert pgbouncer.pid != first
    assert scalar(pgbouncer.dsn, "select 1") == 1
