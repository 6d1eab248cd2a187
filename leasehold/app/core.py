"""App: what the code of an application uses."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Unpack, overload
from uuid import UUID

from leasehold.app.advisory import AdvisoryLock
from leasehold.app.deadlines import StandingDeadline, standing_deadline
from leasehold.app.definitions import (
    AsyncWithContext,
    P,
    PlainWithContext,
    R,
    Registers,
    ScheduleOptions,
    Schedules,
    Task,
    without_moment,
)
from leasehold.app.desk import guard_store
from leasehold.app.diagnosis import Diagnosis, diagnose
from leasehold.app.home import Home
from leasehold.app.leader import Leader
from leasehold.app.lock import Lock
from leasehold.app.sync import SyncApp
from leasehold.config import Settings, check_text
from leasehold.duties.syncer import Planned
from leasehold.errors import BadDeadline, BadJob, BadSchedule, ConfigError, suggest
from leasehold.jobs.process import check_importable
from leasehold.jobs.tasks import TaskGiven, TaskOptions, task_name
from leasehold.model.backoff import Backoff
from leasehold.model.job import JobRequest
from leasehold.model.schedule import Spec, cron
from leasehold.model.schedule import every as every_spec
from leasehold.model.schedule import once as once_spec
from leasehold.node import Node, NodePlan, Tools
from leasehold.pg.connection.listener import Listener
from leasehold.pg.schema import migrate, roles
from leasehold.telemetry import logger
from leasehold.version import VERSION
from leasehold.watch.inspector import Inspector

CLAIMS = ("rows", "advisory")
DEFAULT_SLOTS = 100
ONCE_KEPT_SECONDS = 366 * 86400.0


class App(Home):
    """Tasks, schedules and settings of an application.

    ``dsn`` is ``postgresql://…``, ``embedded`` (a PostgreSQL that leasehold starts itself, for
    development), or the environment's ``LEASEHOLD_DSN``. ``options`` are the fields of
    :class:`leasehold.config.Settings`. Nothing is opened before it is needed.
    """

    def __init__(self, dsn: str | None = None, **options: Any) -> None:
        super().__init__(Settings.load({**options, "dsn": dsn}))
        self._planned: dict[str, Planned] = {}
        self._once: dict[str, Task[Any, Any]] = {}
        self._claims: dict[str, str] = {}
        self._taking_part: list[tuple[int, bool]] = []
        """Of each node of this app: its process, and whether it runs jobs."""
        self.sync = SyncApp(self)

    # -- definitions -----------------------------------------------------------------------------
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
        levels = without_moment(self.registry, given.pop("deadline", None), "a task")
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
            return Task(self, self.registry.add(full_name, function, options))

        return register(function) if function is not None else register

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
        return Task(self, known)

    def _scheduled(self, spec: Spec, given: dict[str, Any]) -> Schedules:
        options = ScheduleOptions.read(spec, given)
        without_moment(self.registry, given.get("deadline"), "a schedule")

        def register(target: Any) -> Task[Any, Any]:
            self._check_in_time("a schedule")
            task = self._as_task(target)
            name = options.name or task.name
            check_text("a schedule's name", name, self.settings.limits.text_chars)
            if name in self._planned:
                raise BadSchedule(
                    f"two schedules are named {name!r}", do="Give one of them another name="
                )
            job = task.using(**options.job).job(**options.arguments)
            self._planned[name] = Planned(name, spec, job, options.missed, options.grace)
            return task

        return register

    def _as_task(self, target: Any) -> Task[Any, Any]:
        if isinstance(target, Task):
            return target
        task: Task[Any, Any] = self.task(target)
        return task

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

    # -- leaders, locks, deadlines ---------------------------------------------------------------
    def leader(self, name: str, **options: Any) -> Leader:
        """Take part in an election: ``async with app.leader("engine") as lead:``. In all the
        processes that use this schema and this name, one leads at a time. Options and what
        ``lead`` can: see :class:`leasehold.app.leader.Leader`."""
        return Leader(self, name, **options)

    def lock(self, name: str, **options: Any) -> Lock:
        """A lock over all processes that use this schema: ``async with app.lock("nightly"):``.
        See :class:`leasehold.app.lock.Lock`."""
        return Lock(self, name, **options)

    def advisory_lock(
        self,
        target: str | int | tuple[str | int, int],
        *,
        scope: str = "transaction",
        shared: bool = False,
        on: Any = None,
        timeout: float | None = None,
        namespace: str = "",
        wide: bool = False,
        job: UUID | None = None,
        cancel: bool = True,
    ) -> AdvisoryLock:
        """An advisory lock of PostgreSQL by a name, a 64-bit number or a (class, object) pair.

        It tries; with ``timeout`` (seconds) it waits. ``scope="transaction"``: with ``on=`` in
        your own transaction until its end; else in one that a connection of leasehold's holds
        open. ``scope="session"``: on a connection of its own, refused behind a pooler.
        ``shared``: any number of shared holders, or one that is not. ``namespace`` goes before
        names; ``wide=True`` allows objects beyond 2**31. ``job``: shown by ``leasehold locks``.
        When the lock is lost, the body of ``async with`` is cancelled, and LostLock raised at its
        end; with ``cancel=False`` only ``lock.lost`` is set. Raises ConfigError.
        """
        return AdvisoryLock(
            self, target, scope=scope, shared=shared, on=on, timeout=timeout,
            namespace=namespace, wide=wide, job=job, cancel=cancel,
        )  # fmt: skip

    async def deadline(
        self, name: str, *, due: Any = None, on_breach: Any = None, on: Any = None
    ) -> StandingDeadline:
        """Arm a deadline that stands alone; then ``await it.met()`` in time, or the task
        ``on_breach`` is told. ``due``: a datetime, a timedelta or seconds from now; or a
        :class:`Deadline` or several. While one of that name is armed, and for the same fixed time
        for good, it is given back instead. Without ``due`` it must be there. ``on``: in the
        transaction of a connection of yours. Raises BadDeadline, UnknownTask, DeadlineNotFound."""
        return await standing_deadline(self, name, due=due, on_breach=on_breach, on=on)

    # -- operating -------------------------------------------------------------------------------
    async def inspect(self) -> Inspector:
        """For operators: nodes, leaders, schedules, events, and what is wrong."""
        return Inspector(await self.store(), self.env, self.settings)

    def schema_sql(self) -> str:
        """The SQL that makes the whole schema, as one transaction."""
        return migrate.script(self.settings.schema)

    def schema_statements(self, after: int = 0) -> list[str]:
        """The same as :meth:`schema_sql`, one statement each and without ``begin`` and ``commit``:
        for Alembic and other tools that open the transaction. ``after``: leave out migrations up
        to this number."""
        return migrate.statements(self.settings.schema, after)

    def roles_sql(self) -> str:
        """The SQL that makes roles for logins that enqueue, work, observe or administer."""
        return roles.script(self.settings.schema)

    async def apply_schema(self, tell: Callable[[str], None] | None = None) -> list[str]:
        """Apply the migrations that are missing; their names. ``tell`` hears what goes on.
        Any number of processes may do this at once."""
        applied = await migrate.apply(await self.located(), tell)
        return [f"{m.number:04}_{m.name}" for m in applied]

    async def verify_schema(self) -> list[str]:
        """How the schema differs from a fresh one, in words; empty when it does not."""
        return await migrate.verify(await self.located())

    async def lift_tokens(self) -> int:
        """Make every later token higher than all earlier ones, also those that only the outside
        remembers: after a restore from an older backup. Returns the timeline that they begin
        with."""
        return await migrate.lift_tokens(await self.located())

    async def diagnose(self, seconds: float = 5.0, role: str = "worker") -> Diagnosis:
        """What ``leasehold doctor`` says, after watching clocks and renewals for ``seconds``."""
        return await diagnose(await self.located(), self.env, seconds, role)

    # -- taking part -----------------------------------------------------------------------------
    @asynccontextmanager
    async def node(
        self,
        *,
        queues: Mapping[str, int] | None = None,
        execute: bool = True,
        hard_exit: bool = False,
        on_drain: Callable[[bool], None] | None = None,
    ) -> AsyncIterator[Node]:
        """Take part in this process: elect, schedule and, if ``execute``, work.

        ``queues``: queue → jobs at once; default: every queue that a task names, 100 each.
        ``hard_exit``: end the process when work of a lost lease cannot be stopped; for worker
        processes. ``on_drain``: a person wants this process to finish what it has and to end (True:
        it alone, False: all of the application); without it the node only stops claiming.
        """
        here = os.getpid(), execute
        self._taking_part.append(here)
        try:
            node = await self.make_node(queues, execute, hard_exit)
            node.on_drain = on_drain  # before anybody can see the node, and ask
            await node.start()
            with self.desk.served_by(node.guard) as stops:
                try:
                    yield node
                finally:
                    stops()
                    await _to_its_end(asyncio.ensure_future(node.stop()))
        finally:
            self._taking_part.remove(here)

    async def make_node(
        self,
        queues: Mapping[str, int] | None = None,
        execute: bool = True,
        hard_exit: bool = False,
        schedules: bool = True,
    ) -> Node:
        """A node that has not started. Without ``schedules`` it takes none to the database."""
        settings = await self.located()
        store = await self.work_store()
        plan = NodePlan(
            version=VERSION,
            release=self.release,
            queues=self._check_queues(queues) if execute else {},
            planned=tuple(self._planned.values()) if schedules else (),
            once=[self._once_job(k, task) for k, task in self._once.items()] if schedules else (),
            hard_exit=hard_exit,
            claims=self._claims,
        )
        tools = Tools(
            store,
            await self.store(),
            partial(guard_store, settings),
            lambda on_wake, emit: Listener(settings, self.env, store, on_wake, emit),
            self.on_connection,
        )
        return Node(plan, tools, self.registry, settings, self.env)

    def _check_queues(self, queues: Mapping[str, int] | None) -> dict[str, int]:
        if queues is None:
            return dict.fromkeys(sorted(self.registry.queues() or {"default"}), DEFAULT_SLOTS)
        most = self.settings.limits.concurrency
        for queue, slots in queues.items():
            check_text("a queue's name", queue, self.settings.limits.text_chars)
            if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= most:
                raise ConfigError(
                    f"queue {queue!r} needs a number of jobs at once from 1 to {most}", got=slots
                )
        self._warn_of_unused(queues)
        return dict(queues)

    def _warn_of_unused(self, queues: Mapping[str, int]) -> None:
        """A queue that no definition names may be meant (jobs can name their own), or misspelt."""
        used = self.registry.queues() | {p.job.queue for p in self._planned.values()}
        for queue in queues:
            if used and queue not in used:
                logger.warning(
                    "no task uses the queue %r: it gets only jobs that name it themselves. %s",
                    queue, suggest(queue, used),
                )  # fmt: skip

    def _once_job(self, key: str, task: Task[[], Any]) -> JobRequest:
        # the task's name holds the release; a digest, because a key is at most 200 characters
        digest = hashlib.sha256(f"{self.settings.name}\n{key}".encode()).hexdigest()
        return task.using(unique=f"once-{digest}", unique_for=ONCE_KEPT_SECONDS).job()

    @property
    def release(self) -> str:
        """The deployment's name; if none is set, one derived from what the code defines."""
        if self.settings.release:
            return self.settings.release
        defined = {
            "tasks": self.registry.names(),
            "schedules": {
                name: [p.spec.to_json(), p.job_options(), p.missed, p.grace_seconds]
                for name, p in self._planned.items()
            },
        }
        text = json.dumps(defined, sort_keys=True)
        return "auto-" + hashlib.sha256(text.encode()).hexdigest()[:12]

    def lifespan(
        self,
        asgi_app: Any = None,
        *,
        wrap: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
        execute: bool = True,
        queues: Mapping[str, int] | None = None,
    ) -> Any:
        """For ``FastAPI(lifespan=app.lifespan)`` or Starlette; every worker takes part.

        With options: ``lifespan=app.lifespan(wrap=my_lifespan, execute=False)``: ``wrap`` is a
        lifespan of your own, inside which the node runs; ``execute=False`` elects and schedules
        but runs no jobs here.
        """
        if asgi_app is None:
            return partial(self.lifespan, wrap=wrap, execute=execute, queues=queues)
        return self._lifespan(asgi_app, wrap, execute, queues)

    @asynccontextmanager
    async def _lifespan(
        self, asgi_app: Any, wrap: Any, execute: bool, queues: Mapping[str, int] | None
    ) -> AsyncIterator[Any]:
        if wrap is None:
            async with self.node(execute=execute, queues=queues):
                yield None
            return
        async with wrap(asgi_app) as state, self.node(execute=execute, queues=queues):
            yield state

    def __repr__(self) -> str:
        return f"<App {self.settings.name}>"


async def _to_its_end(stopping: asyncio.Future[None]) -> None:
    """However often somebody in a hurry cancels us, as frameworks do: a stop that is left half-way
    leaves jobs that nobody runs. It has limits of its own."""
    cancelled = False
    while not stopping.done():
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            cancelled = True
    stopping.result()
    if cancelled:
        raise asyncio.CancelledError
