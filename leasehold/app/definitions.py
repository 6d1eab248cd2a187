"""What the application's code defines: tasks and schedules."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from leasehold.config import Settings, check_text
from leasehold.duties.syncer import Planned
from leasehold.errors import BadDeadline, BadJob, BadSchedule, ConfigError, suggest
from leasehold.jobs.client import Job
from leasehold.jobs.context import Context, SyncContext
from leasehold.jobs.process import check_importable
from leasehold.jobs.tasks import (
    Registry,
    TaskFunction,
    TaskGiven,
    TaskOptions,
    task_name,
)
from leasehold.model.backoff import Backoff
from leasehold.model.deadline import Level, as_levels
from leasehold.model.job import JOB_OPTIONS, JobGiven, JobOptions, JobRequest
from leasehold.model.missed import Missed
from leasehold.model.schedule import Spec, cron
from leasehold.model.schedule import every as every_spec
from leasehold.model.schedule import once as once_spec

if TYPE_CHECKING:
    from leasehold.app.home import Home

LONGEST_DEFAULT_GRACE = 5.0
CLAIMS = ("rows", "advisory")
_SOME_MOMENT = datetime(2024, 1, 1, tzinfo=UTC)


P = ParamSpec("P")
R = TypeVar("R")
AsyncWithContext = Callable[Concatenate[Context, P], Awaitable[R]]
PlainWithContext = Callable[Concatenate[SyncContext, P], R]
_NOT_GIVEN: Any = object()


class Task(Generic[P, R]):
    """A function that jobs can name. Call it to run it here and now, as if undecorated.

    ``P`` are the handler's arguments without ``ctx``, ``R`` is what it returns.
    """

    def __init__(
        self, app: Home, function: TaskFunction, options: JobOptions | None = None, on: Any = None
    ) -> None:
        self.app = app
        self.function = function
        self._options = options or function.job_options
        self._on = on
        self.__doc__ = function.function.__doc__
        self.__module__ = function.function.__module__
        self.__qualname__ = function.function.__qualname__

    @property
    def name(self) -> str:
        return self.function.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function.function(*args, **kwargs)

    def using(self, *, on: Any = _NOT_GIVEN, **options: Unpack[JobGiven]) -> Task[P, R]:
        """This task with options for its next jobs::

            await send.using(unique="u-42", run_in=60, on=session).enqueue(user_id=42)

        Those that ``@app.task`` takes as well replace the task's. ``run_at`` is a moment with a
        time zone, ``run_in`` is in seconds. ``unique`` is a key that one job holds at a time,
        until it has finished or for ``unique_for`` seconds; ``on_conflict`` says what an enqueue
        does when another job holds it. ``on`` as for :meth:`App.enqueue`.

        Raises BadJob, BadDeadline, UnknownTask.
        """
        on = self._on if on is _NOT_GIVEN else on
        given = self.function.with_options(self._options, dict(options))
        return Task(self.app, self.function, given, on)

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> JobRequest:
        """A job to be enqueued, for :meth:`App.enqueue` and ``enqueue_many``: the arguments are
        the handler's, without ``ctx``. Raises BadJob, BadPayload."""
        if self._on is not None:
            raise BadJob(
                "using(on=…) is for enqueue()",
                do="Give the connection to App.enqueue(job, on=…) or App.enqueue_many(jobs, on=…)",
            )
        return self._job(args, kwargs)

    def _job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobRequest:
        return self.function.job(args, kwargs, self._options)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Job[R]]:
        """Enqueue one job: the arguments are the handler's, without ``ctx``. Raises BadJob,
        BadPayload, Unavailable; ConfigError without a running event loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigError(
                f"{self.name}: enqueue() needs a running event loop, and there is none here",
                do="Call app.sync.enqueue(task.job(…)), or await enqueue() inside `async def`",
            ) from None
        return self.app.enqueue(self._job(args, kwargs), on=self._on)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class Registers(Protocol):
    """What ``@app.task(...)`` does with a function."""

    @overload
    def __call__(self, function: AsyncWithContext[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: PlainWithContext[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class Schedules(Protocol):
    """What ``@app.periodic(...)`` and its like do with a task or a function."""

    @overload
    def __call__(self, target: Task[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, target: AsyncWithContext[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, target: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, target: PlainWithContext[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, target: Callable[P, R], /) -> Task[P, R]: ...


class Definitions:
    """The part of :class:`App` with which code says what there is to run."""

    settings: Settings
    registry: Registry
    _planned: dict[str, Planned]
    _once: dict[str, Task[Any, Any]]
    _claims: dict[str, str]
    _taking_part: list[tuple[int, bool]]

    def _check_in_time(self, what: str, *, for_jobs: bool = False) -> None:
        """A node reads the definitions when it is made. Raises ConfigError for a later one, which
        it would ignore. ``for_jobs``: only nodes that run jobs need it."""
        for pid, executes in self._taking_part:
            if pid == os.getpid() and (executes or not for_jobs):
                raise ConfigError(
                    f"{what} comes too late: a node of this application runs in this process, and "
                    "has read its tasks and schedules already",
                    do="Define it before app.node(), app.lifespan or the worker starts: import its "
                    "module at the top of the application",
                )

    # -- tasks -----------------------------------------------------------------------------------
    @overload
    def task(self, function: AsyncWithContext[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...

    @overload
    def task(self, function: PlainWithContext[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        **given: Unpack[TaskGiven],
    ) -> Registers: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **given: Any,
    ) -> Any:
        """Register a function: ``async def`` runs in the loop, ``def`` in a thread, either in a
        process that can be killed with ``executor="process"``. A first parameter named ``ctx``
        gets the :class:`Context`. ``given``: the fields of ``TaskOptions``; ``deadline`` may be a
        :class:`Deadline` or a list of several levels. Without ``history`` nothing is kept of a
        job that completed, and an enqueue whose answer is lost raises Unavailable: to repeat it
        could run the job twice.

        Raises ConfigError for an unknown option; DuplicateTask, BadJob, BadDeadline or UnknownTask
        for options that do not fit.
        """
        known = [*TaskOptions.__dataclass_fields__, "name"]
        for wrong in given.keys() - set(known):
            raise ConfigError(f"task has no option {wrong!r}", do=suggest(wrong, known))
        backoff = given.pop("backoff", None)
        if not isinstance(backoff, Backoff | None):
            raise BadJob("backoff must be a Backoff", got=backoff, do="Backoff(base=2, longest=60)")
        levels = self._without_moment(given.pop("deadline", None), "a task")
        options = TaskOptions(**given, backoff=backoff or Backoff(), deadline=levels)

        def register(function: Callable[..., Any]) -> Task[Any, Any]:
            if not callable(function):
                raise BadJob("a task is a function", got=function)
            if isinstance(function, Task):
                raise BadJob(
                    "@app.task stands above a decorator that has made a task already",
                    got=function.name,
                    do="Write @app.task(…) right above the function, and @app.periodic(…), "
                    "@app.every(…), @app.once(…) above that; without options it can be left out",
                )
            full_name = task_name(function) if name is None else name
            check_text("a task's name", full_name, self.settings.limits.text_chars)
            # who only enqueues may import a task when it is needed
            self._check_in_time(f"the task {full_name!r}", for_jobs=True)
            if options.executor == "process":
                check_importable(function)
            return Task(cast("Home", self), self.registry.add(full_name, function, options))

        return register(function) if function is not None else register

    # -- queues ----------------------------------------------------------------------------------
    def queue(self, name: str, *, claim: str) -> None:
        """How this application's workers claim the jobs of a queue: ``rows`` (by row locks that
        skip locked ones: the default) or ``advisory`` (candidates, try-lock, a second look).
        Workers that do the one and workers that do the other share a queue. Raises ConfigError.
        """
        check_text("a queue's name", name, self.settings.limits.text_chars)
        if claim not in CLAIMS:
            raise ConfigError(f"no claim is named {claim!r}", do=suggest(str(claim), CLAIMS))
        self._check_in_time(f"queue({name!r})", for_jobs=True)
        self._claims[name] = claim

    # -- schedules -------------------------------------------------------------------------------
    def periodic(self, expression: str, *, timezone: str = "UTC", **options: Any) -> Schedules:
        """Run a task by a cron expression (Debian's rules, also when the clocks change).

        ``options``: ``name`` (of the schedule; default the task's), ``missed`` = ``latest``,
        ``skip`` or ``all``, ``grace_seconds`` (a tick at most so late is not missed; default half
        the interval, at most 5), ``arguments`` (a dict), and options of the job. Raises
        BadSchedule.
        """
        return self._scheduled(cron(expression, timezone), options)

    def every(self, *, seconds: float, anchor: datetime | None = None, **options: Any) -> Schedules:
        """Run a task every ``seconds``, counted from ``anchor`` (default: the epoch, so that all
        processes agree). ``options`` as for :meth:`periodic`."""
        return self._scheduled(every_spec(seconds=seconds, anchor=anchor), options)

    def once(self, *, at: datetime, **options: Any) -> Schedules:
        """Run a task at one moment. ``options`` as for :meth:`periodic`."""
        return self._scheduled(once_spec(at=at), options)

    def once_per_deploy(self, key: str) -> Schedules:
        """Run a task once for each release of the application, whichever process comes first.

        The release is ``App(release=…)`` or ``LEASEHOLD_RELEASE``: a version, an image's digest,
        a commit. Raises ConfigError without one. Only a process of that release runs the job: its
        task is named ``task@release``, which no other release knows.
        """
        check_text("key", key, self.settings.limits.text_chars)
        if not self.settings.release:
            raise ConfigError(
                "once_per_deploy needs to know the release",
                do="Set LEASEHOLD_RELEASE or App(release=…) to the version that is deployed",
            )
        if key in self._once:
            raise ConfigError(f"once_per_deploy({key!r}) is there twice")

        def register(target: Any) -> Task[Any, Any]:
            self._check_in_time(f"once_per_deploy({key!r})")
            task = self._as_task(target)
            task.job()  # it gets no arguments: refuse here, not at the deployment
            if any(level.since == "tick" for level in task.function.options.deadline):
                raise BadDeadline(
                    f"the deadline of {task.name!r} counts since tick: once_per_deploy has none",
                    do="Count it since scheduled",
                )
            self._once[key] = self._of_release(task)
            return task

        return register

    def _of_release(self, task: Task[Any, Any]) -> Task[Any, Any]:
        """The same task under a name that only this release knows."""
        name = f"{task.name}@{self.settings.release}"
        check_text("task@release", name, self.settings.limits.text_chars)
        known = self.registry.find(name) or self.registry.add(
            name, task.function.function, task.function.options
        )
        return Task(cast("Home", self), known)

    def _scheduled(self, spec: Spec, options: dict[str, Any]) -> Schedules:
        allowed = ("name", "missed", "grace_seconds", "arguments", *JOB_OPTIONS)
        refused = ("run_at", "run_in", "unique", "unique_for", "on_conflict")
        for wrong in options:
            if wrong not in allowed or wrong in refused:
                raise BadSchedule(
                    f"a schedule has no option {wrong!r}",
                    do=suggest(wrong, set(allowed) - set(refused)),
                )
        missed = Missed.parse(options.pop("missed", Missed.LATEST))
        grace = options.pop("grace_seconds", _default_grace(spec))
        if isinstance(grace, bool) or not isinstance(grace, (int, float)) or not 0 <= grace < 1e9:
            raise BadSchedule("grace_seconds must be a number of seconds", got=grace)

        self._without_moment(options.get("deadline"), "a schedule")
        if not isinstance(options.get("arguments"), dict | None):
            raise BadSchedule("arguments must be a dict", got=options["arguments"])

        def register(target: Any) -> Task[Any, Any]:
            self._check_in_time("a schedule")
            task = self._as_task(target)
            name = options.get("name") or task.name
            check_text("a schedule's name", name, self.settings.limits.text_chars)
            if name in self._planned:
                raise BadSchedule(
                    f"two schedules are named {name!r}", do="Give one of them another name="
                )
            job_options = {k: v for k, v in options.items() if k not in ("name", "arguments")}
            job = task.using(**job_options).job(**options.get("arguments") or {})
            self._planned[name] = Planned(name, spec, job, missed, float(grace))
            return task

        return register

    def _without_moment(self, given: object, owner: str) -> tuple[Level, ...]:
        """Levels that can hold for more than one job."""
        for one in as_levels(given):
            if one.at is not None:
                raise BadDeadline(
                    f"the deadline of {owner} cannot have a fixed time: it holds for each job",
                    got=one.at,
                    do="Count from something, or give it to one job: task.using(deadline=…)",
                )
        return self.registry.levels(given)

    def _as_task(self, target: Any) -> Task[Any, Any]:
        if isinstance(target, Task):
            return target
        task: Task[Any, Any] = self.task(target)
        return task


def _default_grace(spec: Spec) -> float:
    """Half of the schedule's interval, at most 5 s: a short hiccup makes no tick a missed one,
    and ``latest`` never fires a burst after an outage."""
    first = spec.next_after(_SOME_MOMENT)
    second = spec.next_after(first) if first else None
    if first is None or second is None:
        return LONGEST_DEFAULT_GRACE
    return min(LONGEST_DEFAULT_GRACE, (second - first).total_seconds() / 2)
