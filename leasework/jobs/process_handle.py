"""The worker's handle of one child process: starts it, talks to it, and ends it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leasework import errors
from leasework.jobs.process_child import HEAD, LOOK, MARK, Message, pack
from leasework.tuning import Tuning

_LOOKS, _LOOK_SECONDS = 25, 0.02
_ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT

_GROUP = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
"""An init system may send these to every process, but the worker decides when its jobs end."""

# Programs that a handler starts would inherit an ignored signal, but not a handled one. The signals
# are blocked until then. The child imports from the same places as the worker: -P keeps Python from
# putting another folder first.
_START = """
import signal as s, sys
for number in (s.SIGINT, s.SIGTERM, s.SIGHUP):
    if s.getsignal(number) is not s.SIG_IGN:
        s.signal(number, lambda *_: None)
        s.siginterrupt(number, False)
s.pthread_sigmask(s.SIG_UNBLOCK, (s.SIGINT, s.SIGTERM, s.SIGHUP))
sys.path[:] = sys.argv[4:]
from leasework.jobs.process_child import main
main(*map(int, sys.argv[1:4]))
"""


@contextmanager
def _blocked(*numbers: int) -> Iterator[None]:
    """Block signals for this thread, and for a process that it starts meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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


class Gone(errors.JobError):
    """The child ended, or its connection broke, before it sent an outcome."""


class ChildHandle:
    """One child process and the socket to it. Raises OSError or MemoryError if the system has no
    descriptor, memory or process left."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._pidfd: int | None = None
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self.jobs = 0
        self.idle_since = 0.0
        self.fenced = False
        self.listens = False
        """It has begun a job, so it handles LOOK. Before that, LOOK would end it."""
        self._looks = -1
        self._ours, theirs = socket.socketpair()
        with theirs:
            try:
                if LOOK:
                    self._looks = os.memfd_create("leasework-stack")
                ours = [str(theirs.fileno()), str(os.getpid()), str(self._looks)]
                command = [sys.executable, "-P", "-c", _START, *ours]
                kept = [fd for fd in (theirs.fileno(), self._looks) if fd >= 0]
                with _blocked(*_GROUP):
                    self._popen = subprocess.Popen(
                        [*command, *sys.path],
                        pass_fds=kept,
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                        env={**os.environ, MARK: f"{os.getpid()}:0"},
                    )
            except BaseException:
                self._ours.close()
                self._close_looks()
                raise
        self.pid = self._popen.pid
        self._watch()

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._ours)

    # -- its end ---------------------------------------------------------------------------------
    def _watch(self) -> None:
        """Watch for its end without asyncio, which uses a thread per child in Python 3.11."""
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or a sandbox without this call
            self._poll()
        else:
            self._loop.add_reader(self._pidfd, self._look)

    def _poll(self) -> None:
        self._look()
        if not self.ended.done():
            self._loop.call_later(0.05, self._poll)

    def _look(self) -> None:
        with self._lock:
            with suppress(ChildProcessError):  # other code has reaped it
                if self.ended.done() or not os.waitid(os.P_PID, self.pid, _ENDED):
                    return
                self._kill_group()  # before it is reaped: until then the number is only its own
            code = self._popen.wait()
        self.ended.set_result(code)
        self._loop.call_later(Tuning.child_silent_seconds, self._close_looks)
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        # What it sent is read first. The socket never ends by itself if a process that the handler
        # started keeps it open.
        self._loop.call_later(Tuning.child_silent_seconds, self.hang_up)

    def kill(self) -> None:
        """Kill the child and its group, from any thread. Only we reap it, so its pid cannot be
        reused yet."""
        with self._lock:
            if self._popen.returncode is None:
                self._kill_group()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS: only the dead child is left
            os.killpg(self.pid, signal.SIGKILL)

    def _close_looks(self) -> None:
        with self._lock:
            if self._looks >= 0:
                os.close(self._looks)
            self._looks = -1

    async def stack(self) -> str | None:
        """The stacks of all its threads, C code included, from its fault handler. Any event loop
        may call it. None: not on this platform, or the child has not begun a job or is ending."""
        with self._lock:
            if self._looks < 0 or LOOK is None or not self.listens:
                return None
            if self._popen.returncode is not None:
                return None
            looks = os.dup(self._looks)  # the original may be closed while we wait
            os.ftruncate(looks, 0)
            os.lseek(looks, 0, os.SEEK_SET)
            self._popen.send_signal(LOOK)
        try:
            size = -1
            for _ in range(_LOOKS):
                await asyncio.sleep(_LOOK_SECONDS)
                before, size = size, os.fstat(looks).st_size
                if size and size == before:
                    return os.pread(looks, Tuning.child_stack_bytes, 0).decode("utf-8", "replace")
            return None
        finally:
            os.close(looks)

    def hang_up(self) -> None:
        """Close the socket, which asks an idle child to end."""
        if hasattr(self, "_writer"):
            self._writer.close()
        else:
            self._ours.close()

    async def end(self, seconds: float = 0.0) -> int:
        """Hang up, kill the child after ``seconds``, wait for its death; return its exit code."""
        self.hang_up()
        if seconds:
            await asyncio.wait([self.ended], timeout=seconds)
        self.kill()
        return await asyncio.shield(self.ended)

    async def how(self) -> str:
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

    # -- words -----------------------------------------------------------------------------------
    async def send(self, message: Message) -> None:
        with suppress(ConnectionError):  # it has ended: the next read raises Gone
            self._writer.write(pack(message))
            await self._writer.drain()

    async def receive(self, limit: int) -> Message:
        """Read one message. Raises Gone at the end of the socket and for an invalid message."""
        try:
            head = await self._reader.readexactly(HEAD.size)
            (size,) = HEAD.unpack(head)
            if size > limit:
                raise Gone(f"sent a message of {size} bytes, over the limit of {limit}")
            message = json.loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Gone(await self.how()) from None
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise Gone("sent an invalid message: something else wrote to its connection")
        return message
