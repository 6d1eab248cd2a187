"""The processes of both versions: they are started, killed, and replaced one by one."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.support.procs import Process, Processes
from tests.support.wait import NeverHappened, stall, until
from tests.upgrade.versions import Version

WORKERS = 3
KILL_SECONDS = (2.0, 5.0)
START_SECONDS, STOP_SECONDS = 60.0, 45.0
LOOK_SECONDS = 0.25
RESTART_SECONDS = 1.0
"""So long a worker that ended by itself waits for its restart."""
APPLICATION = Path(__file__).with_name("application.py")


@dataclass
class Member:
    """A place in the fleet, and the worker that has it."""

    version: Version
    process: Process
    up: bool = False
    must_refuse: bool = False
    """The schema is older than its code."""
    again_at: float = 0.0


@dataclass
class Phase:
    name: str
    began: float
    ended: float = 0.0
    kills: int = 0


class Fleet:
    def __init__(self, dsn: str, folder: Path, rng: random.Random, say: bool = True) -> None:
        self.dsn, self.folder, self.rng, self.say = dsn, folder, rng, say
        self.ledger = folder / "ledger"
        (folder / "application.py").write_text(APPLICATION.read_text("utf-8"), "utf-8")
        self.procs = Processes(folder)
        self.members: list[Member] = []
        self.enqueuer: Process | None = None
        self.killed: set[str] = set()
        self.ended: list[str] = []
        """Processes that ended by themselves, or badly, and what they said."""
        self.logs: list[Process] = []
        self.wrong: list[str] = []
        """What else was not as promised."""
        self.refused: list[str] = []
        self.phases: list[Phase] = []
        self.replaced = self.asked = 0
        self._kill_at = 0.0

    # ---- Processes ---------------------------------------------------------------------------

    def env(self, version: Version, name: str) -> dict[str, str]:
        return {
            "PYTHONPATH": str(version.path), "LEASEWORK_DSN": self.dsn, "NAME": name,
            "LEDGER": str(self.ledger), "LEASEWORK_LOG": "json", "COLUMNS": "500", "NO_COLOR": "1",
        }  # fmt: skip

    def start(self, version: Version, kind: str, *command: str) -> Process:
        name = f"{version.name}-{kind}{len(self.procs.all)}"
        process = self.procs.run(
            [sys.executable, "-u", *command], name=name, env=self.env(version, name)
        )
        self.logs.append(process)
        return process

    def worker(self, version: Version) -> Process:
        command = ("-m", "leasework", "worker", "application:app", "--queue", "default=20")
        return self.start(version, "worker", *command)

    def command(self, version: Version, *words: str) -> tuple[int, str]:
        """Run a command of a version to its end. Return its status and what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "leasework", *words], cwd=self.folder, text=True,
            env=self.env(version, "command"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout

    def sql(self, text: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(text.encode(), values).fetchall()

    def expect(self, what: str, true: bool, seen: object = "") -> None:
        """Note a promise that was looked at."""
        self.asked += 1
        if not true:
            self.wrong.append(f"{what}: {seen}")

    # ---- The fleet ---------------------------------------------------------------------------

    def begin(self, version: Version) -> None:
        self.members = [Member(version, self.worker(version)) for _ in range(WORKERS)]
        self.enqueuer = self.start(version, "enqueuer", "application.py")
        for member in self.members:
            self.wait_up(member)
        self._kill_at = time.monotonic() + self.rng.uniform(*KILL_SECONDS)

    def look_up(self, member: Member) -> bool:
        if not member.up and member.process.running:
            member.up = bool(
                self.sql("select from leasework.node where pid = %s", member.process.pid)
            )
        return member.up

    def wait_up(self, member: Member) -> None:
        def up_or_ended() -> bool:
            return self.look_up(member) or not member.process.running

        try:
            until(up_or_ended, START_SECONDS, f"{member.process.name} to start", every=0.2)
        except NeverHappened as error:
            self.ended.append(str(error)[:300])

    def supervise(self) -> None:
        """Start workers again that ended, and note those that nobody told to."""
        for member in self.members:
            if member.again_at and time.monotonic() >= member.again_at:
                member.process, member.again_at = self.worker(member.version), 0.0
            elif not member.again_at and not member.process.running:
                said = f"{member.process.name} ended with {member.process.returncode}: " + tail(
                    member.process
                )
                (self.refused if member.must_refuse else self.ended).append(said)
                member.process.close()
                member.up, member.again_at = False, time.monotonic() + RESTART_SECONDS
            elif not member.again_at:
                self.look_up(member)

    def kill_one(self) -> None:
        able = [member for member in self.members if member.up and member.process.running]
        if not able:
            return
        member = self.rng.choice(able)
        self.killed.add(member.process.name)
        member.process.kill()
        member.process.close()
        self.phases[-1].kills += 1
        member.process, member.up = self.worker(member.version), False

    def run(self, seconds: float) -> None:
        """Let the load run, and kill a worker every few seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.supervise()
            if time.monotonic() >= self._kill_at:
                self.kill_one()
                self._kill_at = time.monotonic() + self.rng.uniform(*KILL_SECONDS)
            stall(LOOK_SECONDS)

    def phase(self, name: str) -> None:
        now = time.time()
        if self.phases:
            self.phases[-1].ended = now
        self.phases.append(Phase(name, now))
        if self.say:
            print(f"  … {name}", flush=True)

    def stop(self, process: Process) -> None:
        """SIGTERM. The process must end with 0."""
        if not process.running:
            return
        process.kill(signal.SIGTERM)
        try:
            status = process.wait(STOP_SECONDS)
        except NeverHappened:
            status = None
        if status != 0:
            self.ended.append(f"{process.name}, told to stop, ended with {status}: {tail(process)}")
            self.killed.add(process.name)
        process.close()

    def replace(self, number: int, version: Version, *, refuses: bool = False) -> None:
        """Put a worker of another version into a place."""
        member = self.members[number]
        if not member.again_at:
            self.wait_up(member)
            self.stop(member.process)
        self.replaced += 1
        self.members[number] = Member(version, self.worker(version), must_refuse=refuses)
        if not refuses:
            self.wait_up(self.members[number])

    def replace_enqueuer(self, version: Version) -> None:
        assert self.enqueuer
        self.stop(self.enqueuer)
        self.replaced += 1
        self.enqueuer = self.start(version, "enqueuer", "application.py")

    def drain(self, seconds: float) -> int:
        """Stop the load and wait for the jobs. Return how many are left, then stop the workers."""
        if self.enqueuer:
            self.stop(self.enqueuer)

        def none_left() -> bool:
            self.supervise()
            return self.left() == 0

        with suppress(NeverHappened):
            until(none_left, seconds, "no job to be left", every=0.3)
        left = self.left()
        self.phases[-1].ended = time.time()
        for member in self.members:
            if not member.again_at:
                self.wait_up(member)
                self.stop(member.process)
        return left

    def left(self) -> int:
        return int(self.sql("select count(*) from leasework.job")[0][0])

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ledger.read_text("utf-8").splitlines()]


def tail(process: Process) -> str:
    return " | ".join(process.tail(4).splitlines())[-600:]
