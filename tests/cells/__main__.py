"""See the package."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from leasework_lab.server import LabServer

from leasework.config import Settings
from leasework.pg.schema import migrate
from tests.limits_fire.judge import Check
from tests.support import postgres
from tests.support.procs import Process, Processes
from tests.support.wait import NeverHappened, stall, until

KILLED, OTHERS = "b", ("a", "c")
HOME = "a"
"""The cell of the schedules."""
RATE_OFF = 0.05
"""By so much of their rate the other cells may be slower or faster while one is away."""
START_SECONDS, DRAIN_SECONDS = 90.0, 90.0
LOOK_SECONDS = 0.2
LEFT = "select count(*) from leasework.job"
DONE = "select id::text, state from leasework.job_done where task_name = 'serve'"
Lines = list[dict[str, Any]]


@dataclass
class Times:
    """When the phases began, in seconds since 1970."""

    began: float
    killed: float
    back: float
    ended: float


class Scene:
    """Three servers, and the processes of the application."""

    def __init__(self, servers: dict[str, LabServer], procs: Processes) -> None:
        self.servers, self.procs = servers, procs
        self.ledger = procs.folder / "ledger"
        self.dsns = {name: server.dsn for name, server in servers.items()}
        source = Path(__file__).with_name("application.py").read_text("utf-8")
        (procs.folder / "application.py").write_text(source, "utf-8")

    def start(self, *command: str, cell: str = "") -> Process:
        env = {"CELLS": json.dumps(self.dsns), "LEDGER": str(self.ledger), "CELL": cell}
        return self.procs.start(*command, name=cell or command[-1], env=env)

    def lines(self) -> Lines:
        with suppress(FileNotFoundError):
            return [json.loads(line) for line in self.ledger.read_text("utf-8").splitlines()]
        return []

    def sql(self, name: str, text: str) -> list[Any]:
        with psycopg.connect(self.dsns[name], autocommit=True) as connection:
            return connection.execute(text.encode()).fetchall()

    def begin(self, shared: bool) -> Process:
        """Start all processes, and wait until each cell has run a job. Return the enqueuer."""
        for name in () if shared else self.servers:
            self.start("-m", "leasework", "worker", "application:cell", cell=name)
        self.start("application.py", "work")
        enqueuer = self.start("application.py", "enqueue")
        until(
            lambda: {line["cell"] for line in self.lines() if line["what"] == "effect"}
            == {*self.servers},
            START_SECONDS, "an effect in each cell", every=LOOK_SECONDS,
        )  # fmt: skip
        return enqueuer

    def kill(self, name: str) -> None:
        """Kill -9 of all processes of a server at once."""
        postmaster = psutil.Process(self.servers[name].pid)
        for process in [postmaster, *postmaster.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                os.kill(process.pid, signal.SIGKILL)

    def drain(self, seconds: float) -> dict[str, int]:
        """Wait until no job is left. Return how many are, by cell."""
        left = dict.fromkeys(self.servers, -1)

        def none_left() -> bool:
            for name in left:
                left[name] = self.sql(name, LEFT)[0][0]
            return not any(left.values())

        with suppress(NeverHappened):
            until(none_left, seconds, "the end of all jobs", every=LOOK_SECONDS)
        return left


def run(seconds: float, drain: float = DRAIN_SECONDS, shared: bool = False) -> list[Check]:
    """Play the three phases, and print what was done and found. Return the checks. ``shared``: one
    process works for all cells, and no other does."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leasework-cells-")))
        servers = {name: stack.enter_context(postgres.server()) for name in "abc"}
        for server in servers.values():
            asyncio.run(migrate.apply(Settings(dsn=server.dsn)))
        procs = stack.enter_context(Processes(folder))
        scene = Scene(servers, procs)
        enqueuer = scene.begin(shared)
        began = time.time()
        stall(seconds / 3)
        killed = time.time()
        scene.kill(KILLED)
        stall(seconds / 3)
        servers[KILLED].restart()
        back = time.time()
        stall(seconds / 3)
        times = Times(began, killed, back, time.time())
        enqueuer.kill(signal.SIGTERM)
        enqueuer.wait(60)
        ended = [p.name for p in procs.all if p is not enqueuer and not p.running]
        left = scene.drain(drain)
        done = {name: dict(scene.sql(name, DONE)) for name in servers}
        lines = scene.lines()
    checks = judge(lines, done, left, ended, times)
    report(lines, checks, times)
    return checks


def judge(
    lines: Lines, done: dict[str, dict[str, str]], left: dict[str, int], ended: list[str], t: Times
) -> list[Check]:
    checks = [
        Check("no process ended by itself", 1, ended),
        Check("no job is left", 1, [f"{n} in {name}" for name, n in left.items() if n]),
        strays(lines),
        ticks(lines),
        Check("the killed cell's keys were refused while it was away",
              len(of(lines, "not enqueued", KILLED)), []),
        Check("and go on after it",
              len(of(lines, "effect", KILLED, t.back, t.ended)), []),
    ]  # fmt: skip
    for name in done:
        sent = {line["job"] for line in of(lines, "sent", name)}
        effects = Counter(line["job"] for line in of(lines, "effect", name))
        ends = {job: done[name].get(job, "nowhere") for job in sent}
        lost = [f"{job} is {end}" for job, end in ends.items() if end != "completed"]
        lost += [f"{job} had no effect" for job in sent - effects.keys()]
        checks.append(Check(f"{name}: nothing acknowledged is lost", len(sent), lost, 50))
        if name != KILLED:
            twice = [f"{job}: {n} effects" for job, n in effects.items() if n > 1]
            checks.append(Check(f"{name}: no effect came twice", sum(effects.values()), twice, 50))
            checks.append(went_on(lines, name, t))
            refused = [line["error"] for line in of(lines, "not enqueued", name)]
            checks.append(Check(f"{name}: no enqueue was refused", len(sent), refused, 50))
    return checks


def of(lines: Lines, what: str, cell: str, since: float = 0, until: float = 1e12) -> Lines:
    return [
        line
        for line in lines
        if line["what"] == what and line["cell"] == cell and since <= line["at"] < until
    ]


def strays(lines: Lines) -> Check:
    home = {line["job"]: line["cell"] for line in lines if line["what"] == "sent"}
    ran = [line for line in lines if line["what"] == "effect" and line["job"] in home]
    found = [
        f"{each['key']} ran in {each['cell']}" for each in ran if home[each["job"]] != each["cell"]
    ]
    return Check("each job ran in the cell of its key", len(ran), found, 50)


def ticks(lines: Lines) -> Check:
    cells = [line["cell"] for line in lines if line["what"] == "tick"]
    found = [f"a tick ran in {cell}" for cell in cells if cell != HOME]
    return Check("the schedule ran in its cell alone", len(cells), found, 5)


def went_on(lines: Lines, name: str, t: Times) -> Check:
    before, away = (rate(lines, name, *phase) for phase in phases(t)[:2])
    found = [] if abs(away / before - 1) <= RATE_OFF else [f"{before:.1f}/s, then {away:.1f}/s"]
    effects = len(of(lines, "effect", name, t.killed, t.back))
    return Check(f"{name}: went on at its rate", effects, found, 50)


def phases(t: Times) -> list[tuple[float, float]]:
    return [(t.began, t.killed), (t.killed, t.back), (t.back, t.ended)]


def rate(lines: Lines, name: str, since: float, until: float) -> float:
    return len(of(lines, "effect", name, since, until)) / (until - since)


def waits(lines: Lines, name: str, since: float, until: float) -> list[float]:
    """The seconds from the answer to each enqueue of the phase to its effect, sorted. They may be
    below 0, because a worker can be faster than the answer."""
    effects = {line["job"]: line["at"] for line in reversed(of(lines, "effect", name))}
    sent = of(lines, "sent", name, since, until)
    return sorted(effects[line["job"]] - line["at"] for line in sent if line["job"] in effects)


def report(lines: Lines, checks: list[Check], t: Times) -> None:
    print(f"{'cell':6} {'phase':8} {'s':>6} {'effects/s':>10} {'p50 ms':>8} {'p99 ms':>8}  refused")
    for name in (*OTHERS, KILLED):
        for phase, (since, end) in zip(("before", "away", "after"), phases(t), strict=True):
            found = waits(lines, name, since, end) or [0.0]
            p50, p99 = (found[int(len(found) * share)] * 1000 for share in (0.5, 0.99))
            refused = len(of(lines, "not enqueued", name, since, end))
            print(
                f"{name:6} {phase:8} {end - since:6.1f} {rate(lines, name, since, end):10.2f} "
                f"{p50:8.1f} {p99:8.1f} {refused:8}"
            )
    late = Counter(line["cell"] for line in lines if line["what"] == "late")
    print(f"the server of {KILLED} was killed and away; lost the pace: {dict(late) or 'none'}")
    for check in checks:
        said = "ok" if check.ok else f"{len(check.found)} BROKEN" if check.found else "TOO FEW"
        print(f"  {said:>10}  {check.name}: {check.looked_at} looked at")
        for each in check.found[:3]:
            print(f"              {each}")
    print(flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cells")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the three phases together")
    parser.add_argument("--drain", type=float, default=DRAIN_SECONDS)
    parser.add_argument("--shared", action="store_true", help="one worker process for all cells")
    given = parser.parse_args()
    checks = run(given.seconds, given.drain, given.shared)
    return 0 if all(check.ok for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
