"""Runs handlers in child processes, which it kills on a timeout, a cancel or a lost claim.

A child serves one job at a time and is reused. It dies with the *thread* that started it
(PR_SET_PDEATHSIG, Linux): run the event loop in a thread that lives as long as the worker, ideally
the main one. A child has a session of its own. Its end, however it comes, kills what is left in its
process group: the programs that handlers have started. It ignores SIGINT and SIGTERM.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from leasework import errors, own_tasks
from leasework.jobs.attempt import describe
from leasework.jobs.failed_starts import Starts
from leasework.jobs.process_child import Message, find
from leasework.jobs.process_handle import ChildHandle, Gone
from leasework.jobs.running import Claim, timed_out
from leasework.jobs.tasks import TaskFunction
from leasework.loops.service import ServiceContext
from leasework.model.outcome import Cancel, Complete, Discard, Fail, Outcome, Snooze, Stopped
from leasework.tuning import Tuning


def check_importable(function: Callable[..., Any]) -> None:
    """Raise BadJob if a child process could not find the function by its name."""
    advice = "Define it with `def` at the top of a module that can be imported"
    if not inspect.isfunction(function):
        raise errors.BadJob(
            "executor='process' needs a plain function", got=repr(function), do=advice
        )
    name = f"{function.__module__}.{function.__qualname__}"
    if function.__module__ == "__main__":
        raise errors.BadJob(
            "executor='process': a child process cannot import what the main script defines",
            got=name,
            do="Move the task to a module of its own and import it",
        )
    if "<" in function.__qualname__:
        raise errors.BadJob(
            "executor='process': a child process cannot find a lambda or a function inside "
            "another one",
            got=name,
            do=advice,
        )


def _check_found(function: Callable[..., Any]) -> None:
    """Like check_importable, and raise BadJob if the name now refers to another function."""
    check_importable(function)
    module, qualname = function.__module__, function.__qualname__
    found, _ = find(module, qualname, sys.modules.get(module))
    if found is not function:
        raise errors.BadJob(
            "executor='process': the handler's name now means another function",
            got=f"{module}.{qualname}",
            do="Put @app.task outermost and give each handler a name of its own",
        )


class _Asked:
    """The callback ``claim.stop``: kills the child at once, and cancels the run once."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self.deaf = False
        """The run is ending, and there is nothing left to cancel."""
        self.child: ChildHandle | None = None

    def __call__(self) -> None:
        if self.child:
            self.child.kill()
        if self._task and not self.deaf:
            self.deaf = True
            self._task.cancel()


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
        self._env, self._limits = context.env, limits
        self._progress = context.users.progress
        self._settings = context.settings.to_text()
        self.starts = starts
        self._worker_id = worker_id
        self._room = asyncio.Semaphore(slots)
        self._busy: dict[ChildHandle, Claim] = {}
        self._idle: list[ChildHandle] = []
        self._leaving: set[asyncio.Task[int]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        # ASCII JSON takes up to six bytes per byte, and twice that for the result, nested as text.
        self._message_bytes = 12 * (limits.result_bytes + 2 * limits.error_chars) + 4096

    # -- for others ------------------------------------------------------------------------------
    def kill_all(self) -> None:
        """Kill all running children now. The guard's thread calls it while the loop is blocked."""
        for child in list(self._busy):
            child.fenced = True
            child.kill()

    async def close(self) -> None:
        """End all children, and wait until they are dead."""
        self._closed = True
        if self._timer:
            self._timer.cancel()
        for child in self._idle:
            self._dismiss(child)
        self._idle.clear()
        for child in list(self._busy):
            child.kill()
        ends = [child.ended for child in self._busy]
        if ends or self._leaving:
            await asyncio.wait([*ends, *self._leaving])

    async def run(self, task: TaskFunction, claim: Claim) -> Outcome:
        """Run one attempt in a child. Raises CancelledError if ``claim`` was ended, and JobTimeout
        if it timed out. The child is dead then."""
        try:
            _check_found(task.function)
        except errors.BadJob as error:
            return Fail(str(error))
        stop = _Asked()
        claim.stop = claim.place = stop
        try:
            async with self._room:
                return await self._run(task, claim, stop)
        finally:
            claim.stop = None

    # -- one attempt -----------------------------------------------------------------------------
    async def _run(self, task: TaskFunction, claim: Claim, stop: _Asked) -> Outcome:
        request = self._request(task, claim)
        while True:
            if claim.stop_reason:
                raise asyncio.CancelledError
            try:
                child = self._take() or ChildHandle()
            except (OSError, MemoryError) as error:
                why = f"no child process could be started: {error}"
                return await self.starts.failed("process", why)
            self._busy[child] = claim
            stop.child = child
            first: Message | None = None
            well = False
            try:
                if not child.jobs:
                    await child.connect()
                child.jobs += 1
                first = await self._begin(child, request)
                if first.get("kind") == "unready":
                    why = f"the lifespan fails in a child: {errors.shorten(first.get('error'))}"
                    return await self.starts.failed("process", why)
                self.starts.succeeded("process")
                claim.started_at = self._env.boot_now()  # the start of a child is not its time
                child.listens = True
                outcome = await self._converse(child, claim, first)
                well = True
                return outcome
            except Gone as gone:
                if child.fenced:
                    return Stopped()  # we may not write its outcome
                if first is None and child.jobs > 1:
                    continue  # it died while idle, before the handler began
                when = "while it ran the job" if first else "before the handler began"
                return Fail(f"the child process {gone.what} {when}")
            finally:
                stop.child, stop.deaf = None, True
                await self._put_back(child, well)
                stop.deaf = False

    def _request(self, task: TaskFunction, claim: Claim) -> Message:
        return {
            "module": task.function.__module__,
            "qualname": task.function.__qualname__,
            "imports": task.child_imports,
            "takes_context": task.takes_context,
            "job": msgspec.to_builtins(claim.job),
            "deadline": msgspec.to_builtins(claim.deadline),
            "node": str(claim.node),
            "worker_id": self._worker_id(),
            "settings": self._settings,
            "result_bytes": self._limits.result_bytes,
            "error_chars": self._limits.error_chars,
        }

    async def _begin(self, child: ChildHandle, request: Message) -> Message:
        """Send the request. Return the child's first message: it found the handler, or failed."""
        limit = asyncio.timeout(Tuning.child_load_seconds)
        try:
            async with limit:
                await child.send(request)
                return await child.receive(self._message_bytes)
        except TimeoutError:
            module = request["module"]
            raise Gone(
                f"took longer than {Tuning.child_load_seconds:g} s to import {module}"
            ) from None

    async def _converse(self, child: ChildHandle, claim: Claim, message: Message) -> Outcome:
        """Handle the child's messages until its outcome, within the job's timeout."""
        limit = asyncio.timeout(claim.job.timeout)
        try:
            async with limit:
                while message.get("kind") != "done":
                    if message.get("kind") == "progress":
                        await child.send(await self._answer_progress(claim, message))
                    elif message.get("kind") == "completed":
                        claim.completed_elsewhere = True
                        claim.completed_with = message["result"]
                    message = await child.receive(self._message_bytes)
        except TimeoutError:
            if limit.expired():
                raise timed_out(claim) from None
            raise
        return _outcome_of(message)

    async def _answer_progress(self, claim: Claim, message: Message) -> Message:
        job = claim.job
        try:
            answer = await self._progress(
                claim.node, job.id, job.claim_token, message["share"], message["note"]
            )
        except Exception as error:  # raised in the handler
            if isinstance(error, errors.LeaseworkError):
                return {"error": type(error).__name__, "text": error.what}
            return {"error": "Unavailable", "text": describe(error, self._limits.error_chars).error}
        if answer:
            claim.end("cancel")
        return {"answer": answer}

    # -- children --------------------------------------------------------------------------------
    def _take(self) -> ChildHandle | None:
        """Take the child that became idle last, so that surplus children become old and end."""
        while self._idle:
            child = self._idle.pop()
            if not child.ended.done():
                return child
            child.hang_up()
        return None

    async def _put_back(self, child: ChildHandle, well: bool) -> None:
        """Keep the child for the next job, dismiss it, or kill it if it is not ``well``."""
        try:
            if not well:
                await child.end()
            elif self._closed or child.fenced or child.jobs >= Tuning.jobs_per_child:
                self._dismiss(child)
            else:
                child.idle_since = self._env.boot_now()
                self._idle.append(child)
                self._time_trim(Tuning.child_idle_seconds)
        finally:
            del self._busy[child]

    def _dismiss(self, child: ChildHandle) -> None:
        task = own_tasks.start(child.end(Tuning.child_leave_seconds))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _time_trim(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._trim)

    def _trim(self) -> None:
        """Dismiss the children that were idle for too long."""
        self._timer = None
        old = self._env.boot_now() - Tuning.child_idle_seconds
        for child in [child for child in self._idle if child.idle_since <= old]:
            self._idle.remove(child)
            self._dismiss(child)
        if self._idle:  # the first is the oldest
            self._time_trim(max(self._idle[0].idle_since - old, 0.01))


def _outcome_of(message: Message) -> Outcome:
    match message.get("outcome"):
        case ["complete", str() | None as result]:
            return Complete(result)
        case ["fail", str() as text, str() | None as traceback]:
            return Fail(text, traceback)
        case ["snooze", int() | float() as seconds]:
            return Snooze(seconds)
        case ["cancel", str() as reason]:
            return Cancel(reason)
        case ["discard", str() as reason]:
            return Discard(reason)
        case other:
            raise Gone(f"sent an invalid outcome: {errors.shorten(other)}")
