"""The child's side of the process executor: reads requests, runs handlers, answers.

Only :mod:`leasework.jobs.process` starts it. Both sides use their own socket pair (frames of four
bytes of length, then JSON), so handlers may use stdin and stdout freely. A request names the
handler's module and qualified name, and the child imports the handler.

Messages to the parent: ``started`` (handler found), ``unready`` (the lifespan failed), ``progress``
(gets an answer), ``completed`` (in the handler's own transaction), ``done`` (with the outcome). A
closed socket ends the child.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import inspect
import json
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context as Context_
from contextvars import ContextVar, copy_context
from functools import cache, partial
from importlib import import_module
from typing import Any, NoReturn, cast
from uuid import UUID

import msgspec

from leasework import errors
from leasework.config import Settings
from leasework.jobs.attempt import describe
from leasework.jobs.context import Context, SyncContext, around
from leasework.jobs.running import Claim
from leasework.jobs.tasks import values_of
from leasework.model.deadline import DueDeadline
from leasework.model.job import ClaimedJob
from leasework.model.outcome import Cancel, Complete, Discard, Snooze, outcome_of
from leasework.model.values import Values
from leasework.own_tasks import without_loop
from leasework.ports import JobStore

PR_SET_PDEATHSIG = 1
MARK = "LEASEWORK_EXECUTOR"
"""In the environment of a child and of the programs that it starts: the pid of the worker, and the
process group to kill when the worker dies (0: whatever the group)."""
LOOK: int | None = (
    signal.SIGRTMIN + 9 if sys.platform == "linux" and hasattr(os, "memfd_create") else None
)
"""The signal that asks for the stack: a real-time signal without a usual purpose."""
HEAD = struct.Struct("!I")
Message = dict[str, Any]


def pack(message: Message) -> bytes:
    """Encode one frame, in ASCII, so that a lone surrogate in an error's text is no problem."""
    body = json.dumps(message).encode()
    return HEAD.pack(len(body)) + body


def find(module: str, qualname: str, within: Any = None) -> tuple[Callable[..., Any], Any]:
    """Find the function of that name, unwrapped from its task, and that task's App or None.
    ``within`` is the module, if it is already imported."""
    found = within if within is not None else import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    app = None
    while found is not None and not inspect.isfunction(found):
        app = app or getattr(found, "app", None)
        found = getattr(found, "function", None)
    if found is None:
        raise errors.BadJob(
            f"module {module} has no function {qualname}",
            do="Define the handler at the top of an importable module, under its own name",
        )
    return found, app


@cache
def _use_settings(app: Any, text: str) -> None:
    """Give the App the settings of the worker, which may come from its command line or a test, and
    not from the code or the environment, which this process has as well."""
    mine = vars(app.settings)
    changed = {n: v for n, v in vars(Settings.from_text(text)).items() if v != mine[n]}
    if changed:
        app.configure(**changed)


class Channel:
    """The socket to the parent, for blocking use from any thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.lock = threading.RLock()

    def send(self, message: Message) -> None:
        with self.lock:
            self._sock.sendall(pack(message))

    def read(self) -> Message | None:
        """Read one message. None: the parent has closed the socket."""
        head = self._exactly(HEAD.size)
        body = head and self._exactly(HEAD.unpack(head)[0])
        return cast(Message, json.loads(body)) if body else None

    def _exactly(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            got = self._sock.recv(min(count - len(parts), 1 << 20))
            if not got:
                return None
            parts += got
        return bytes(parts)


class ParentLink:
    """The channel as one run uses it. It sends nothing after the outcome, because a thread that the
    handler left behind would send for the next job."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._over = False

    def tell(self, message: Message) -> None:
        with self._channel.lock:
            if not self._over:
                self._channel.send(message)

    def ask(self, message: Message) -> Message:
        """Send, and return the answer, which is empty if the run is over."""
        with self._channel.lock:
            if self._over:
                return {}
            self._channel.send(message)
            answer = self._channel.read()
        if answer is None:  # the parent has hung up: it kills us, or is dead
            os._exit(1)
        return answer

    def finish(self, outcome: list[Any]) -> None:
        with self._channel.lock:
            self._over = True
            self._channel.send({"kind": "done", "outcome": outcome})


class _Store:
    """The store's operations for a context, by way of the parent."""

    def __init__(self, link: ParentLink, in_loop: bool) -> None:
        self._link = link
        self._in_loop = in_loop

    async def progress(
        self, node: UUID, job: UUID, token: int, share: float, note: str | None
    ) -> bool | None:
        message = {"kind": "progress", "share": share, "note": note}
        if self._in_loop:
            answer = await asyncio.to_thread(self._link.ask, message)
        else:
            answer = self._link.ask(message)
        if "error" in answer:
            kind = getattr(errors, answer["error"], errors.Unavailable)
            raise kind(answer["text"])
        return cast("bool | None", answer.get("answer"))

    async def get(self, job: UUID) -> None:
        """None: the parent kills a cancelled run, which never reads the reason."""


class _OnConnection:
    """The App's operations on a user's connection. It reports a completion to the parent."""

    def __init__(self, link: ParentLink, app: Any, handler: str) -> None:
        self._link = link
        self._app = app
        self._handler = handler

    def _operations(self) -> Any:
        operations = getattr(self._app, "on_connection", None)
        if operations is None:
            raise errors.BadJob(
                f"{self._handler} is not a task of an App in the module that defines it",
                do="Decorate the function itself: @app.task(executor='process')",
            )
        return operations

    async def assert_mine(self, connection: Any, job: UUID, node: UUID, token: int) -> None:
        await self._operations().assert_mine(connection, job, node, token)

    async def complete(
        self, connection: Any, job: UUID, node: UUID, token: int, result: Any
    ) -> str | None:
        mine = (job, node, token)
        written: str | None = await self._operations().complete(connection, *mine, result)
        self._link.tell({"kind": "completed", "result": written})
        return written


def _context(request: Message, link: ParentLink, app: Any, in_loop: bool) -> Context:
    claim = Claim(request["job"], UUID(request["node"]))
    claim.deadline = msgspec.convert(request["deadline"], DueDeadline | None)
    store = cast(JobStore, _Store(link, in_loop))
    on = _OnConnection(link, app, f"{request['module']}.{request['qualname']}")
    if in_loop:
        return Context(claim, request["worker_id"], store, on)
    return SyncContext(claim, request["worker_id"], store, on, without_loop)


_values_of = cache(values_of)


_of_job: ContextVar[set[asyncio.Task[Any]] | None] = ContextVar("tasks of this job", default=None)


class _Loop:
    """The event loop of this process. A lifespan lives in it from the first job to the last."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._leaving = asyncio.Event()
        self._states: dict[Any, tuple[asyncio.Task[None], Any]] = {}

    def state_of(self, app: Any) -> Any:
        """Enter the lifespan of the application, at its first job here. Return what it yields."""
        if getattr(app, "process_lifespan", None) is None:
            return None
        if app not in self._states:
            if self._runner is None:
                self._runner = asyncio.Runner()
                self._runner.get_loop().set_task_factory(_make_task)
            self._states[app] = self._runner.run(self._enter(app))
        return self._states[app][1]

    async def _enter(self, app: Any) -> tuple[asyncio.Task[None], Any]:
        entered = asyncio.get_running_loop().create_future()

        async def live() -> None:  # a lifespan is left in the task that has entered it
            async with app.process_lifespan(app) as state:
                entered.set_result(state)
                await self._leaving.wait()

        task = asyncio.create_task(live())
        await asyncio.wait([task, entered], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return task, entered.result()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a job's coroutine in a context of its own, and end the tasks that it leaves."""
        if self._runner is None:
            return asyncio.run(work)
        tasks: set[asyncio.Task[Any]] = set()
        context = copy_context()
        context.run(_of_job.set, tasks)
        try:
            return self._runner.run(work, context=context)
        finally:
            if any(not task.done() for task in tasks):
                self._runner.run(_end(tasks))

    def close(self) -> None:
        if self._runner:
            with self._runner:
                self._runner.run(self._leave())

    async def _leave(self) -> None:
        self._leaving.set()
        await asyncio.gather(*[task for task, _ in self._states.values()], return_exceptions=True)


def _make_task(
    loop: asyncio.AbstractEventLoop, work: Any, context: Context_ | None = None, **given: Any
) -> asyncio.Task[Any]:
    """Make a task, and note it if a job makes it."""
    task = asyncio.Task(work, loop=loop, context=context, **given)
    tasks = _of_job.get() if context is None else context.get(_of_job)
    if tasks is not None:
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    return task


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    left = list(tasks)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class _Unready(Exception):
    """The application's lifespan failed."""


def _call(request: Message, link: ParentLink, loop: _Loop) -> tuple[Values, Any]:
    """The handler's values, and what it returned."""
    request["job"] = msgspec.convert(request["job"], ClaimedJob)
    for module in request["imports"]:
        import_module(module)
    function, app = find(request["module"], request["qualname"])
    if app is not None:
        _use_settings(app, request["settings"])
    is_async = inspect.iscoroutinefunction(function)
    context = _context(request, link, app, is_async)
    try:
        context.state = loop.state_of(app)
    except BaseException as error:  # SystemExit too
        raise _Unready(errors.told(error)) from error
    arguments = (context,) if request["takes_context"] else ()
    link.tell({"kind": "started"})
    values = _values_of(function, request["takes_context"])
    context._write = values.write_completion
    handler = app.registry.as_handler(function) if app is not None else function
    call = partial(handler, *arguments, **values.read(request["job"].payload))
    middleware = app.registry.middleware if app is not None else ()
    if middleware:
        outer = context if is_async else _context(request, link, app, True)
        outer.state, outer._write = context.state, context._write
        return values, loop.run(around(middleware, outer, call if is_async else _as_async(call)))
    return values, loop.run(call()) if is_async else call()


def _as_async(call: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    """Make a plain function awaitable. It does not see the loop that waits for it, so it may run
    one of its own."""

    async def handler() -> Any:
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return call()
        finally:
            asyncio._set_running_loop(loop)

    return handler


def _outcome(values: Values, returned: Any, request: Message) -> list[Any]:
    match outcome_of(request["job"].task, returned, request["result_bytes"], values):
        case Snooze(seconds):
            return ["snooze", seconds]
        case Cancel(reason):
            return ["cancel", errors.words(reason)[: request["error_chars"]]]
        case Discard(reason):
            return ["discard", errors.words(reason)[: request["error_chars"]]]
        case Complete(result):
            return ["complete", result]


def _serve(request: Message, channel: Channel, loop: _Loop) -> None:
    link, pid = ParentLink(channel), os.getpid()
    try:
        outcome = _outcome(*_call(request, link, loop), request)
    except _Unready as error:
        link.tell({"kind": "unready", "error": str(error)})
        return
    except BaseException as error:  # SystemExit and KeyboardInterrupt too are the handler's
        trace = error.__traceback__
        while trace and trace.tb_next and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        failed = describe(error.with_traceback(trace), request["error_chars"])
        outcome = ["fail", failed.error, failed.traceback]
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    if os.getpid() != pid:  # the handler forked, and this is the copy
        os._exit(0)
    link.finish(outcome)


def _die_with(parent: int) -> None:
    """Have the kernel kill us when the thread that started us ends (Linux). If the parent died
    before that, we already have another parent, and exit."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _let_signals_end_copies() -> None:
    """SIGTERM and SIGHUP end a process that the handler forks, unless the handler has set a signal
    handler of its own. They are blocked during the fork, so the copy cannot swallow one as we
    do."""
    ours = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    before = threading.local()

    def block() -> None:
        before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ours)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)

    def in_copy() -> None:
        for number, handler in ours.items():
            if handler is not signal.SIG_IGN and signal.getsignal(number) is handler:
                signal.signal(number, signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=in_copy)


def main(fd: int, parent: int, looks: int) -> NoReturn:
    """Serve requests from the socket ``fd`` of the process ``parent`` until it is closed. LOOK
    writes the stack to the file descriptor ``looks`` (-1: none)."""
    if LOOK is not None and looks >= 0:
        faulthandler.register(LOOK, looks, all_threads=True, chain=False)
        os.set_inheritable(looks, False)
    _die_with(parent)
    os.environ[MARK] = f"{parent}:{os.getpid()}"
    _let_signals_end_copies()
    os.set_inheritable(fd, False)
    del sys.argv[1:]  # ours: a module that reads it must not see it
    channel = Channel(socket.socket(fileno=fd))
    loop = _Loop()
    with suppress(ConnectionError):
        while (request := channel.read()) is not None:
            _serve(request, channel, loop)
    loop.close()
    sys.exit(0)
