"""The child's side of the process executor. It answers each request with ``started`` (it has found
the handler), any number of ``progress``, and the outcome. A closed socket ends the child."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Any, NoReturn, cast
from uuid import UUID

import msgspec

from leasework import errors, own_tasks
from leasework.config import Limits, Settings
from leasework.jobs.attempt import describe
from leasework.jobs.context import Context, SyncContext, around
from leasework.jobs.logged import keep_lines, lines_of
from leasework.jobs.running import Claim
from leasework.jobs.tasks import values_of
from leasework.model.deadline import DueDeadline
from leasework.model.job import ClaimedJob
from leasework.model.limits import Throttled
from leasework.model.outcome import Cancel, Complete, Discard, Fail, Snooze, outcome_of
from leasework.own_tasks import without_loop
from leasework.store.jobs import JobStore

_PR_SET_PDEATHSIG = 1
prctl: Callable[..., int] = (
    ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else lambda *_: 0
)
MARK = "LEASEWORK_EXECUTOR"
"""In the environment of a child and of the programs that it starts: the pid of the worker, and the
process group to kill when the worker dies (0: whatever the group)."""
FOR_THE_WORKER = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
"""An init system may send these to every process, but the worker decides when its jobs end."""


_Outcome = Complete | Fail | Snooze | Throttled | Cancel | Discard


class Request(msgspec.Struct):
    """One attempt, as the worker asks for it."""

    module: str
    qualname: str
    imports: list[str]
    """Modules to import before the handler's own."""
    takes_context: bool
    keep_log: bool
    settings: str
    worker_id: str
    job: ClaimedJob
    node: UUID
    deadline: DueDeadline | None


def line_of(message: Any) -> bytes:
    """Encode one message, in ASCII, so that a lone surrogate in an error's text is no problem."""
    return json.dumps(message).encode() + b"\n"


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


_settings_of = cache(Settings.from_text)


@cache
def _use_settings(app: Any, text: str) -> None:
    """Give the App the settings of the worker, which may come from its command line or a test, and
    not from the code or the environment, which this process has as well."""
    mine, given = vars(app.settings), vars(_settings_of(text))
    changed = {name: value for name, value in given.items() if value != mine[name]}
    if changed:
        app.configure(**changed)


class _Link:
    """The socket to the worker, as one run uses it from any thread. It sends nothing after the
    outcome, because a thread that the handler left behind would send for the next job."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._over = False

    def tell(self, *message: Any, last: bool = False) -> bool:
        """Send, and return whether the run is not over."""
        with self._lock:
            if self._over:
                return False
            self._over = last
            self._sock.sendall(line_of(message))
            return True


class _Operations:
    """What a context does outside this process: the worker records the progress, and kills this
    process if the job is not its own any more. The job's row is locked on the handler's own
    connection."""

    def __init__(self, request: Request, link: _Link, app: Any) -> None:
        self._request = request
        self._link = link
        self._app = app

    async def progress(self, _: Any, __: Any, ___: Any, share: float, note: str | None) -> Any:
        return False if self._link.tell("progress", share, note) else None

    async def assert_mine(self, connection: Any, job: UUID, node: UUID, token: int) -> None:
        if self._app is None:
            raise errors.BadJob(
                f"{self._request.module}.{self._request.qualname} is not a task of an App in the "
                "module that defines it",
                do="Decorate the function itself: @app.task(executor='process')",
            )
        await self._app.on_connection.assert_mine(connection, job, node, token)

    async def complete(self, *_: Any) -> str | None:
        raise errors.BadJob(
            "ctx.complete does not work with executor='process'",
            got=self._request.job.task,
            do="Leave executor out and run the heavy part with subprocess, or call "
            "ctx.assert_mine(connection) in the transaction and let the job complete after it",
        )


def _context(request: Request, link: _Link, app: Any, in_loop: bool) -> Context:
    claim = Claim(request.job, request.node, deadline=request.deadline)
    own_tasks.HANDLER.set(claim)  # for the lines that it logs
    operations: Any = _Operations(request, link, app)
    store = cast(JobStore, operations)
    if in_loop:
        return Context(claim, request.worker_id, store, operations)
    return SyncContext(claim, request.worker_id, store, operations, without_loop)


_values_of = cache(values_of)


def _run(request: Request, link: _Link, limits: Limits) -> _Outcome:
    """Run the handler inside the middleware."""
    for module in request.imports:
        import_module(module)
    function, app = find(request.module, request.qualname)
    if app is not None:
        _use_settings(app, request.settings)
    link.tell("started")
    values = _values_of(function, request.takes_context)
    is_async = inspect.iscoroutinefunction(function)
    context = _context(request, link, app, is_async)
    handler = app.registry.as_handler(function) if app is not None else function
    arguments = (context,) if request.takes_context else ()
    call = partial(handler, *arguments, **values.read(request.job.payload))
    if middleware := app.registry.middleware if app is not None else ():
        outer = context if is_async else _context(request, link, app, True)
        returned = asyncio.run(around(middleware, outer, call if is_async else _as_async(call)))
    else:
        returned = asyncio.run(call()) if is_async else call()
    return outcome_of(request.job.task, returned, limits.result_bytes, values)


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


def _message_of(outcome: _Outcome, limits: Limits) -> tuple[Any, ...]:
    match outcome:
        case Throttled():
            given = outcome.args
        case Cancel(reason) | Discard(reason):
            given = (errors.words(reason)[: limits.error_chars],)
        case _:
            given = tuple(getattr(outcome, name) for name in type(outcome).__match_args__)
    return type(outcome).__name__, *given


def _answer(request: Request, link: _Link) -> None:
    limits = _settings_of(request.settings).limits
    keep_lines()
    try:
        outcome: _Outcome = _run(request, link, limits)
    except Throttled as throttled:
        outcome = throttled
    except BaseException as error:  # SystemExit and KeyboardInterrupt too are the handler's
        trace = error.__traceback__
        while trace and trace.tb_next and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        outcome = describe(error.with_traceback(trace), limits.error_chars)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    claim = own_tasks.HANDLER.get()
    kept = request.keep_log or not isinstance(outcome, Complete)
    if kept and isinstance(claim, Claim) and (log := lines_of(claim, limits.error_chars)):
        link.tell("log", log)
    link.tell(*_message_of(outcome, limits), last=True)


def die_with(parent: int, number: int) -> None:
    """Have the kernel send us this signal when the thread that started us ends (Linux). If the
    parent died before that, we already have another parent, and exit."""
    prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _nothing(*_: Any) -> None:
    """A handler of signals that are for the worker. Programs that a handler starts would inherit an
    ignored signal, but not a handled one."""


def _leave_signals_to_the_worker() -> None:
    """Handle the signals that were blocked when this process began. SIGTERM and SIGHUP end a
    process that the handler forks, unless the handler has set a signal handler of its own. They are
    blocked during the fork, so the copy cannot swallow one as we do."""
    for number in FOR_THE_WORKER:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _nothing)
            signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_WORKER)
    ending, before = FOR_THE_WORKER[1:], threading.local()

    def block() -> None:
        before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ending)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)

    def in_copy() -> None:
        for number in ending:
            if signal.getsignal(number) is _nothing:
                signal.signal(number, signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=in_copy)


def serve(fd: int, parent: int) -> NoReturn:
    """Serve requests from the socket ``fd`` of the process ``parent`` until it is closed."""
    die_with(parent, signal.SIGKILL)
    _leave_signals_to_the_worker()
    os.environ[MARK] = f"{parent}:{os.getpid()}"
    os.set_inheritable(fd, False)
    del sys.argv[1:]  # ours: a module that reads it must not see it
    sock = socket.socket(fileno=fd)
    with suppress(ConnectionError):
        for line in sock.makefile("rb"):
            _answer(msgspec.convert(json.loads(line), Request), _Link(sock))
    sys.exit(0)
