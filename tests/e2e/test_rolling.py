"""A rolling release under load, forward and back: processes of two releases work and enqueue side
by side, and are started, stopped and killed in turns."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

import pytest

from tests.e2e.fault_apps.scene import RECOVER_WITHIN, Scene, batch, together
from tests.support.procs import ROOT, Process
from tests.support.wait import until

__all__ = ["batch"]
SECONDS = float(os.environ.get("ROLLING_SECONDS", "0"))
"""Releases go forward and back at least once, and until this time is over."""
pytestmark = pytest.mark.timeout(300 + 2 * SECONDS)
SHOP = ROOT / "tests" / "e2e" / "apps" / "rolling.py"
OTHER = {"old": "new", "new": "old"}
EACH = 25
"""A new process stays beside the others until it has enqueued, and has run, so many jobs."""
DONE = """
select id, version, payload ->> 'user', state, last_error, crashes, result from leasework.job_done
"""
UNKNOWN = "select count(*) from leasework.job where held_because = 'unknown_version'"
HELD = """
select count(*) from leasework.job j join leasework.node n on n.id = j.node where n.pid = %s
"""


class Shop:
    """The processes of both releases, and their journal."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.journal = scene.folder / "journal"
        self.running: dict[str, list[Process]] = {"old": [], "new": []}
        self.started = self.stopped = self.killed = 0

    def start(self, release: str, *, enqueue: bool = True) -> Process:
        self.started += 1
        name = f"{release}{self.started}"
        env = {"LEASEWORK_DSN": self.scene.dsn, "LEASEWORK_RECOVER_WITHIN": str(RECOVER_WITHIN)}
        env |= {"RELEASE": release, "NAME": name, "JOURNAL": str(self.journal)}
        env["ENQUEUE"] = str(int(enqueue))
        process = self.scene.procs.start(str(SHOP), name=name, env=env)
        process.wait_for("^up$", 60)
        if enqueue:
            self.running[release].append(process)
        return process

    def lines(self) -> list[list[str]]:
        """The journal: name, ``sent`` or ``ran``, job, and the version of a job that ran."""
        # what comes after the last end of a line is being written just now
        written = self.journal.read_text() if self.journal.exists() else ""
        return [line.split() for line in written.split("\n")[:-1]]

    def work(self, process: Process) -> None:
        """Until the process has enqueued and run ``EACH`` jobs."""

        def enough() -> bool:
            assert process.running, process.tail()
            counts = Counter(line[1] for line in self.lines() if line[0] == process.name)
            return min(counts["sent"], counts["ran"]) >= EACH

        until(enough, 60, f"{process.name} to work", every=0.1)

    def replace(self, release: str, *, kill: bool) -> None:
        """One process of the other release by one of ``release``."""
        self.work(self.start(release))
        old = self.running[OTHER[release]].pop(0)
        if kill:
            self.kill(old)
        else:
            self.stop(old)

    def stop(self, process: Process) -> None:
        process.kill(signal.SIGTERM)
        assert process.wait(60) == 0, process.tail()
        self.stopped += 1

    def kill(self, process: Process) -> None:
        """kill -9 while it holds jobs."""

        def stopped_with_jobs() -> bool:
            process.stop()
            if self.scene.one(HELD, process.pid):
                return True
            process.resume()
            return False

        until(stopped_with_jobs, 30, "a process that holds jobs")
        process.kill()
        self.killed += 1


@together
def test_a_rolling_release_under_load_fails_and_loses_no_job_in_either_direction(
    scene: Scene,
) -> None:
    shop, began, turns, waited = Shop(scene), time.monotonic(), 0, 0
    for _ in range(2):
        shop.work(shop.start("old"))
    while turns < 2 or time.monotonic() < began + SECONDS:
        release = "old" if turns % 2 else "new"
        shop.replace(release, kill=False)
        shop.replace(release, kill=True)
        waited = max(waited, scene.one(UNKNOWN))
        turns += 1
    for process in [process for group in shop.running.values() for process in group]:
        shop.stop(process)
    last = shop.start("new", enqueue=False)  # the old release leaves jobs of the new one
    until(lambda: scene.one("select count(*) from leasework.job") == 0, 90, "no job to be left")
    shop.stop(last)

    runs = Counter((line[0][:3], line[3]) for line in shop.lines() if line[1] == "ran")
    sent = {line[2] for line in shop.lines() if line[1] == "sent"}
    done = scene.sql(DONE)
    recorded = Counter(str(row[0]) for row in done)
    failed = [row for row in done if row[3] != "completed" or row[6] not in results(row[1], row[2])]
    attempts = dict(scene.sql("select outcome, count(*) from leasework.attempt group by 1"))
    again = sum(row[5] > 0 for row in done)
    print(
        f"{turns} releases in {time.monotonic() - began:.0f} s: {shop.started} processes started,"
        f" {shop.stopped} stopped, {shop.killed} killed\n"
        f"{len(sent)} jobs acknowledged, {len(done)} recorded; {len(sent - set(recorded))} lost,"
        f" {len(failed)} failed, {sum(n > 1 for n in recorded.values())} recorded twice\n"
        f"{again} run again after a kill; at most {waited} waited for the new release\n"
        f"runs by (release, version of the arguments): {dict(sorted(runs.items()))}\n"
        f"other attempts: {attempts}"
    )
    assert not failed, failed[:5]
    assert sent <= set(recorded) and set(recorded.values()) == {1}
    assert set(runs) == {("old", "1"), ("new", "1"), ("new", "2")}
    assert set(attempts) <= {"crashed", "unknown_version", "stopped"}, attempts


def results(version: int, user: str) -> set[str]:
    """What a job of these arguments may return."""
    if version == 2:
        return {f"new {user} ko False"}
    return {f"old {user} m 1", f"new u{user} en True"}
