"""What an application's code defines: tasks, and the options of schedules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from msgspec import Struct

from leasework.app.home import Home
from leasework.errors import BadDeadline, BadJob, BadSchedule, suggest
from leasework.jobs.client import Job
from leasework.jobs.context import Context, SyncContext
from leasework.jobs.tasks import Registry, TaskFunction, Upcast
from leasework.model.deadline import Promise
from leasework.model.job import JOB_OPTIONS, JobGiven, JobOptions, JobRequest, SharedGiven
from leasework.model.limits import Throttled
from leasework.model.missed import Missed, default_grace
from leasework.model.moments import Duration, in_seconds, is_number
from leasework.model.outcome import Cancel, Discard, Snooze
from leasework.model.schedule import Spec

_OWN = ("name", "missed", "grace_seconds", "arguments")
_REFUSED = ("run_at", "run_in", "unique", "unique_for", "on_conflict")


P = ParamSpec("P")
R = TypeVar("R")
U = TypeVar("U", bound=Upcast)
NoResult = Snooze | Throttled | Cancel | Discard
"""What a handler may return instead of its result, which is no part of its task's type."""
Async = Callable[P, Awaitable[R | NoResult]]
AsyncWithContext = Callable[Concatenate[Context, P], Awaitable[R | NoResult]]
Plain = Callable[P, R | NoResult]
PlainWithContext = Callable[Concatenate[SyncContext, P], R | NoResult]
_NOT_GIVEN: Any = object()


class Task(Generic[P, R]):
    """A registered function. Calling it runs the function directly, without a job.

    ``P`` is the handler's parameters without ``ctx``. ``R`` is its result.
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
        """The task's name in the database: ``module.function``, or the ``name`` it was given."""
        return self.function.name

    @overload
    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.function.function(*args, **kwargs)

    def using(self, *, on: Any = _NOT_GIVEN, **options: Unpack[JobGiven]) -> Task[P, R]:
        """Return this task with other options for its jobs::

            await send.using(unique="u-42", run_in=60, on=session).enqueue(user_id=42)

        The options of ``@app.task`` that a job can have replace those of the task. In addition:

        - ``run_at``, a datetime with a time zone, or ``run_in``, in seconds: when the job is due.
        - ``unique``: a key that one job holds at a time, until it has finished or for
          ``unique_for`` seconds.
        - ``on_conflict``: what to do if another job holds the key: ``return`` that job (default),
          ``raise`` UniqueConflict, or ``replace`` the arguments and time of a waiting job.
        - ``on``: see :meth:`App.enqueue`.

        Raises BadJob, BadDeadline, or UnknownTask.
        """
        on = self._on if on is _NOT_GIVEN else on
        given = self.function.with_options(self._options, dict(options))
        return Task(self.app, self.function, given, on)

    def standing_options(self, owner: str) -> JobOptions:
        """Its options, for jobs that ``owner`` enqueues later. Raises BadJob if one of them is for
        a single job."""
        usual = self.function.job_options
        once = [n for n in _REFUSED if getattr(self._options, n) != getattr(usual, n)]
        once += ["on"] if self._on is not None else []
        if once:
            raise BadJob(
                f"{owner} cannot use a task with {once[0]}=…, which is for one job",
                do=f"Give it the task without using({once[0]}=…)",
            )
        refuse_moment(self._options.deadline, owner)
        return self._options

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> JobRequest[R]:
        """Return a job for :meth:`App.enqueue` or :meth:`App.enqueue_many`, which insert it::

            await app.enqueue_many([send.job(user_id=1), send.job(user_id=2)])

        The arguments are the handler's, without ``ctx``. Raises BadJob or BadPayload.
        """
        if self._on is not None:
            raise BadJob(
                "using(on=…) works only with enqueue()",
                do="Pass the connection to App.enqueue(job, on=…) or App.enqueue_many(jobs, on=…)",
            )
        return self.function.job(args, kwargs, self._options)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Job[R]]:
        """Enqueue one job with the handler's arguments, without ``ctx``::

            job = await send.enqueue(user_id=42)
            result = await job.wait(timeout=10)

        Raises BadJob, BadPayload, Unavailable, or ConfigError if no event loop is running.
        """
        job: JobRequest[R] = self.function.job(args, kwargs, self._options)
        return self.app.enqueue(job, on=self._on)

    def upcast(self, version: int, /) -> Callable[[U], U]:
        """Register what brings arguments of ``version`` to the next version, for jobs that an
        earlier release enqueued::

            @app.task(version=2)
            async def send(user_id: int, language: str) -> None: ...

            @send.upcast(1)
            def with_language(arguments: dict[str, Any]) -> dict[str, Any]:
                return {**arguments, "language": "en"}

        It gets and returns JSON values by name. Raises BadJob for a version that is not below the
        task's, or that has an upcast already, and ConfigError after a node has started.
        """

        def register(function: U) -> U:
            self.app.check_in_time(f"the upcast of {self.name!r}", for_jobs=True)
            self.function.add_upcast(version, function)
            return function

        return register

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class Registers(Protocol):
    """The type of the decorator that ``@app.task(...)`` returns."""

    @overload
    def __call__(self, function: AsyncWithContext[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Async[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: PlainWithContext[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Plain[P, R], /) -> Task[P, R]: ...


class Schedules(Protocol):
    """The type of the decorators that ``@app.periodic(...)``, ``every`` and ``once`` return."""

    @overload
    def __call__(self, target: Task[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, target: AsyncWithContext[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, target: Async[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, target: PlainWithContext[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, target: Plain[P, R], /) -> Task[P, R]: ...


class StoredGiven(SharedGiven, total=False):
    """The options of ``app.schedules.put``, apart from the times."""

    missed: Literal["latest", "skip", "all"]
    grace_seconds: Duration
    arguments: dict[str, Any] | None


class ScheduleGiven(StoredGiven, total=False):
    """The options of ``@app.periodic``, ``every`` and ``once``, apart from the times."""

    name: str | None


class ScheduleOptions(Struct, frozen=True):
    """Those options, checked and with their defaults."""

    name: str | None
    missed: Missed
    grace: float
    arguments: dict[str, Any]
    job: dict[str, Any]
    """The options of the schedule's jobs."""

    @classmethod
    def read(cls, spec: Spec, given: dict[str, Any]) -> Self:
        """Check the given options. Raises BadSchedule."""
        allowed = {*_OWN, *JOB_OPTIONS} - {*_REFUSED}
        for wrong in given:
            if wrong not in allowed:
                raise BadSchedule(f"a schedule has no option {wrong!r}", do=suggest(wrong, allowed))
        missed = Missed.parse(given.get("missed", Missed.LATEST))
        grace = in_seconds(given.get("grace_seconds", default_grace(spec)))
        if not is_number(grace, 0, 1e9):
            raise BadSchedule("grace_seconds must be seconds or a timedelta", got=grace)
        if missed is Missed.SKIP and grace < 0.1:
            raise BadSchedule(
                "with missed='skip', grace_seconds must be at least 0.1, because a tick always "
                "fires a little late",
                got=grace,
            )
        arguments = given.get("arguments")
        if not isinstance(arguments, dict | None):
            raise BadSchedule("arguments must be a dict, by name", got=arguments)
        job = {name: value for name, value in given.items() if name not in _OWN}
        return cls(given.get("name"), missed, float(grace), arguments or {}, job)


def without_moment(registry: Registry, given: object, owner: str) -> Promise | None:
    """Return the deadline of more than one job. Raises BadDeadline if it has a fixed time."""
    promise = registry.promise(given)
    refuse_moment(promise, owner)
    return promise


def refuse_moment(promise: Promise | None, owner: str) -> None:
    """Raises BadDeadline if the deadline has a fixed time."""
    if promise and promise.at is not None:
        raise BadDeadline(
            f"the deadline of {owner} cannot have a fixed time, because every job gets it",
            got=promise.at,
            do="Use an interval, or set it for one job: task.using(deadline=…)",
        )
