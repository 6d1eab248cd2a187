"""Steps: what a handler has recorded under its claim, and how it suspends its job.

A handler that is resumed starts from the top. It finds its steps by their names.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from leasework import own_tasks
from leasework.env import Env
from leasework.errors import (
    BadJob,
    BadPayload,
    JobCancelled,
    JobFailed,
    LostClaim,
    ServerError,
    Unavailable,
    WaitTimeout,
    storable,
)
from leasework.jobs.running import Claim
from leasework.model.backoff import Backoff
from leasework.model.codec import Codec, opened, sealed
from leasework.model.job import JobRequest, Unreadable, decode, encode
from leasework.model.moments import Duration, checked_timeout, in_seconds, is_number
from leasework.model.outcome import StepItem, Suspend
from leasework.model.values import Values
from leasework.store.durable import StepView
from leasework.store.store import Store

T = TypeVar("T")
MOST_STEPS = 10_000
"""A job's steps are read at once when it resumes."""
MOST_CHILDREN = 10_000
NAME_CHARS = 200
LONGEST_WAIT = 100 * 366 * 86400.0
_TOGETHER = 200
"""Steps in one statement."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_TURNS = 10
"""Turns of the event loop in which what has just ended in a run may go on, before the run ends."""
_RETRY = Backoff(base=1.0, longest=60.0)
_INSIDE: ContextVar[str] = ContextVar("step", default="")
"""The name of the step whose function runs."""


_Waiting = tuple[Claim, StepItem, "asyncio.Future[bool]"]


class Suspended(BaseException):
    """Ends the run of a job that sleeps or waits; the job resumes later. It is no ``Exception``, so
    that ``except Exception`` lets it pass. Code that catches it must raise it again."""


class OnSteps(Protocol):
    async def record_step(self, connection: Any, node: UUID, item: StepItem) -> None:
        """Record a step in the user's transaction."""


class StepRecorder:
    """Records the steps of all jobs of a process: one that is alone at once, and the others
    together, as soon as the statement before them has ended. While the database is unavailable, it
    retries."""

    def __init__(self, store: Store, env: Env) -> None:
        self._store, self._env = store, env
        self._waiting: deque[_Waiting] = deque()
        self._writing = False

    async def record(self, claim: Claim, item: StepItem) -> None:
        """Raises LostClaim, and UsageError if the step cannot be stored."""
        recorded: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((claim, item, recorded))
        if not self._writing:
            self._writing = True
            own_tasks.start(self._write_all())
        if not await recorded:
            raise lost(claim)

    async def _write_all(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while self._waiting:
                node = self._waiting[0][0].node  # the claims of one identity are written together
                batch: list[_Waiting] = []
                while self._waiting and len(batch) < _TOGETHER and self._waiting[0][0].node is node:
                    batch.append(self._waiting.popleft())
                try:
                    await self._write(batch)
                    pause = _FIRST_PAUSE
                except (Unavailable, ServerError):
                    self._waiting.extendleft(reversed(batch))
                    await asyncio.sleep(self._env.jitter(pause, 0.25))
                    pause = min(pause * 2, _LONGEST_PAUSE)
        finally:
            self._writing = False

    async def _write(self, batch: list[_Waiting]) -> None:
        batch = [entry for entry in batch if not entry[2].done()]  # its run has ended
        if not batch:
            return
        items = sorted((item for _, item, _ in batch), key=attrgetter("job.int"))
        try:
            written = await self._store.record_steps(batch[0][0].node, items, self._env.due_now())
        except (Unavailable, ServerError):
            raise
        except Exception as error:  # one of them cannot be stored
            for entry in batch:
                if len(batch) > 1:
                    await self._write([entry])
                elif not entry[2].done():
                    entry[2].set_exception(error)
            return
        for _, item, recorded in batch:
            if not recorded.done():
                recorded.set_result((item.job, item.name) in written)


@dataclass(eq=False)
class StepTools:
    """What the steps of all runs in a process share."""

    store: Store
    recorder: StepRecorder
    on: OnSteps
    env: Env
    codec: Codec | None
    result_bytes: int
    payload_limit: int


class Steps:
    """The steps of one run. Its methods run in the event loop, those of a thread's handler too."""

    def __init__(self, claim: Claim, tools: StepTools) -> None:
        self._claim, self.tools = claim, tools
        self._mine = (claim.node, claim.job.id, claim.job.claim_token)
        self._known: dict[str, StepView] | None = None
        self._loading = asyncio.Lock()
        self._used: set[str] = set()
        self._under_way = 0
        self._one_ended = asyncio.Event()

    async def begin(self, name: str, key: object, kind: str) -> tuple[str, StepView | None]:
        """Return the step's full name, and what is recorded of it, unless it still waits. Raises
        BadJob, Suspended."""
        label = _label(name, key)
        if self._claim.completed_elsewhere:
            raise BadJob(
                f"ctx.{kind} was called after ctx.complete, which has ended the job",
                got=label,
                do="Call ctx.complete after the last step",
            )
        known = await self._load()
        if self._claim.suspend:
            raise Suspended
        if kind != "step" and (outer := _INSIDE.get()):
            raise BadJob(
                f"ctx.{kind} was called inside the step {outer!r}, which would begin again",
                got=label,
                do="Call it in the handler, between steps",
            )
        if label in self._used:
            form = f"{name!r}, …" if kind in {"step", "event"} else "…, name='other'"
            raise BadJob(
                f"the handler has two steps named {label!r}",
                do="Give each a name of its own, or in a loop a key: "
                f"ctx.{kind}({form}, key=number)",
            )
        self._used.add(label)
        found = known.get(label)
        if found and found.kind != kind:
            raise BadJob(
                f"the step {label!r} was recorded as {found.kind!r}, and is {kind!r} now",
                do="Give the new one another name",
            )
        if not found and len(self._used) > MOST_STEPS:
            raise BadJob(
                f"a job has at most {MOST_STEPS:,} steps",
                do="Let one step do more, or divide the work among several jobs with ctx.gather",
            )
        return label, None if found is None or found.open else found

    async def _load(self) -> dict[str, StepView]:
        async with self._loading:
            if self._known is None:
                steps = await self._persistent(lambda: self.tools.store.steps(self._claim.job.id))
                self._known = {step.name: step for step in steps}
        return self._known

    async def run(
        self,
        label: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        timeout: Duration | None,
        retry: int,
    ) -> tuple[Any, float]:
        """Run a step's function. Return what it returns, and how long it took."""
        limit, retry = checked_timeout(timeout), checked_retry(retry)
        began = self.tools.env.boot_now()
        with self._busy(), inside(label):
            for failures in range(1, retry + 2):
                try:
                    async with asyncio.timeout(limit):
                        returned = function(*args, **kwargs)
                        if inspect.isawaitable(returned):
                            returned = await returned
                    break
                except Exception:
                    if failures > retry:
                        raise
                    await asyncio.sleep(self.pause(failures))
        return returned, self.tools.env.boot_now() - began

    def pause(self, failures: int) -> float:
        """Seconds before the next try of a step."""
        return _RETRY.seconds(failures, self.tools.env.rng.random())

    async def record(
        self, label: str, values: Values | None, returned: Any, seconds: float, on: Any
    ) -> Any:
        """Record a step, and return its result as a later run would read it."""
        what, tools = f"the result of step {label!r}", self.tools
        written = returned if values is None else values.write_result(returned)
        text = encode(what, written, tools.result_bytes)
        stored = sealed(tools.codec, what, text, tools.result_bytes)
        _, job, token = self._mine
        item = StepItem(job, token, label, stored, max(seconds, 0.0))
        with self._busy():
            if on is not None:
                await tools.on.record_step(on, self._claim.node, item)
            else:
                await tools.recorder.record(self._claim, item)
        return self.read(values, decode(stored))

    def read(self, values: Values | None, result: Any) -> Any:
        value = opened(self.tools.codec, result)
        return value if values is None else values.read_result(value)

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """While something of this run is under way, no suspension ends the run."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._one_ended.set()

    async def sleep(self, seconds: float, name: str, key: object) -> None:
        if not is_number(seconds, 0, LONGEST_WAIT):
            raise BadJob("ctx.sleep takes a time from 0 to 100 years", got=seconds)
        label, found = await self.begin(name, key, "sleep")
        if found is None:
            await self._wait(label, "sleep", None, seconds)

    async def event(self, name: str, key: object, timeout: Duration | None) -> Any:
        seconds = in_seconds(timeout)
        if seconds is not None and not is_number(seconds, 0, LONGEST_WAIT):
            raise BadJob("ctx.event takes a timeout from 0 to 100 years, or None", got=timeout)
        label, found = await self.begin(name, key, "event")
        result = found.result if found else await self._wait(label, "event", name, seconds)
        if result is None:
            raise WaitTimeout(f"no signal {name!r} came in time", got=timeout)
        if isinstance(result, Unreadable):
            raise BadPayload(f"the signal {name!r} cannot be read: {result.why}")
        return opened(self.tools.codec, result["payload"])

    async def _wait(self, label: str, kind: str, signal: str | None, seconds: float | None) -> Any:
        tools = self.tools
        with self._busy():
            state = await self._persistent(
                lambda: tools.store.wait_in_step(
                    *self._mine, label, kind, signal, seconds, tools.env.due_now()
                )
            )
        if state is None:
            raise lost(self._claim)
        if state.open:
            await self._suspend(kind, signal and f"event:{signal}", state.still)
        return state.result

    async def _suspend(self, kind: str, waits: str | None, seconds: float | None) -> None:
        """Suspend the job as soon as nothing else of this run is under way. If it waits for several
        things at once, it resumes for the last of them, or when the time of one is over."""
        asked = self.tools.env.boot_now()
        turns = 0
        while self._under_way or turns < _TURNS:
            turns = 0 if self._under_way else turns + 1
            if self._under_way:
                self._one_ended.clear()
                await self._one_ended.wait()
            await asyncio.sleep(0)
        left = LONGEST_WAIT if seconds is None else seconds
        left = max(0.0, left - (self.tools.env.boot_now() - asked))
        if self._claim.suspend:
            left = min(left, self._claim.suspend.seconds)
        self._claim.suspend = Suspend(kind, waits, left)
        raise Suspended

    async def gather(
        self, jobs: Sequence[JobRequest[Any]], name: str, key: object, return_exceptions: bool
    ) -> list[Any]:
        label, found = await self.begin(name, key, "gather")
        if found:
            return self._results(jobs, found.result, return_exceptions)
        if not jobs:
            return []
        tools = self.tools
        with self._busy():
            state = await self._make(label, "gather", jobs, tools.env.new_id())
            rows = state.result
            if state.open and state.ended:
                rows = await self._persistent(
                    lambda: tools.store.gathered(*self._mine, label, tools.env.due_now())
                )
        if rows is None:
            raise lost(self._claim)
        if state.open and (not state.ended or rows is False):  # False: one of them runs again
            await self._suspend("gather", f"gather:{state.result}", None)
        return self._results(jobs, rows, return_exceptions)

    def _results(
        self, jobs: Sequence[JobRequest[Any]], rows: list[list[Any]], return_exceptions: bool
    ) -> list[Any]:
        if len(rows) != len(jobs):
            raise JobFailed(
                f"of {len(jobs)} jobs of ctx.gather, {len(rows)} have a result",
                do="The others run again, or the handler makes other jobs than in its first run: "
                "leasework jobs retry --from repeats a step",
            )
        results: list[Any] = []
        for job, (job_id, state, result, error) in zip(jobs, rows, strict=True):
            if state != "completed":
                failed = JobFailed(f"job {job_id} was {state}", got=error or "no reason")
                if not return_exceptions:
                    raise failed
                results.append(failed)
                continue
            value, read = opened(self.tools.codec, result), job.options.read_result
            results.append(read(value) if read else value)
        return results

    async def spawn(self, job: JobRequest[Any], name: str, key: object) -> UUID:
        label, found = await self.begin(name, key, "spawn")
        if found:
            return UUID(found.result)
        new_id = self.tools.env.new_id()  # of the batch, and of its only job
        return UUID((await self._make(label, "spawn", [job], new_id)).result)

    async def _make(
        self, label: str, kind: str, jobs: Sequence[JobRequest[Any]], batch: UUID
    ) -> Any:
        tools = self.tools
        if len(jobs) > MOST_CHILDREN:
            raise BadJob(
                f"ctx.{kind} takes at most {MOST_CHILDREN:,} jobs",
                got=len(jobs),
                do="Divide them among several jobs, or use app.batch",
            )
        for job in jobs:
            if not isinstance(job, JobRequest):
                raise BadJob("not a job", got=job, do="Make one with task.job(...)")
            if job.options.unique or not job.options.history:
                raise BadJob(
                    f"a job of ctx.{kind} has neither a unique key nor history=False",
                    got=job.options.task,
                    do="Its step already makes it once, and needs its result",
                )
        ids = [batch] if kind == "spawn" else [tools.env.new_id() for _ in jobs]
        requests = [
            job.as_request(job_id, tools.payload_limit)
            for job_id, job in zip(ids, jobs, strict=True)
        ]
        state = await self._persistent(
            lambda: tools.store.gather(
                *self._mine, label, kind, batch, requests, tools.env.due_now()
            )
        )
        if state is None:
            record = await self.tools.store.get(self._claim.job.id)
            if record and record.cancel_requested and self._claim.stop_reason != "lost":
                raise JobCancelled("the job is being cancelled, and makes no jobs", got=label)
            raise lost(self._claim)
        return state

    async def _persistent(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until the database answers. Each of them can be repeated."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return await call()
            except (Unavailable, ServerError):
                if self._claim.stop_reason:
                    raise
                await asyncio.sleep(self.tools.env.jitter(pause, 0.25))
                pause = min(pause * 2, _LONGEST_PAUSE)


def checked_retry(retry: object) -> int:
    if not is_number(retry, 0, 1000, whole=True):
        raise BadJob("retry is a number of further tries from 0 to 1000", got=retry)
    assert isinstance(retry, int)
    return retry


def lost(claim: Claim) -> LostClaim:
    return LostClaim(
        "the job was taken away",
        got=str(claim.job.id),
        do="Return from the handler, and write nothing more",
    )


def _label(name: object, key: object) -> str:
    label = name if key is None else f"{name}[{key}]"
    good = isinstance(name, str) and name and isinstance(label, str) and storable(label) == label
    if not good or len(str(label)) > NAME_CHARS:
        raise BadJob(
            f"a step has a name, with its key of 1 to {NAME_CHARS} characters",
            got=label,
            do="ctx.step('charge', charge, order_id)",
        )
    return str(label)


@contextmanager
def inside(label: str) -> Iterator[None]:
    """While a step's function runs, nothing in it can suspend the job."""
    outer = _INSIDE.set(label)
    try:
        yield
    finally:
        _INSIDE.reset(outer)


_values: WeakKeyDictionary[Any, Values] = WeakKeyDictionary()
"""Weak, because a handler may make a step's function in each run, around large objects."""


def values_of(function: Callable[..., Any]) -> Values | None:
    """What converts the results of a step's function by its annotation. None: it has none. Raises
    BadJob for an annotation that cannot be converted, and for what is not a function."""
    if not callable(function):
        raise BadJob(
            "ctx.step takes a name, a function, and the function's arguments",
            got=f"a {type(function).__name__} for the function",
            do="Do not call the function: ctx.step('load', load, 1), not ctx.step('load', load(1))",
        )
    function = getattr(function, "__func__", function)  # a method is another object in each call
    try:
        if function not in _values:
            _values[function] = Values(function, ())
        return _values[function]
    except (TypeError, ValueError, AttributeError):  # a builtin, or another callable
        return None
