"""Tasks of leasework's own, which a handler cannot cancel, and the end of loops and processes."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any, NoReturn, TypeVar

from leasework.errors import BadJob, LeaseworkError

T = TypeVar("T")

HANDLER: ContextVar[object | None] = ContextVar("leasework_handler", default=None)
"""In a handler's context, and in what the handler starts: its attempt."""
may_block: ContextVar[bool] = ContextVar("leasework_may_block", default=False)
"""True during a plain call, not an awaited one, which may block an event loop in its thread."""


class OwnTask(asyncio.Task[T]):
    """A task that no handler can cancel but the one that it works for."""

    works_for: object | None = None
    """The attempt that it runs now, or that started it."""

    def cancel(self, msg: Any = None) -> bool:
        by = HANDLER.get()
        if by is not None and by is not self.works_for:
            return False
        return super().cancel(msg)


def start(work: Coroutine[Any, Any, T], name: str | None = None) -> OwnTask[T]:
    """As ``asyncio.create_task``, for leasework's own work."""
    context, works_for = copy_context(), HANDLER.get()
    context.run(HANDLER.set, None)
    task = OwnTask(work, loop=asyncio.get_running_loop(), name=name, context=context)
    task.works_for = works_for
    return task


def without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, because everything that it awaits blocks."""
    before = may_block.set(True)
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        may_block.reset(before)
    work.close()
    raise BadJob("a call outside an event loop needs a connection of a sync driver")


def run(
    work: Coroutine[Any, Any, T],
    name: str,
    on_error: Callable[[BaseException], None],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """As ``asyncio.run``, but only the end of ``work`` ends the loop. If a handler stops the loop,
    or raises through it from a task or callback of its own, ``on_error`` gets the error, and the
    loop continues unless ``on_error`` raises it."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        task = loop.run_until_complete(_started(work, name))
        while True:
            try:
                return loop.run_until_complete(task)
            except BaseException as error:
                if loop.is_closed() or task.done():
                    raise
                on_error(error)


async def _started(work: Coroutine[Any, Any, T], name: str) -> OwnTask[T]:
    return start(work, name)


JOB_THREADS = "leasework-job"
"""How the names of the threads begin in which handlers run."""


def leave_stuck_threads(end: int | BaseException) -> None:
    """Exit at once if a thread still runs that would keep the process alive. A handler's thread
    does, although it is a daemon if its pool was made in one: Python waits for each pool. ``end``:
    the exit status, or the error that ends the process."""

    def keeps(thread: threading.Thread) -> bool:
        if thread.name.startswith(JOB_THREADS):
            thread.join(0.5)  # an idle one of a closed pool is about to end
            return thread.is_alive()
        return not thread.daemon and thread is not threading.main_thread()

    if any(keeps(thread) for thread in threading.enumerate()):
        _exit_at_once(end if isinstance(end, int) else _code_of(end))


def _exit_at_once(code: int) -> NoReturn:
    with suppress(BaseException):
        atexit._run_exitfuncs()  # of the application, such as the last flush of what it reports to
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):  # it may be closed, or its reader gone
            stream.flush()
    os._exit(code)


_LAST_SECONDS = 0.5
"""The time that tasks have to end when a worker has stopped."""


async def exit_after(work: Awaitable[int]) -> NoReturn:
    """Await ``work``, and exit with the status that it returns. The end of the loop would wait for
    all its tasks and for the threads of pools, however long that takes. Raises what ``work``
    raises."""
    code = await work
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_LAST_SECONDS)
    _exit_at_once(code)


async def in_thread_of_its_own(call: Callable[..., object], *arguments: Any) -> None:
    """As ``asyncio.to_thread``, but it does not wait for the threads of the loop's pool."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="leasework-end")
    try:
        await asyncio.get_running_loop().run_in_executor(pool, call, *arguments)
    except RuntimeError:  # Python starts no thread at its exit; or there are too many
        call(*arguments)
    finally:
        pool.shutdown(wait=False)


generation = 0
"""Grows in the child of each fork."""


def _after_fork_in_child() -> None:
    global generation
    generation += 1


def _code_of(error: BaseException) -> int:
    """Return the exit status of a process that this error ends. Print the error."""
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        return code & 0xFF
    with suppress(BaseException):
        if isinstance(error, LeaseworkError):
            sys.stderr.write(f"leasework: {error}\n")
        else:
            traceback.print_exception(error)
    return 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


async def within(seconds: float, awaited: Awaitable[object]) -> bool:
    """Wait at most ``seconds``. Return whether ``awaited`` ended by then; if not, it is
    cancelled."""
    try:
        async with asyncio.timeout(seconds):
            await awaited
    except TimeoutError:
        return False
    return True


async def to_its_end(stopping: asyncio.Future[None]) -> None:
    """Wait until the node has stopped, even if this task is cancelled, as frameworks do. A stop
    that ends halfway would leave jobs that no process runs. The stop has its own time limits."""
    cancelled = False
    while not stopping.done():
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            cancelled = True
    stopping.result()
    if cancelled:
        raise asyncio.CancelledError
