"""``leasework worker MODULE:APP --processes N``: N worker processes, and their parent.

The parent does not load the application's code. When a child and its own children are dead, the
parent tells the database, so that the jobs run elsewhere at once. If the parent is killed, the
kernel sends SIGTERM to the children (PR_SET_PDEATHSIG), and they stop cleanly.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from leasework import own_tasks
from leasework.app.certify import Certifier
from leasework.app.load import load_app
from leasework.cli.work.logs import set_up_logging
from leasework.config import Settings
from leasework.env import ASSIGNED_NODE, GIVEN_DSN, Env, assign_node_id
from leasework.errors import ConfigError, LeaseworkError
from leasework.jobs.process import kill_processes_of
from leasework.jobs.process_child import die_with, prctl
from leasework.node.plan import EXIT_DRAINED, EXIT_DRAINED_ALONE
from leasework.telemetry import log, make_event
from leasework.tuning import Tuning

WORKER = (sys.executable, "-m", "leasework", "worker")
_PROBE = f"import sys; from {__name__} import tell_settings; tell_settings(*sys.argv[1:])"

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of processes whose own parent ends, where the system can do that."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run_supervisor(
    target: str,
    processes: int,
    options: Mapping[str, str],
    arguments: Sequence[str],
    *,
    command: Sequence[str] = WORKER,
) -> int:
    """Run ``processes`` workers of ``MODULE:APP`` until SIGTERM, SIGINT or SIGHUP. Each worker gets
    ``options``, which configure the App, and ``arguments``, but the DSN through the environment.
    Return the exit status: 0 if all stopped cleanly, 1 if one had to be killed or the application
    cannot be loaded."""
    if not hasattr(os, "waitid"):
        raise ConfigError(
            "--processes needs Linux, or Python 3.13 on macOS", do="Start the workers one by one"
        )
    settings = _ask_settings(target, options)
    if settings is None:
        return 1
    env = Env()
    set_up_logging(settings.log, lambda: _name(env))
    given = [f"--{name}={value}" for name, value in options.items() if name != "dsn"]
    worker = [*command, target, *given, *arguments]
    environ = {GIVEN_DSN: options["dsn"]} if "dsn" in options else {}
    return asyncio.run(Supervisor(worker, processes, settings, env, environ).run())


def _name(env: Env) -> str:
    return f"{env.host}:{env.pid}:supervisor"


def _ask_settings(target: str, options: Mapping[str, str]) -> Settings | None:
    """Load the application in a short-lived process, so that its memory, threads and import-time
    surprises stay out of this one."""
    reader, writer = os.pipe()
    with open(reader) as answer:
        probe = subprocess.Popen(
            [sys.executable, "-c", _PROBE, target, str(writer)],
            pass_fds=[writer],
            stdin=subprocess.PIPE,
            preexec_fn=partial(die_with, os.getpid(), signal.SIGTERM),
        )
        os.close(writer)
        assert probe.stdin
        with suppress(BrokenPipeError), probe.stdin as stdin:  # not in argv: a DSN holds a password
            stdin.write(json.dumps(options).encode())
        text = answer.readline()
        if not text:  # the probe says why on stderr
            with suppress(subprocess.TimeoutExpired):
                probe.wait(Tuning.probe_exit_seconds)
        probe.kill()  # whatever threads the application has started in it
        probe.wait()
    return Settings.from_text(text) if text else None


def tell_settings(target: str, fd: str) -> None:
    """The probe's side: load ``MODULE:APP`` and write its settings."""
    options = json.load(sys.stdin)
    with open(int(fd), "w") as answer:
        try:
            app = load_app(target, options)
        except LeaseworkError as error:
            print(f"leasework: {' '.join(str(error).split())}", file=sys.stderr)
            sys.exit(1)
        answer.write(app.given.to_text() + "\n")


@dataclass(eq=False)
class Child:
    """One worker process, leader of a process group of its own."""

    number: int
    node: UUID
    process: subprocess.Popen[bytes]
    started_at: float
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def how(self) -> str:
        """How it ended, in words."""
        code = self.process.returncode
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"


@dataclass(eq=False)
class Supervisor:
    """Keeps ``processes`` children of ``command`` running until it is told to stop."""

    _command: Sequence[str]
    _processes: int
    _settings: Settings
    _env: Env
    _environ: Mapping[str, str]
    _children: dict[int, Child] = field(default_factory=dict)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _reaped: asyncio.Event = field(default_factory=asyncio.Event)
    _forced: bool = False

    async def run(self) -> int:
        """Run until a signal arrives. Returns the exit status."""
        adopt_orphans()
        self._certifier = await Certifier.begin(self._settings)
        self._listen_to_signals()
        try:
            async with asyncio.TaskGroup() as keepers:
                for number in range(1, self._processes + 1):
                    keepers.create_task(self._keep(number))
        finally:
            self._kill_all()
            if not await self._certifier.finish(self._settings.call_timeout):
                self._tell("deaths_uncertified")
        return 1 if self._forced else 0

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._stop, number)

    def _stop(self, number: int) -> None:
        if self._stopping.is_set():
            if number == signal.SIGINT:  # somebody pressed Ctrl-C again
                self._kill_all()
            return
        self._stopping.set()
        self._tell("supervisor_stopping", signal=signal.Signals(number).name)
        for child in self._children.values():
            os.kill(child.process.pid, signal.SIGTERM)  # not reaped, so the pid is its own
        seconds = self._settings.grace + self._settings.timings.grace + Tuning.stop_margin_seconds
        asyncio.get_running_loop().call_later(seconds, self._kill_all)

    def _kill_all(self) -> None:
        for child in self._children.values():
            if not child.ended.is_set():
                self._forced = True
                self._tell("worker_killed", number=child.number, pid=child.process.pid)
                _kill_group(child.process.pid)

    def _tell(self, kind: str, **fields: object) -> None:
        """Write a log line; only workers store events."""
        log(make_event(kind, fields, self._env.boot_now()), _name(self._env))

    async def _keep(self, number: int) -> None:
        quick = 0
        while not self._stopping.is_set():
            try:
                child = self._start(number)
            except OSError as error:
                self._tell("worker_not_started", number=number, error=error)
                quick += 1
            else:
                await child.ended.wait()
                await self._bury(child)
                if child.process.returncode == EXIT_DRAINED:
                    self._stop(signal.SIGTERM)
                if child.process.returncode == EXIT_DRAINED_ALONE:
                    return  # the other workers continue; the last one to drain ends the supervisor
                lived = self._env.boot_now() - child.started_at
                # one that did not reach the database gives up after the time limit of a call
                at_once = Tuning.quick_death_seconds + self._settings.call_timeout
                quick = quick + 1 if lived < at_once else 0
            await self._pause(number, quick)

    def _start(self, number: int) -> Child:
        node = self._env.new_id()
        process = subprocess.Popen(
            self._command,
            env={**os.environ, **self._environ, ASSIGNED_NODE: assign_node_id(node)},
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=partial(die_with, os.getpid(), signal.SIGTERM),
        )
        child = Child(number, node, process, self._env.boot_now())
        self._children[process.pid] = child
        self._tell("worker_started", number=number, pid=process.pid)
        return child

    async def _pause(self, number: int, quick: int) -> None:
        """Restart at once the first time a child dies at once; then wait longer and longer."""
        if quick < 2 or self._stopping.is_set():
            return
        pause = Tuning.restart_first_pause * 2.0 ** min(quick - 2, 10)
        longest = min(pause, Tuning.restart_longest_pause)
        seconds = self._env.jitter(longest, 0.2)
        self._tell("worker_dies_at_once", number=number, times=quick, pause=round(seconds, 1))
        await own_tasks.within(seconds, self._stopping.wait())

    def _reap(self) -> None:
        """On SIGCHLD: reap children, and orphans that came to us as their subreaper."""
        while (pid := _some_dead_child()) is not None:
            child = self._children.pop(pid, None)
            if child:
                # Before it is reaped: until then the number cannot mean another group.
                _kill_group(pid)
            with suppress(ChildProcessError):
                _, status = os.waitpid(pid, 0)
                if child:
                    child.process.returncode = os.waitstatus_to_exitcode(status)
            if child:
                child.ended.set()
        self._reaped.set()

    async def _bury(self, child: Child) -> None:
        """Report a death, once the child's own processes are dead: its jobs may then run again."""
        pid = child.process.pid
        if child.process.returncode in (EXIT_DRAINED, EXIT_DRAINED_ALONE):
            self._tell("worker_drained", number=child.number, pid=pid)
        elif child.process.returncode:
            self._tell("worker_ended", number=child.number, pid=pid, how=child.how)
        if await self._group_is_gone(pid):
            if child.process.returncode or not self._stopping.is_set():  # else it left in order
                self._certifier.report(child.node, child.how)
        else:
            self._tell("children_live_on", number=child.number, pid=pid)

    async def _group_is_gone(self, group: int) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(Tuning.dead_group_seconds):
                while kill_processes_of(group) or group_exists(group):
                    self._reaped.clear()
                    # without a subreaper, nothing reports grandchildren: look again
                    await own_tasks.within(0.05, self._reaped.wait())
                return True
        return False


def _some_dead_child() -> int | None:
    """The pid of a child that has ended but is not reaped yet."""
    with suppress(ChildProcessError):
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended.si_pid if ended else None
    return None


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
