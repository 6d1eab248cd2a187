"""Runs handlers in child processes, which it kills on a timeout, a cancel or a lost claim (ADR 53).

A child serves one job at a time. Its end kills what is left in its process group: the programs that
handlers have started. It dies with the *thread* that started it (PR_SET_PDEATHSIG, Linux): run the
event loop in a thread that lives as long as the worker, ideally the main one.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from leasework import errors, own_tasks
from leasework.jobs.context import Context, OnConnection
from leasework.jobs.failed_starts import Starts
from leasework.jobs.process_child import FOR_THE_WORKER, MARK, Request, find, line_of
from leasework.jobs.running import Claim, timed_out
from leasework.jobs.tasks import TaskFunction
from leasework.loops.service import ServiceContext
from leasework.model.limits import Throttled
from leasework.model.outcome import Cancel, Complete, Discard, Fail, Outcome, Snooze, Stopped
from leasework.tuning import Tuning

# The child imports from the same places as the worker: -P keeps Python from putting another first.
_START = """
import sys
sys.path[:] = sys.argv[3:]
from leasework.jobs.process_child import serve
serve(*map(int, sys.argv[1:3]))
"""


def check_importable(function: Callable[..., Any]) -> None:
    """Raise BadJob if a child process could not find the function by its name."""
    if not inspect.isfunction(function):
        why = "it needs a plain function"
    elif function.__module__ == "__main__":
        why = "a child process cannot import what the main script defines"
    elif "<" in function.__qualname__:
        why = "a child process cannot find a lambda or a function inside another one"
    else:
        return
    raise errors.BadJob(
        f"executor='process': {why}",
        got=repr(function),
        do="Define it with `def` at the top of a module of its own, and import that",
    )


def _check_runs(function: Callable[..., Any]) -> None:
    """Like check_importable, and raise BadJob if the name now refers to another function, or this
    system cannot tell the end of a child from its reaping."""
    if not hasattr(os, "waitid"):
        raise errors.BadJob("executor='process' needs Linux, or Python 3.13 on macOS")
    check_importable(function)
    module, qualname = function.__module__, function.__qualname__
    found, _ = find(module, qualname, sys.modules.get(module))
    if found is not function:
        raise errors.BadJob(
            "executor='process': the handler's name now means another function",
            got=f"{module}.{qualname}",
            do="Put @app.task outermost and give each handler a name of its own",
        )


def kill_processes_of(worker: int) -> list[int]:
    """Kill the executor children of a dead worker, and the programs in their groups. Return the
    pids of those that were alive. Finds them on Linux only."""
    mark, alive = f"{MARK}={worker}:".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            for value in (folder / "environ").read_bytes().split(b"\0"):
                pid = int(folder.name)
                if value.startswith(mark) and int(value[len(mark) :]) in (0, os.getpgid(pid)):
                    alive.append(pid)
                    os.kill(pid, signal.SIGKILL)
    return alive


_OUTCOMES: dict[str, Callable[..., Outcome]] = {
    kind.__name__: kind for kind in (Complete, Fail, Snooze, Throttled, Cancel, Discard)
}


class Gone(errors.JobError):
    """The child ended, or its connection broke, before it sent an outcome."""


class ChildHandle:
    """One child process and the socket to it. Raises OSError, MemoryError or RuntimeError if the
    system has no descriptor, memory, process or thread left."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Its exit code."""
        self.jobs = 0
        self.fenced = False
        self.idle: asyncio.TimerHandle | None = None
        """Dismisses it after a time without a job."""
        self._writer: asyncio.StreamWriter | None = None
        self._lock = threading.Lock()
        self._ours, theirs = socket.socketpair()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_WORKER)  # it unblocks them
        try:
            numbers = [str(theirs.fileno()), str(os.getpid())]
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, *numbers, *sys.path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, MARK: f"{os.getpid()}:0"},
            )
        except BaseException:
            self._ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self.pid = self._popen.pid
        try:
            threading.Thread(target=self._reap, name="leasework-child", daemon=True).start()
        except BaseException:
            self.kill()
            self._popen.wait()
            self._ours.close()
            raise

    async def connect(self, message_bytes: int) -> None:
        """Open the connection, for messages of at most so many bytes."""
        self._reader, self._writer = await asyncio.open_unix_connection(
            sock=self._ours, limit=message_bytes
        )

    def _reap(self) -> None:
        """Wait for its end in a thread, kill its group, and report it to the event loop."""
        with suppress(ChildProcessError):  # other code has reaped it
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self.kill()  # until it is reaped, the group's number cannot be another's
        with self._lock:
            code = self._popen.wait()
        with suppress(RuntimeError):  # the loop is closed
            self.ended.get_loop().call_soon_threadsafe(self._has_ended, code)

    def _has_ended(self, code: int) -> None:
        self.ended.set_result(code)
        # What it sent is read first. The socket never ends by itself if a process that the handler
        # started keeps it open.
        self.ended.get_loop().call_later(Tuning.child_silent_seconds, self.hang_up)

    def kill(self) -> None:
        """Kill the child and its group, from any thread. Only we reap it, so its pid cannot be
        reused yet."""
        with self._lock, suppress(ProcessLookupError, PermissionError):  # macOS: a dead child
            if self._popen.returncode is None:
                os.killpg(self.pid, signal.SIGKILL)

    def hang_up(self) -> None:
        """Close the socket, which asks an idle child to end."""
        (self._writer or self._ours).close()

    async def end(self, seconds: float = 0.0) -> None:
        """Hang up, kill the child after ``seconds``, and wait for its death."""
        self.hang_up()
        if seconds:
            await asyncio.wait([self.ended], timeout=seconds)
        self.kill()
        await asyncio.shield(self.ended)

    async def _how(self) -> str:
        """Describe how the child ended, after its socket has."""
        await asyncio.wait([self.ended], timeout=Tuning.child_silent_seconds)
        if not self.ended.done():
            return "closed its connection to the worker"
        code = self.ended.result()
        if code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            return f"ended with signal {-code} ({signal.Signals(-code).name})"
        return f"ended with signal {-code}"

    async def send(self, message: Any) -> None:
        assert self._writer
        with suppress(ConnectionError):  # it has ended: the next read raises Gone
            self._writer.write(line_of(message))
            await self._writer.drain()

    async def receive(self) -> Any:
        """Read one message. Raises Gone at the end of the socket and for an invalid message."""
        try:
            line = await self._reader.readline()
            if line.endswith(b"\n"):
                return json.loads(line)
        except ConnectionError:
            pass
        except ValueError:
            raise Gone("sent a message that is too long or invalid") from None
        raise Gone(await self._how())


class ProcessPool:
    """A pool of at most ``slots`` child processes. ``run`` is the executor for ``process``."""

    def __init__(
        self,
        context: ServiceContext,
        slots: int,
        starts: Starts,
        worker_id: Callable[[], str] = lambda: "",
    ) -> None:
        limits = context.settings.limits
        self._env, self._users = context.env, context.users
        self._settings = context.settings.to_text()
        self.starts = starts
        self._worker_id = worker_id
        self._room = asyncio.Semaphore(slots)
        self._busy: set[ChildHandle] = set()
        self._idle: list[ChildHandle] = []
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False
        # ASCII JSON takes up to six bytes per byte, and twice that for the result, nested as text.
        self._message_bytes = 12 * (limits.result_bytes + 2 * limits.error_chars) + 4096

    def kill_all(self) -> None:
        """Kill all running children now. The guard's thread calls it while the loop is blocked."""
        for child in list(self._busy):
            child.fenced = True
            child.kill()

    async def close(self) -> None:
        """End all children, and wait until they are dead."""
        self._closed = True
        for child in list(self._idle):
            self._dismiss(child)
        for child in list(self._busy):
            child.kill()
        ends: list[asyncio.Future[Any]] = [child.ended for child in self._busy]
        if ends := [*ends, *self._leaving]:
            await asyncio.wait(ends)

    async def run(self, task: TaskFunction, claim: Claim) -> Outcome:
        """Run one attempt in a child. Raises CancelledError if ``claim`` was ended, and JobTimeout
        if it timed out. The child is dead then."""
        try:
            _check_runs(task.function)
        except errors.BadJob as error:
            return Fail(str(error))
        mine = asyncio.current_task()
        assert mine
        claim.stop = mine.cancel  # while it waits for room
        try:
            async with self._room:
                return await self._run(task, claim)
        finally:
            claim.stop = claim.place = None

    async def _run(self, task: TaskFunction, claim: Claim) -> Outcome:
        while True:
            if claim.stop_reason:
                raise asyncio.CancelledError
            try:
                child = self._take() or ChildHandle()
            except (OSError, MemoryError, RuntimeError) as error:
                why = f"no child process could be started: {error}"
                return await self.starts.failed("process", why)
            self._busy.add(child)
            claim.stop, claim.place = child.kill, child
            first, well = None, False
            try:
                first = await self._begin(child, task, claim)
                self.starts.succeeded("process")
                claim.started_at = self._env.boot_now()  # the start of a child is not its time
                outcome = await self._converse(child, claim, first)
                well = True
                return outcome
            except Gone as gone:
                if child.fenced:
                    return Stopped()  # we may not write its outcome
                if claim.stop_reason:
                    raise asyncio.CancelledError from None
                if first is None and child.jobs > 1:
                    continue  # it died while idle, before the handler began
                when = "while it ran the job" if first else "before the handler began"
                return Fail(f"the child process {gone.what} {when}")
            finally:
                await self._put_back(child, well)

    async def _begin(self, child: ChildHandle, task: TaskFunction, claim: Claim) -> Any:
        """Send the request. Return the child's first message: it found the handler, or failed."""
        request = Request(
            task.function.__module__,
            task.function.__qualname__,
            task.child_imports,
            task.takes_context,
            task.options.keep_log,
            self._settings,
            self._worker_id(),
            claim.job,
            claim.node,
            claim.deadline,
        )
        child.jobs += 1
        try:
            async with asyncio.timeout(Tuning.child_load_seconds):
                if child.jobs == 1:
                    await child.connect(self._message_bytes)
                await child.send(msgspec.to_builtins(request))
                return await child.receive()
        except TimeoutError:
            what = f"took longer than {Tuning.child_load_seconds:g} s to import {request.module}"
            raise Gone(what) from None

    async def _converse(self, child: ChildHandle, claim: Claim, message: Any) -> Outcome:
        """Handle the child's messages until its outcome, within the job's timeout."""
        limit = asyncio.timeout(claim.job.timeout)
        try:
            async with limit:
                while True:
                    match message:
                        case ["started"]:
                            pass
                        case ["progress", float() as share, str() | None as note]:
                            await self._record(claim, share, note)
                        case ["log", str() as log]:
                            claim.log = log
                        case [str() as kind, *given] if kind in _OUTCOMES:
                            return _OUTCOMES[kind](*given)
                        case _:
                            raise Gone(f"sent an invalid message: {errors.shorten(message)}")
                    message = await child.receive()
        except TimeoutError:
            if limit.expired():
                raise timed_out(claim) from None
            raise

    async def _record(self, claim: Claim, share: float, note: str | None) -> None:
        """Record the progress, as the context of any handler does. It may cancel the claim."""
        context = Context(claim, self._worker_id(), self._users, cast(OnConnection, None))
        try:
            await context.progress(share, note)
        except errors.LostClaim:
            claim.end("lost")

    def _take(self) -> ChildHandle | None:
        """Take the child that became idle last, so that surplus children become old and end."""
        while self._idle:
            child = self._idle.pop()
            assert child.idle
            child.idle.cancel()
            if not child.ended.done():
                return child
        return None

    async def _put_back(self, child: ChildHandle, well: bool) -> None:
        """Keep the child for the next job, dismiss it, or kill it if it is not ``well``."""
        try:
            if not well:
                await child.end()
                return
            self._idle.append(child)
            loop = asyncio.get_running_loop()
            child.idle = loop.call_later(Tuning.child_idle_seconds, self._dismiss, child)
            if self._closed or child.fenced or child.jobs >= Tuning.jobs_per_child:
                self._dismiss(child)
        finally:
            self._busy.discard(child)

    def _dismiss(self, child: ChildHandle) -> None:
        """Let an idle child end."""
        self._idle.remove(child)
        assert child.idle
        child.idle.cancel()
        task = own_tasks.start(child.end(Tuning.child_leave_seconds))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
