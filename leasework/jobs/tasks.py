"""Tasks: functions that jobs call by name, with the options of their jobs."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from leasework.config import Limits
from leasework.errors import (
    BadDeadline,
    BadJob,
    BadPayload,
    DuplicateTask,
    LeaseworkError,
    UnknownTask,
    suggest,
)
from leasework.jobs.context import Context
from leasework.model.backoff import Backoff
from leasework.model.codec import ENCODED, Codec, sealed
from leasework.model.deadline import Callback, Deadline, Promise
from leasework.model.job import (
    JOB_OPTIONS,
    JobOptions,
    JobRequest,
    OnConflict,
    SharedGiven,
    SharedOptions,
    encode,
    needs,
)
from leasework.model.limits import FromArguments, Limit, tenant_of
from leasework.model.moments import is_number
from leasework.model.outcome import OUTCOMES
from leasework.model.values import Values

Executor = Literal["async", "thread", "process"]
"""Where a handler runs: in the event loop, in a thread or in a child process."""
Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the arguments of one version as JSON values, and returns those of the next."""

_USUAL = 100
_NOT_OF_CALLBACKS = ("task", "history", "deadline", "on_failure", "on_success")


class TaskGiven(SharedGiven, total=False):
    """What a caller may give for :class:`TaskOptions`."""

    backoff: Backoff | None
    executor: Executor | None
    version: int
    keep_log: bool


@dataclass(frozen=True, kw_only=True)
class TaskOptions(SharedOptions):
    """How a task's jobs run, and the default options of those jobs."""

    backoff: Backoff = field(default_factory=Backoff)
    executor: Executor | None = None
    """None: ``async`` for a coroutine function, ``thread`` for a plain one."""
    version: int = 1
    """The version of the arguments. Raise it when they change, and give an upcast from the last
    one."""
    keep_log: bool = False
    """Keep the last 50 lines that a handler logs, also of attempts that complete."""


class TaskFunction:
    """A registered function, which makes its jobs."""

    def __init__(
        self, name: str, function: Callable[..., Any], options: TaskOptions, registry: Registry
    ) -> None:
        _check_function(name, function)
        self._registry = registry
        self.name = name
        self._label = f"arguments of {name}"
        self.function = function
        self.handler = registry.as_handler(function)
        """What a job calls: the function, and what an integration does around it."""
        self.options = options
        self._is_async = inspect.iscoroutinefunction(function)
        parameters = list(inspect.signature(function).parameters.values())
        self.takes_context = bool(parameters) and _is_context(parameters[0])
        if self.takes_context and parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
            raise BadJob(
                f"task {name} takes ctx only by name", do="Remove the * before it in the handler"
            )
        self._signature = inspect.Signature(parameters[1:] if self.takes_context else parameters)
        self.executor = self._executor()
        # check the defaults now, not at the first job
        shared = {option.name: getattr(options, option.name) for option in fields(SharedOptions)}
        self.values = values_of(function, self.takes_context)
        self.job_options = JobOptions(
            name, version=options.version, read_result=self.values.read_result, **shared
        )
        self.check_names(self.job_options.limits)
        self.version = options.version
        self.upcasts: dict[int, Upcast] = {}
        """By the version of the arguments that each takes; it returns those of the next."""
        own = self._signature.parameters.values()
        self._positional = [p.name for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]
        self._nameless = [p.name for p in own if p.kind is p.POSITIONAL_ONLY]
        self._usual: set[tuple[str, ...]] = set()
        """Sets of argument names that are known to fit."""

    @property
    def child_imports(self) -> list[str]:
        """The modules that a child process imports before the handler's own: the one that makes a
        framework ready, and those that register middleware."""
        around = [f.__module__ for f in self._registry.middleware if f.__module__ != "__main__"]
        return [self._registry.first_import, *around] if self._registry.first_import else around

    def _executor(self) -> Executor:
        chosen = self.options.executor or ("async" if self._is_async else "thread")
        if chosen not in ("async", "thread", "process"):
            raise BadJob("executor must be async, thread or process", got=chosen)
        if chosen == "async" and not self._is_async:
            raise BadJob(
                f"task {self.name}: executor='async' needs a coroutine function",
                do="Write `async def`, or leave executor out",
            )
        if chosen == "thread" and self._is_async:
            raise BadJob(
                f"task {self.name}: a coroutine function cannot run in a thread",
                do="Write `def`, or leave executor out",
            )
        return chosen

    def with_options(self, options: JobOptions, given: dict[str, Any]) -> JobOptions:
        """Return ``options``, replaced where ``given`` has others. Raises BadJob."""
        for wrong in given.keys() - set(JOB_OPTIONS):
            raise BadJob(f"jobs have no option {wrong!r}", do=suggest(wrong, JOB_OPTIONS))
        if "on_conflict" in given:
            given["on_conflict"] = _conflict(given["on_conflict"])
        if "deadline" in given:
            given["deadline"] = self._registry.promise(given["deadline"])
        if "on_failure" in given:
            given["on_failure"] = self._registry.on_failure(given["on_failure"])
        made = replace(options, **given)
        self.check_names(made.limits)
        return made

    def job(
        self,
        arguments: tuple[Any, ...] = (),
        given: dict[str, Any] | None = None,
        options: JobOptions | None = None,
    ) -> JobRequest[Any]:
        """Make a job with the handler's arguments, by position and by name.

        Raises BadJob for arguments that do not fit, and BadPayload for arguments that are not JSON.
        """
        given = given or {}
        if arguments:
            given = self._by_name(arguments, given)
        names = tuple(given)
        if names not in self._usual:
            self._check_arguments((), given)
            if len(self._usual) < _USUAL:
                self._usual.add(names)
        options = options or self.job_options
        codec, limit = self._registry.codec, self._registry.payload_limit
        if ENCODED in given:
            raise BadPayload(
                f"{self._label}: no argument can have this name", got=ENCODED, do="Use another name"
            )
        payload = encode(self._label, self.values.write(given) if given else given, limit)
        if codec:
            payload = sealed(codec, self._label, payload, limit)
        return JobRequest(options, payload, None, self._waits(options, given))

    def _waits(self, options: JobOptions, given: dict[str, Any]) -> dict[str, Any] | None:
        """What a job's limits and its fair queue need to know of its arguments. Raises BadJob."""
        fair = self._registry.fair.get(options.queue)
        if not options.limits and fair is None:
            return None
        own = self._signature.parameters.items()
        if isinstance(fair, str):
            self._need(fair, f"the fair queue {options.queue!r}")
        usual = {name: p.default for name, p in own if p.default is not p.empty}
        arguments = {**usual, **given}
        limits = [used for limit in options.limits if (used := limit.use(arguments))]
        waits: dict[str, Any] = {"limits": limits} if limits else {}
        if fair is not None:
            waits["tenant"] = tenant_of(fair, arguments)
        return waits or None

    def check_names(self, limits: Iterable[Limit]) -> None:
        """Raises BadJob for a limit of another application, and for one that needs an argument that
        the handler does not have."""
        for limit in limits:
            if self._registry.limits.get(limit.name) is not limit:
                raise BadJob(
                    f"the limit {limit.name!r} of task {self.name} is not of this application",
                    do="Define it with app.limit(…) of the same App as the task",
                )
            for name in limit.names():
                self._need(name, f"the limit {limit.name!r}")

    def _need(self, name: str, owner: str) -> None:
        known = self._signature.parameters
        if name not in known and all(p.kind is not p.VAR_KEYWORD for p in known.values()):
            raise BadJob(
                f"{owner} needs the argument {name!r}, which task {self.name} does not have",
                got=[*known],
                do=suggest(name, known),
            )

    def scheduled_job(self, given: dict[str, Any], options: JobOptions) -> JobRequest[Any]:
        """Make the job of a schedule. No codec encodes its arguments: they belong to the
        definition, and an encoded text that differs each time would redefine the schedule."""
        self._check_arguments((), given)
        payload = encode(self._label, self.values.write(given), self._registry.payload_limit)
        return JobRequest(options, payload, None, self._waits(options, given))

    def add_upcast(self, version: int, upcast: Upcast) -> None:
        """Raises BadJob."""
        if not is_number(version, 1, self.version - 1, whole=True):
            raise BadJob(
                f"task {self.name} has version {self.version}: an upcast is from a lower one",
                got=version,
                do=f"Set @app.task(version={self.version + 1}) when the arguments change",
            )
        if version in self.upcasts:
            raise BadJob(
                f"task {self.name} has two upcasts from version {version}", do="Remove one of them"
            )
        self.upcasts[version] = upcast

    def knows(self, version: int) -> bool:
        """Return whether arguments of that version can be brought to this one."""
        steps = range(version, self.version)
        return version <= self.version and all(step in self.upcasts for step in steps)

    def brought_up(self, payload: dict[str, Any], version: int) -> dict[str, Any]:
        """Bring arguments of an earlier version to this one. Raises BadPayload, and what an upcast
        raises."""
        for step in range(version, self.version):
            payload = self.upcasts[step](payload)
            if not isinstance(payload, dict):
                raise BadPayload(
                    f"the upcast of {self.name} from version {step} must return the arguments",
                    got=type(payload).__name__,
                    do="Return a dict",
                )
        return payload

    def as_callback(self, chosen: JobOptions) -> Callback:
        """This task as a callback. Its jobs keep their history, and have neither a deadline nor a
        callback of their own."""
        if chosen.limits:
            raise BadJob(
                f"task {self.name} has limits, and a callback cannot have any",
                do="Let the callback enqueue the job that has limits",
            )
        options = chosen.as_json.items()
        return Callback(
            self.name,
            {k: v for k, v in options if k not in _NOT_OF_CALLBACKS},
        )

    def _by_name(self, arguments: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
        self._check_arguments(arguments, given)
        nameless = self._nameless or arguments[len(self._positional) :]
        if nameless:
            raise BadJob(
                f"task {self.name}: an argument is stored by its name, and these have none",
                got=nameless,
                do="Give the handler one argument that is a list",
            )
        return dict(zip(self._positional, arguments, strict=False)) | given

    def accepts(self, /, **arguments: Any) -> bool:
        """Return whether the handler can be called with these arguments."""
        try:
            self._signature.bind(**arguments)
        except TypeError:
            return False
        return True

    def _check_arguments(self, arguments: tuple[Any, ...], given: dict[str, Any]) -> None:
        try:
            self._signature.bind(*arguments, **given)
        except TypeError as error:
            known = self._signature.parameters
            names = [*self._positional[: len(arguments)], *sorted(given)]
            wrong = [name for name in given if name not in known]
            why, do = str(error), "Give the handler's arguments, without ctx"
            if wrong and all(p.kind is not p.VAR_KEYWORD for p in known.values()):
                do = suggest(wrong[0], [*known, *JOB_OPTIONS])
                if wrong[0] in (*JOB_OPTIONS, "on"):
                    do = f"Options of a job come first: task.using({wrong[0]}=…).enqueue(…)"
                needed = [p for p in known.values() if p.default is p.empty and p.name not in names]
                missing = [repr(p.name) for p in needed if p.kind is not p.VAR_POSITIONAL]
                why = f"it has no argument {' or '.join(map(repr, wrong))}"
                why += f". Missing: {', '.join(missing)}" if missing else ""
            if late := [name for name, p in known.items() if _is_context(p) and name not in names]:
                do = f"The context must be the first parameter of the handler: {late[0]}: Context"
            elif why.startswith("missing") and not self.takes_context:
                bare = [n for n, p in list(known.items())[:1] if p.annotation is p.empty]
                do += "".join(f". If {n!r} is the context, write {n}: Context" for n in bare)
            raise BadJob(
                f"task {self.name} cannot take these arguments: {why}", got=names, do=do
            ) from None


def values_of(function: Callable[..., Any], takes_context: bool) -> Values:
    """Return what converts the arguments and the result of a handler."""
    parameters = list(inspect.signature(function).parameters.values())[takes_context:]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return Values(function, {p.name for p in parameters if p.kind in named}, OUTCOMES)


def _conflict(value: object) -> OnConflict:
    try:
        return OnConflict(value)  # type: ignore[arg-type]
    except ValueError:
        raise BadJob(
            "on_conflict must be return, raise or replace",
            got=value,
            do=suggest(str(value), [str(c) for c in OnConflict]),
        ) from None


class Registry:
    """The tasks of one application, by name."""

    first_import: str = ""
    """What a child process imports before it imports a handler: a module that makes a framework
    ready. Empty: none."""

    def __init__(
        self, payload_limit: int = Limits.payload_bytes, codec: Codec | None = None
    ) -> None:
        self._tasks: dict[str, TaskFunction] = {}
        self.middleware: list[Any] = []
        """Functions around every handler (``around`` in jobs/context.py), the outermost first."""
        self.limits: dict[str, Limit] = {}
        self.fair: dict[str, FromArguments] = {}
        """By fair queue: what the tenant of a job is."""
        self.claims: dict[str, str] = {}
        """By queue: how workers claim its jobs."""
        self.weights: dict[str, dict[str, float]] = {}
        """By fair queue and tenant; 1 for all others."""
        self.payload_limit = payload_limit
        """In bytes, of a job's arguments."""
        self.codec = codec

    def add(self, name: str, function: Callable[..., Any], options: TaskOptions) -> TaskFunction:
        """Register a task. Raises DuplicateTask if the name is taken."""
        task = TaskFunction(name, function, options, self)
        if other := self._tasks.get(name):
            raise DuplicateTask(
                f"two tasks are named {name!r}: {_place(other.function)} and {_place(function)}",
                do="Give one of them another name: @app.task(name='…')",
            )
        self._tasks[name] = task
        return task

    def as_handler(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what a job calls, for an integration that works around each handler, in the
        handler's own thread or process."""
        return function

    def promise(self, given: object) -> Promise | None:
        """Resolve a deadline's callback. Raises BadDeadline, UnknownTask."""
        if given is None:
            return None
        if not isinstance(given, Deadline):
            raise BadDeadline(
                "deadline must be a Deadline",
                got=given,
                do="deadline=Deadline(minutes=10, on_breach=page_oncall)",
            )
        return Promise.of(
            given, self._callback("on_breach", given.on_breach, "breach", BadDeadline)
        )

    def on_failure(self, given: object) -> Callback | None:
        """Resolve the task for failures. Raises BadJob, UnknownTask."""
        return None if given is None else self._callback("on_failure", given, "failure", BadJob)

    def of_batch(self, option: str, given: object) -> dict[str, Any]:
        """Resolve what follows a batch: a job, or a task whose handler gets ``batch``. Raises
        BadJob, UnknownTask."""
        if isinstance(given, JobRequest):
            return given.as_callback()
        return self._callback(option, given, "batch", BadJob).as_json()

    def _callback(
        self, option: str, given: Any, argument: str, error: type[LeaseworkError]
    ) -> Callback:
        name = given if isinstance(given, str) else getattr(given, "name", None)
        task = self.find(name) if isinstance(name, str) else None
        if task is None or (task is not getattr(given, "function", task) and name is not given):
            raise UnknownTask(
                f"{option} is not a task of this application",
                got=given,
                do=suggest(str(name or given), self._tasks)
                + " A task is a function under @app.task, defined before it is used.",
            )
        if not task.accepts(**{argument: {}}):
            raise error(
                f"task {task.name} cannot be called with only {argument}",
                do=f"Its function needs a parameter named {argument} (a dict), and a default for "
                "every other parameter",
            )
        standing = getattr(given, "standing_options", None)  # of a Task, perhaps with using(…)
        return task.as_callback(standing(option) if standing else task.job_options)

    def find(self, name: str) -> TaskFunction | None:
        return self._tasks.get(name)

    def get(self, name: str) -> TaskFunction:
        task = self._tasks.get(name)
        if task is None:
            raise UnknownTask(f"no task is named {name!r}", do=suggest(name, self._tasks))
        return task

    @property
    def has_limits(self) -> bool:
        """Whether there are limits or fair queues, so that workers claim jobs with them."""
        return bool(self.limits or self.fair)

    def limited(self) -> list[str]:
        """The tasks whose jobs depend on their arguments for where they wait."""
        return sorted(
            task.name
            for task in self
            if task.job_options.limits or task.job_options.queue in self.fair
        )

    def known(self) -> tuple[str, ...]:
        """What a worker with these tasks can run: tasks, with their versions above 1."""
        versions = (
            needs(task.name, version)
            for task in self._tasks.values()
            for version in range(1, task.version + 1)
            if task.knows(version)
        )
        return tuple(sorted(versions))

    def queues(self) -> set[str]:
        """The queues of the tasks, and of the callbacks of their jobs."""
        return set().union(*(task.job_options.queues for task in self._tasks.values()))

    def __iter__(self) -> Iterator[TaskFunction]:
        return iter(self._tasks.values())


def _place(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def task_name(function: Callable[..., Any]) -> str:
    """``module.function``: the default name of a task. The name of the main program is the one
    under which other processes import it, if it is in the folder from which they import."""
    module = function.__module__
    if module == "__main__":
        main = sys.modules[module]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec else Path(file).stem if file else module
    return f"{module}.{function.__qualname__}"


def _is_context(parameter: inspect.Parameter) -> bool:
    """Is this where the handler gets its context?"""
    annotation = parameter.annotation
    if isinstance(annotation, str):  # from __future__ import annotations
        pattern = r"""["']?(\w+\.)*(Sync)?Context["']?"""
        named = re.fullmatch(pattern, annotation.strip()) is not None
    else:
        named = isinstance(annotation, type) and issubclass(annotation, Context)
    return named or parameter.name == "ctx"


def _check_function(name: str, function: Callable[..., Any]) -> None:
    if not inspect.isroutine(function):
        raise BadJob(f"task {name} is not a function", got=function, do="Wrap it: def work(…): …")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadJob(
            f"task {name} is a generator, whose body a job would never run",
            do="Leave out yield, or return list(…)",
        )
