"""App: the object through which an application uses leasework."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, Unpack, overload

from leasework import errors, own_tasks
from leasework.app.advisory import AdvisoryGiven, AdvisoryLock
from leasework.app.deadlines import Due, OnBreach, StandingDeadline, standing_deadline
from leasework.app.definitions import (
    Async,
    AsyncWithContext,
    P,
    Plain,
    PlainWithContext,
    R,
    Registers,
    ScheduleGiven,
    ScheduleOptions,
    Schedules,
    Task,
    without_moment,
)
from leasework.app.desk import guard_store
from leasework.app.diagnosis import Role, diagnose
from leasework.app.flow import FlowDefinitions
from leasework.app.leader import Leader
from leasework.app.lock import Lock
from leasework.app.planning import checked_queues, derived_release
from leasework.app.schedules import StoredSchedules
from leasework.app.sync import SyncApp
from leasework.config import Settings, SettingsGiven, check_text
from leasework.duties.syncer import Planned
from leasework.errors import BadJob, BadSchedule, ConfigError, suggest
from leasework.jobs.context import Middleware
from leasework.jobs.process import check_importable
from leasework.jobs.tasks import TaskGiven, TaskOptions, task_name
from leasework.model.backoff import Backoff
from leasework.model.codec import Codec
from leasework.model.moments import Duration
from leasework.model.schedule import Spec, cron, every as every_spec, once as once_spec
from leasework.node import Node, NodePlan, Tools
from leasework.store.listener import Listener
from leasework.version import VERSION
from leasework.watch.finding import Finding
from leasework.watch.inspector import Inspector

Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]
"""Makes the context manager around a process's jobs: see :class:`App`."""
M = TypeVar("M", bound=Middleware)
DEFAULT_SLOTS = 100
KEEP_ALL_DAYS = 36_500
"""Only the leader drops days."""


class App(FlowDefinitions):
    """An application's tasks, schedules and settings::

        app = App("postgresql://localhost/shop", name="shop")

        @app.every(seconds=60)
        async def refresh_prices(): ...

    ``dsn`` is ``postgresql://…`` or ``embedded``, a PostgreSQL server that leasework starts for
    development. The default is the environment variable ``LEASEWORK_DSN``. ``options`` are fields
    of :class:`leasework.config.Settings`. Raises ConfigError for an invalid setting. The app opens
    a connection only when it needs one.

    ``lifespan`` is an async context manager for what handlers share. A process enters it before
    its first job and leaves it after its last one. Handlers get what it yields as ``ctx.state``,
    except those of ``executor="process"``::

        @asynccontextmanager
        async def clients(app: App):
            async with httpx.AsyncClient() as http:
                yield http

        app = App(lifespan=clients)

    ``codec`` encodes the arguments and results of jobs for storage, for example to encrypt them:
    see :class:`Codec`.

    All calls raise ConfigError for an invalid setting or timeout, if no database is configured, and
    where they lack the event loop that they need. Calls that use the database also raise
    Unavailable if it does not answer, and ServerError if leasework cannot work with it, such as
    PermissionDenied.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        lifespan: Lifespan | None = None,
        codec: Codec | None = None,
        **options: Unpack[SettingsGiven],
    ) -> None:
        super().__init__(Settings.load({**options, "dsn": dsn}), codec)
        self.process_lifespan = lifespan
        self._planned: dict[str, Planned] = {}
        self.schedules: StoredSchedules = StoredSchedules(self, self._planned)
        """Schedules that are data."""
        self.sync: SyncApp = SyncApp(self, self.schedules)
        """The same calls for code without an event loop."""

    @overload
    def task(self, function: AsyncWithContext[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, function: Async[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, function: PlainWithContext[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, function: Plain[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, /, *, name: str | None = None, **given: Unpack[TaskGiven]) -> Registers: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **given: Any,
    ) -> Any:
        """Register a function as a task, with or without options::

            @app.task(queue="mail", max_attempts=3, timeout=30)
            async def send(ctx: Context, user_id: int) -> None: ...

        An ``async def`` function runs in the event loop, and a ``def`` function in a thread. With
        ``executor="process"`` either runs in a child process, which leasework can kill. A first
        parameter named ``ctx`` gets the :class:`Context`.

        ``name`` is the task's name in the database (default: the function's module and name).
        The other options are the fields of ``TaskOptions``; times are in seconds. ``deadline`` is
        a :class:`Deadline`.

        ``history=False`` keeps nothing of a completed job. An enqueue whose answer is lost then
        raises Unavailable, because a retry could run the job twice.

        Raises ConfigError for an unknown option or a task that is defined too late, and
        DuplicateTask, BadJob, BadDeadline or UnknownTask for an invalid option.
        """
        known = [*TaskOptions.__dataclass_fields__, "name"]
        for wrong in given.keys() - set(known):
            raise ConfigError(f"task has no option {wrong!r}", do=suggest(wrong, known))
        backoff = given.pop("backoff", None)
        if not isinstance(backoff, Backoff | None):
            raise BadJob("backoff must be a Backoff", got=backoff, do="Backoff(base=2, longest=60)")
        promise = without_moment(self.registry, given.pop("deadline", None), "a task")
        told = self.registry.on_failure(given.pop("on_failure", None))
        options = TaskOptions(
            **given, backoff=backoff or Backoff(), deadline=promise, on_failure=told
        )

        def register(function: Callable[..., Any]) -> Task[Any, Any]:
            if not callable(function):
                raise BadJob(
                    "a task is a function", got=function, do="Put @app.task above a function"
                )
            if isinstance(function, Task):
                raise BadJob(
                    "@app.task is above a decorator that has already made a task",
                    got=function.name,
                    do="Write @app.task(…) right above the function, and @app.periodic(…), "
                    "@app.every(…), @app.once(…) above that; without options, leave @app.task out",
                )
            full_name = task_name(function) if name is None else name
            check_text("a task's name", full_name, self.settings.limits.text_chars)
            # a process that only enqueues may import a task at any time
            self.check_in_time(f"the task {full_name!r}", for_jobs=True)
            if options.executor == "process":
                check_importable(function)
            return Task(self, self.registry.add(full_name, function, options))

        return register(function) if function is not None else register

    def middleware(self, function: M, /) -> M:
        """Register a function around every handler. It gets the context and ``call_next``, which
        runs the handler and returns its result or raises its error::

            @app.middleware
            async def timed(ctx: Context, call_next: CallNext) -> Any:
                with histogram.labels(ctx.task).time():
                    return await call_next()

        What it returns or raises is the handler's outcome. The first that is registered is the
        outermost. It runs in the event loop, also for handlers in threads, and in the child
        process for handlers in processes. A job's timeout includes it, except for handlers in
        threads. Raises BadJob for a function that is not ``async def``, and ConfigError after a
        node has started.
        """
        is_async: bool = inspect.iscoroutinefunction(function)
        if not is_async:
            raise BadJob("middleware is a coroutine function", got=function, do="Write async def")
        self.check_in_time("middleware", for_jobs=True)
        self.registry.middleware.append(function)
        return function

    def periodic(
        self, expression: str, *, timezone: str = "UTC", **options: Unpack[ScheduleGiven]
    ) -> Schedules:
        """Run a task by a cron expression::

            @app.periodic("0 3 * * *", timezone="Europe/Berlin", missed="skip")
            async def nightly(ctx: Context): ...

        The rules are those of Debian's cron, also when the clocks change. ``options`` are:

        - ``name``: the schedule's name (default: the task's).
        - ``missed``: which missed ticks fire later: ``latest`` (default), ``skip`` or ``all``.
        - ``grace_seconds``: a tick that is at most this late is not missed. The default is half
          the interval, at most 5 s.
        - ``arguments``: the handler's arguments, as a dict.
        - options of the job, such as ``queue`` and ``deadline``.

        Raises BadSchedule, ConfigError if the schedule is defined too late, and BadJob or
        BadDeadline for wrong options of its jobs.
        """
        return self._scheduled(cron(expression, timezone), {**options})

    def every(
        self, *, seconds: Duration, anchor: datetime | None = None, **options: Unpack[ScheduleGiven]
    ) -> Schedules:
        """Run a task every ``seconds``, counted from ``anchor`` (default: 1970-01-01 UTC, so that
        all processes agree). Options and errors: see :meth:`periodic`."""
        return self._scheduled(every_spec(seconds=seconds, anchor=anchor), {**options})

    def once(self, *, at: datetime, **options: Unpack[ScheduleGiven]) -> Schedules:
        """Run a task once, at the moment ``at``, a datetime with a time zone. Options and errors:
        see :meth:`periodic`."""
        return self._scheduled(once_spec(at=at), {**options})

    def _scheduled(self, spec: Spec, given: dict[str, Any]) -> Schedules:
        options = ScheduleOptions.read(spec, given)
        without_moment(self.registry, given.get("deadline"), "a schedule")

        def register(target: Any) -> Task[Any, Any]:
            self.check_in_time("a schedule")
            task = self._as_task(target)
            name = options.name or task.name
            check_text("a schedule's name", name, self.settings.limits.text_chars)
            if name in self._planned:
                raise BadSchedule(
                    f"two schedules are named {name!r}", do="Give one of them another name="
                )
            usual = task.standing_options("a schedule")
            chosen = task.function.with_options(usual, dict(options.job))
            job = task.function.scheduled_job(options.arguments, chosen)
            self._planned[name] = Planned(name, spec, job, options.missed, options.grace)
            return task

        return register

    def _as_task(self, target: Any) -> Task[Any, Any]:
        if isinstance(target, Task):
            return target
        task: Task[Any, Any] = self.task(target)
        return task

    def leader(
        self,
        name: str,
        *,
        on_gain: Callable[[Leader], Any] | None = None,
        on_loss: Callable[[Leader], Any] | None = None,
        also_advisory_key: str | int | tuple[str | int, int] | None = None,
    ) -> Leader:
        """Stand for election, for the duration of a block::

            async with app.leader("engine") as lead:
                await lead.run(engine)  # runs engine(lead) while this process leads

        One process leads at a time, among all processes that use this schema and name. For the
        options, see :class:`leasework.app.leader.Leader`. Raises ConfigError for an invalid name,
        and the ``async with`` raises ServerError or Unavailable.
        """
        return Leader(
            self, name, on_gain=on_gain, on_loss=on_loss, also_advisory_key=also_advisory_key
        )

    def lock(self, name: str, *, timeout: Duration | None = None, cancel: bool = True) -> Lock:
        """Lock a name across all processes that use this schema::

            async with app.lock("nightly", timeout=5) as lock:
                await sync(lock.token)

        For the options, see :class:`leasework.app.lock.Lock`. Raises ConfigError for an invalid
        name or timeout. The ``async with`` raises LockNotAcquired after ``timeout`` seconds,
        LostLease if the lock is lost, ServerError, or Unavailable.
        """
        return Lock(self, name, timeout=timeout, cancel=cancel)

    def advisory_lock(
        self,
        target: str | int | tuple[str | int, int],
        *,
        cancel: bool = True,
        **options: Unpack[AdvisoryGiven],
    ) -> AdvisoryLock:
        """Take one of PostgreSQL's advisory locks, with supervision::

            async with app.advisory_lock("import", timeout=5) as lock:
                await import_all()

        ``target`` is a name, a 64-bit number or a (class, object) pair.

        - ``scope``: ``transaction`` (default) takes the lock in your transaction (``on``) until it
          ends, or else in a transaction that leasework holds open. ``session`` takes it on a
          connection of its own, and raises UnsafeServer behind a pooler.
        - ``shared``: take a shared lock. Any number of holders can share it.
        - ``on``: your connection or session, for ``scope="transaction"``.
        - ``timeout``: how many seconds to wait (at most a day). None tries once.
        - ``wide``: allow an object of more than 32 bits.
        - ``job``: the id of the job that ``leasework locks`` shows.
        - ``cancel``: if the lock is lost, cancel the body of ``async with`` and raise LostLock.
          With False, only ``lock.lost`` is set.

        Raises ConfigError for invalid options. The ``async with`` raises LockNotAcquired, and the
        errors of :meth:`AdvisoryLock.acquire`.
        """
        return AdvisoryLock(self, target, cancel=cancel, **options)

    async def deadline(
        self, name: str, *, due: Due = None, on_breach: OnBreach = None, on: Any = None
    ) -> StandingDeadline:
        """Arm a deadline without a job::

            books = await app.deadline("books-2026-01", due=timedelta(hours=2), on_breach=page)
            ...
            await books.met()  # if this comes too late, the task page runs

        ``due`` is a datetime, a timedelta, or a number of seconds from now. If a deadline of this
        name is already armed, this returns that one. A name with the same fixed time always
        returns the same deadline, even after its verdict. Without ``due``, the deadline must
        already exist. ``on`` is your connection or session; the deadline is then armed if its
        transaction commits.

        Raises BadDeadline, UnknownTask, DeadlineNotFound, WrongConnection, or Unavailable.
        """
        return await standing_deadline(self, name, due=due, on_breach=on_breach, on=on)

    async def inspect(self) -> Inspector:
        """Return an inspector, which reads nodes, leaders, schedules, events and problems::

            problems = await (await app.inspect()).problems()

        Raises ConfigError if no database is configured.
        """
        return Inspector(await self.reports(), self.env, self.settings)

    async def diagnose(self, role: Role = "worker") -> list[Finding]:
        """Return what ``leasework doctor`` finds: problems first, then notes. ``role`` is what the
        login is for. Raises ConfigError for an unknown role, or if no database is configured::

            findings = await app.diagnose()
            assert all(finding.info for finding in findings), findings
        """
        return (await diagnose(await self.inspect(), self.settings, role)).found

    @asynccontextmanager
    async def node(
        self,
        *,
        queues: Mapping[str, int] | None = None,
        execute: bool = True,
        hard_exit: bool = False,
        on_drain: Callable[[bool], None] | None = None,
    ) -> AsyncIterator[Node]:
        """Run a node in this process: it stands for election, schedules, and runs jobs::

            async with app.node(queues={"mail": 20}):
                await serve()

        - ``queues``: how many jobs of each queue to run at once. The default is 100 of each queue
          that a task uses.
        - ``execute=False``: run no jobs here.
        - ``hard_exit``: end the process if work of a lost lease cannot be stopped. For worker
          processes.
        - ``on_drain``: called when a person drains this process alone (True) or the whole
          application (False). Without it, the node stops claiming jobs and continues.

        When the block ends, the node stops, and its jobs have the grace to finish. Raises
        ConfigError for invalid queues, ServerError, or Unavailable.
        """
        here = os.getpid(), execute
        self.taking_part.append(here)
        try:
            node = await self.make_node(queues, execute, hard_exit)
            node.on_drain = on_drain  # before a person can see the node and drain it
            async with self.state_for(node, execute):
                await node.start()
                with self.desk.served_by(node.guard) as stops:
                    try:
                        yield node
                    finally:
                        stops()
                        await own_tasks.to_its_end(own_tasks.start(node.stop()))
        finally:
            self.taking_part.remove(here)

    @asynccontextmanager
    async def state_for(self, node: Node, execute: bool = True) -> AsyncIterator[None]:
        """Enter the lifespan for as long as the node runs jobs, in the task of the caller."""
        if self.process_lifespan is None or not execute:
            yield
            return
        async with self.process_lifespan(self) as state:
            node.attempts.state = state
            yield

    async def make_node(
        self,
        queues: Mapping[str, int] | None = None,
        execute: bool = True,
        hard_exit: bool = False,
        schedules: bool = True,
    ) -> Node:
        """Return a node that has not started. Without ``schedules``, it stores no schedules."""
        settings = await self.located()
        stores = await self.stores()
        plan = NodePlan(
            version=VERSION,
            release=self.release,
            queues=self._queues(queues) if execute else {},
            planned=tuple(self._planned.values()) if schedules else (),
            hard_exit=hard_exit,
            claims=self.registry.claims,
        )
        tools = Tools(
            stores.work,
            stores.users,
            stores.claims,
            partial(guard_store, settings),
            lambda on_wake, emit: Listener(settings, self.env, stores.work, on_wake, emit),
            self.on_connection,
        )
        if execute:
            # The days of the history, before a job of this node can finish. If no leader made them
            # for a week, its row would go to the default partition, and its day could not be made.
            with suppress(errors.LeaseworkError):  # the start of the node raises it
                await stores.work.prune_days(KEEP_ALL_DAYS, self.env.due_now())
        return Node(plan, tools, self.registry, settings, self.env)

    def _queues(self, queues: Mapping[str, int] | None) -> dict[str, int]:
        standing = [planned.job.options for planned in self._planned.values()]
        used = self.registry.queues().union(*(options.queues for options in standing))
        if queues is None:
            return dict.fromkeys(sorted(used or {"default"}), DEFAULT_SLOTS)
        return checked_queues(queues, used, self.settings.limits)

    @property
    def release(self) -> str:
        """The release that is set, or else a digest of the tasks and schedules of the code."""
        return self.settings.release or derived_release(self.registry, self._planned)

    def lifespan(
        self,
        asgi_app: Any = None,
        *,
        wrap: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
        execute: bool = True,
        queues: Mapping[str, int] | None = None,
    ) -> Any:
        """Run a node in each worker of FastAPI or Starlette, with or without options::

            api = FastAPI(lifespan=app.lifespan)
            api = FastAPI(lifespan=app.lifespan(wrap=my_lifespan, execute=False))

        ``wrap`` is your own lifespan. The node runs inside it. ``execute`` and ``queues``: see
        :meth:`node`.
        """

        @asynccontextmanager
        async def around(asgi_app: Any) -> AsyncIterator[Any]:
            outside = wrap(asgi_app) if wrap else nullcontext()
            async with outside as state, self.node(execute=execute, queues=queues):
                yield state

        return around if asgi_app is None else around(asgi_app)

    def __repr__(self) -> str:
        return f"<App {self.settings.name}>"
