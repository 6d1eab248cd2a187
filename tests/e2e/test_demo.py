"""``leasework demo`` as a newcomer starts it: real processes, a real server, a real kill -9."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import httpx
import psycopg
import pytest

from tests.support.procs import Process, Processes
from tests.support.wait import until

FIRST_JOB = r"the first job has run, ([\d.]+) s after the start"
START_SECONDS = 40.0  # of the wait; the promise is checked by the number
END_SECONDS = 40.0


@pytest.fixture
def home() -> Iterator[Path]:
    """Where the demo's own server lives; every process of this demo names it."""
    # pytest's own folders are closed to the account that the server runs under
    folder = Path(tempfile.mkdtemp(prefix="lh-demo-"))
    folder.chmod(0o711)
    yield folder
    rmtree(folder, ignore_errors=True)


def processes_of(home: Path) -> list[str]:
    """Those whose command line or environment names the folder."""
    if not Path("/proc/self").exists():
        listing = subprocess.run(["ps", "axeww"], capture_output=True, text=True, check=True)
        return [line[:80] for line in listing.stdout.splitlines() if str(home) in line]
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command, environ = ((entry / n).read_bytes() for n in ("cmdline", "environ"))
        except OSError:  # it has just ended, or is another account's
            continue
        if os.fsencode(home) in command + environ:
            found.append(f"{entry.name} {command[:80]!r}")
    return found


def nothing_left(home: Path) -> None:
    until(lambda: not processes_of(home), 15, f"the end of every process of {home}")


def start_demo(procs: Processes, home: Path, *args: str, **env: str) -> Process:
    env = {"TMPDIR": str(home), **env}
    return procs.start("-m", "leasework", "demo", *args, name="demo", env=env)


def check_promises(card: dict) -> None:
    ticks, jobs = card["ticks"], card["jobs"]
    assert card.keys() == {"ticks", "jobs", "takeover_seconds", "recovery_seconds", "ok"}
    assert ticks.keys() == {"due", "fired", "duplicates", "missed"}
    assert jobs.keys() == {"enqueued", "done", "lost", "ran_twice", "rerun_after_kill", "cut_short"}
    assert ticks["due"] == ticks["fired"] >= 3
    assert (ticks["duplicates"], ticks["missed"]) == (0, 0)
    assert jobs["enqueued"] == jobs["done"] >= 50
    assert (jobs["lost"], jobs["ran_twice"]) == (0, 0)
    assert jobs["rerun_after_kill"] >= jobs["cut_short"] >= 1
    assert 0 < card["takeover_seconds"] <= 15
    assert 0 < card["recovery_seconds"] <= 15
    assert card["ok"] is True


def test_the_demo_keeps_its_promises_and_leaves_nothing_behind(procs, home, tmp_path):
    report = tmp_path / "demo.json"
    demo = start_demo(procs, home, "--seconds", "12", "--report", str(report))
    demo.wait_for(FIRST_JOB, START_SECONDS)
    assert len(processes_of(home)) > 5  # this one, its workers, its server
    assert demo.wait(END_SECONDS) == 0, demo.tail()
    check_promises(json.loads(report.read_text()))
    killed = demo.wait_for(r"killed leader pid (\d+) \(kill -9, term 1\) while it ran [1-9]\d* job")
    heir = demo.wait_for(r"pid (\d+) leads after ([\d.]+) s \(term 2\)")
    assert killed[1] != heir[1]
    demo.wait_for(r"started pid \d+ in its place")
    assert "LEASEWORK_DSN=postgresql://" in demo.output
    assert "leasework status" in demo.output
    assert "ok: nothing was lost, and nothing was repeated without a cause" in demo.output
    for enqueued, done in re.findall(r"jobs (\d+) enqueued, (\d+) done", demo.output):
        assert int(done) <= int(enqueued), demo.output
    ran = demo.wait_for(r"while it ran (\d+) job")
    assert f"{ran[1]} cut short" in demo.output, "the story and the scorecard count the same"
    last = re.findall(r"^ *[\d.]+ s  (.*)$", demo.output, re.M)[-1]
    assert "nobody leads" not in last, demo.output
    nothing_left(home)
    assert list(home.iterdir()) == []


def test_nothing_survives_a_kill_9_of_the_demo_itself(procs, home):
    demo = start_demo(procs, home)
    demo.wait_for(FIRST_JOB, START_SECONDS)
    demo.kill(signal.SIGKILL)
    nothing_left(home)


def test_a_real_database_is_one_variable_away_and_ctrl_c_ends_with_a_scorecard(procs, home, dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table mine as select 42 as answer")
        demo = start_demo(procs, home, LEASEWORK_DSN=dsn)
        demo.wait_for(FIRST_JOB, START_SECONDS)
        second = start_demo(procs, home, "--seconds", "5", LEASEWORK_DSN=dsn)
        assert second.wait(60) == 1
        assert "another demo is using this database" in second.output

        page = httpx.get(demo.wait_for(r"The show: (http://\S+)")[1]).text
        buttons = dict(re.findall(r'<button name="act" value="([^"]+)"([^>]*)>', page))
        for ours_alone in ("restart", "cut:worker", "cut:leader", "mend"):
            assert "disabled" in buttons[ours_alone], "that is not the demo's to break"
        assert all("disabled" not in buttons[name] for name in ("kill", "freeze:worker", "deploy"))

        demo.wait_for(r"had started again elsewhere after", START_SECONDS)
        demo.kill(signal.SIGINT)
        assert demo.wait(END_SECONDS) == 0, demo.tail()
        assert "ok: nothing was lost, and nothing was repeated without a cause" in demo.output
        schemas = connection.execute(
            "select nspname from pg_namespace where nspname like 'leasework%'"
        ).fetchall()
        assert schemas == [("leasework_demo",)]
        assert connection.execute("select answer from mine").fetchall() == [(42,)]
    nothing_left(home)
    assert list(home.iterdir()) == []  # no server of its own was started


def test_a_report_that_cannot_be_written_is_told_before_the_run(procs, home):
    demo = start_demo(procs, home, "--seconds", "5", "--report", "/nowhere/demo.json")
    assert demo.wait(60) == 1
    assert "the report cannot be written" in demo.output
    assert "Database" not in demo.output
