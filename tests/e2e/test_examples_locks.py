"""The examples of locks, as real processes with the commands of their READMEs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leasework.config import Timings, wait_seconds
from tests.support.procs import ROOT, Process, Processes
from tests.support.wait import until

TIMES = Timings.derive(9)
SYNC = str(ROOT / "examples" / "third_party_sync" / "sync.py")


@pytest.fixture
def sync(dsn: str, migrated: str, procs: Processes, tmp_path: Path) -> Callable[..., Process]:

    def start(**env: str) -> Process:
        base = {"LEASEWORK_DSN": dsn, "LEASEWORK_RECOVER_WITHIN": "9", "SYNC_SECONDS": "0.5"}
        return procs.run(
            [sys.executable, SYNC],
            name="sync",
            env={**base, "API_FILE": str(tmp_path / "api.log"), **env},
        )

    return start


def visits(folder: Path) -> list[tuple[int, int, str]]:
    lines = (folder / "api.log").read_text().splitlines()
    words = [line.split() for line in lines]
    return [(int(token), int(pid), what) for token, pid, what in words]


def test_three_syncs_are_there_one_after_the_other(
    sync: Callable[..., Process], tmp_path: Path
) -> None:
    running = [sync() for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    seen = visits(tmp_path)
    assert [what for _, _, what in seen] == ["begin", "end"] * 3
    assert [token for token, _, _ in seen] == [1, 1, 2, 2, 3, 3]
    assert all(a[1] == b[1] for a, b in zip(seen[::2], seen[1::2], strict=True))


def test_one_that_was_stopped_comes_too_late_and_says_so(
    sync: Callable[..., Process], tmp_path: Path
) -> None:
    stopped = sync(SYNC_SECONDS="120")  # so that it still works when it is stopped
    stopped.wait_for("begins, token 1", 30)
    impatient = sync(WAIT_SECONDS="0.2")
    assert impatient.wait(30) == 0 and "next time" in impatient.output
    stopped.stop()
    second = sync(WAIT_SECONDS="60")
    assert second.wait(wait_seconds(TIMES.lease) + 40) == 0
    stopped.kill(signal.SIGCONT)
    assert stopped.wait(30) == 1
    assert "the lock was lost" in stopped.output
    until(lambda: len(visits(tmp_path)) == 3, 10)
    assert visits(tmp_path)[-1][0] == 2
