"""The processes of a campaign: each behind its own link, and restarted when it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from leasework.app.certify import Certifier
from leasework.config import Settings
from leasework.env import ASSIGNED_NODE, GIVEN_DSN, Env, Rng, assign_node_id
from leasework_lab.chaos import history
from leasework_lab.chaos.database import Clock, find_faketime
from leasework_lab.chaos.history import Process
from leasework_lab.chaos.proxy import FaultProxy

_START = (
    "import json, sys; given = json.loads(sys.argv[1]); sys.path[:] = given['path']; "
    "from leasework_lab.chaos.child import main; main(given)"
)
CHILD = (sys.executable, "-c", _START)
"""The command of a campaign's process; its orders are the last argument, as JSON."""
_STOP_SECONDS = 25.0
_LOG_LINES = 25
_HARD_EXIT = "node1"
"""This node ends its process as a worker does; the others behave as in a web process."""


@dataclass(frozen=True)
class Plan:
    """The kinds and numbers of processes."""

    nodes: int = 4
    producers: int = 3
    pace: float = 0.15
    child: Sequence[str] = CHILD
    target: str = ""
    """``MODULE:APP`` of a user's application; then there are no producers."""


class Member:
    """One place in the campaign, and its current process."""

    def __init__(self, name: str, role: str, link: FaultProxy, clock: Clock | None) -> None:
        self.name = name
        self.role = role
        self.link = link
        self.clock = clock
        self.node: UUID | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.record: Process | None = None
        self.busy = False
        """A fault is hitting it."""
        self.why = ""
        """How we ended it; empty if we did not."""
        self.certify = True
        """Whether its parent certifies its death."""
        self.started = 0

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal. False if the process has ended."""
        if self.process and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)
                return True
        return False


class Fleet:
    """``members``: by name. ``processes``: every process that ever ran."""

    def __init__(
        self, settings: Settings, plan: Plan, folder: Path, certifier: Certifier, env: Env, rng: Rng
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._folder = folder
        self._certifier = certifier
        self._env = env
        self._rng = rng
        self._keepers: list[asyncio.Task[None]] = []
        self._stopping: set[str] = set()
        self.members: dict[str, Member] = {}
        self.processes: list[Process] = []

    async def start(self) -> None:
        roles = [("node", self._plan.nodes), ("producer", self._plan.producers)]
        for role, count in roles:
            for number in range(1, count + 1):
                name = f"{role}{number}"
                link = await FaultProxy(self._settings.dsn).__aenter__()
                member = Member(name, role, link, self._clock(name))
                self.members[name] = member
                self._keepers.append(asyncio.create_task(self._keep(member), name=name))

    def _clock(self, name: str) -> Clock | None:
        """A wall clock of its own for the last node."""
        library = find_faketime()
        if library is None or name != f"node{self._plan.nodes}" or self._plan.target:
            return None
        return Clock(library, self._folder / f"{name}.clock")

    @property
    def nodes(self) -> list[Member]:
        return [m for m in self.members.values() if m.role == "node"]

    def by_pid(self, pid: int | None) -> Member | None:
        alive = [m for m in self.members.values() if m.alive]
        return next((m for m in alive if m.pid == pid), None)

    # -- one member ------------------------------------------------------------------------------
    async def _keep(self, member: Member) -> None:
        """Start it, wait for its end, and start it again."""
        while member.role not in self._stopping:
            await self._spawn(member)
            assert member.process and member.record
            code = await member.process.wait()
            member.record.ended_at = self._env.boot_now()
            member.record.how = member.why or f"ended by itself: {code}"
            member.record.code = code  # even if we ended it: it may have broken before that
            if member.certify and member.node:
                self._certifier.report(member.node, member.record.how)
            if member.role not in self._stopping:
                await asyncio.sleep(0.2 + 1.5 * self._rng.random())

    async def _spawn(self, member: Member) -> None:
        member.started += 1
        member.why, member.certify = "", self._rng.random() < 0.5
        label = f"{member.name}.{member.started}"
        environ = self._environ(member.link.dsn)
        member.node = None
        if member.role == "node":
            member.node = self._env.new_id()
            environ[ASSIGNED_NODE] = assign_node_id(member.node)
        environ |= member.clock.environ if member.clock else {}
        with (self._folder / f"{label}.log").open("wb") as out:
            member.process = await asyncio.create_subprocess_exec(
                *self._command(member, label),
                stdin=asyncio.subprocess.PIPE,  # closes when we end, in whatever way
                stdout=out,
                stderr=out,
                env=environ,
                process_group=0,
            )
        pid, now = member.process.pid, self._env.boot_now()
        hard_exit = bool(self._plan.target) or member.name == _HARD_EXIT
        member.record = Process(member.name, member.role, pid, now, hard_exit=hard_exit)
        self.processes.append(member.record)

    def _environ(self, dsn: str) -> dict[str, str]:
        """A user's application gets our whole environment except for the database's address; ours
        gets nothing else. The DSN is not an argument, because it may contain a password."""
        if self._plan.target:
            given = {k: v for k, v in os.environ.items() if k != ASSIGNED_NODE}
            return given | {"LEASEWORK_DSN": dsn, GIVEN_DSN: dsn}
        given = {k: v for k, v in os.environ.items() if not k.startswith("LEASEWORK_")}
        return given | {
            "LEASEWORK_DSN": dsn,
            "LEASEWORK_SCHEMA": self._settings.schema,
            "LEASEWORK_RECOVER_WITHIN": f"{self._settings.recover_within:g}",
        }

    def _command(self, member: Member, label: str) -> list[str]:
        if self._plan.target:
            worker = [sys.executable, "-m", "leasework", "worker", self._plan.target]
            return [*worker, f"--schema={self._settings.schema}"]
        orders = {
            "path": sys.path,
            "role": member.role,
            "name": member.name,
            "pace": self._plan.pace,
            "hard_exit": member.name == _HARD_EXIT,
            "history": str(self._folder / f"{label}.jsonl"),
        }
        return [*self._plan.child, json.dumps(orders)]

    # -- the end ---------------------------------------------------------------------------------
    async def stop(self, role: str) -> None:
        """SIGTERM to all of a role; SIGKILL to those that do not stop."""
        self._stopping.add(role)
        members = [m for m in self.members.values() if m.role == role]
        for member in members:
            member.why = member.why or "stopped"
            member.signal(signal.SIGTERM)
        keepers = [k for k in self._keepers if k.get_name() in {m.name for m in members}]
        if not keepers:
            return
        _, late = await asyncio.wait(keepers, timeout=_STOP_SECONDS)
        for keeper in late:
            member = self.members[keeper.get_name()]
            member.why = "did not stop"
            member.signal(signal.SIGKILL)
        await asyncio.gather(*keepers, return_exceptions=True)
        self.raise_broken()

    def raise_broken(self) -> None:
        """Raise the error that ended a keeper, if any: its place was empty from then on."""
        for keeper in self._keepers:
            if keeper.done() and not keeper.cancelled() and (error := keeper.exception()):
                raise error

    async def end(self) -> None:
        """SIGKILL to all that remain, and close the links."""
        self._stopping |= {"node", "producer"}
        for member in self.members.values():
            member.signal(signal.SIGCONT)
            member.signal(signal.SIGKILL)
        _, late = await asyncio.wait(self._keepers, timeout=5) if self._keepers else (0, set())
        for keeper in late:
            keeper.cancel()
        for member in self.members.values():
            await member.link.close()

    def read_histories(self) -> None:
        """Read the lines of each process that ever ran, once all have ended."""
        counts: dict[str, int] = {}
        for process in self.processes:
            counts[process.name] = counts.get(process.name, 0) + 1
            path = self._folder / f"{process.name}.{counts[process.name]}.jsonl"
            process.lines = history.read(path)

    def log_tail(self, process: Process) -> str:
        """The end of its log."""
        same = [p for p in self.processes if p.name == process.name]
        number = next(n for n, p in enumerate(same, 1) if p is process)
        text = (self._folder / f"{process.name}.{number}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-_LOG_LINES:])
