"""The base of App: settings, tasks, and access to the database and the guard."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, Unpack, cast
from uuid import UUID
from weakref import WeakKeyDictionary

from leasework import own_tasks
from leasework.app.desk import Desk
from leasework.config import ON_DEMAND_SECONDS, ConfigureGiven, Settings
from leasework.env import Env
from leasework.errors import ConfigError, JobNotFound
from leasework.jobs.client import Batch, Client, Job
from leasework.jobs.tasks import Registry
from leasework.model.codec import Codec, opened
from leasework.model.deadline import AnyTask
from leasework.model.filter import JobFilter
from leasework.model.job import JobRecord, JobRequest, R
from leasework.model.lock_key import Noted
from leasework.model.states import State, StateName
from leasework.pg.connection.dsn import as_url, read_dsn
from leasework.pg.schema import migrate, roles
from leasework.pg.users.user import UserConnections
from leasework.store.durable import BatchView, Ended
from leasework.store.reports import Reports
from leasework.store.store import Store
from leasework.tuning import Tuning
from leasework.watch.operator import Operator

Follows = AnyTask | str | JobRequest[Any] | None
"""What follows a batch: a task, its name, or a job."""
C = TypeVar("C", bound=Callable[..., Coroutine[Any, Any, Any]])


def in_loop(instead: str) -> Callable[[C], C]:
    """Make a coroutine method raise ConfigError when it is called without a running event loop,
    where the call would do nothing. ``instead`` is the call for code without an event loop."""

    def decorate(method: C) -> C:
        @wraps(method)
        def checked(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                raise ConfigError(
                    f"{method.__name__}() needs a running event loop, and none is running",
                    do=f"Call {instead}, or await {method.__name__}() inside `async def`",
                ) from None
            return method(*args, **kwargs)

        # for mocks and frameworks, which ask whether a function is async
        if sys.version_info >= (3, 12):
            inspect.markcoroutinefunction(checked)
        else:
            checked._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
        return cast(C, checked)

    return decorate


class Stores:
    """The stores of one event loop. Each has its own connections and opens them on demand. So a
    claim never waits for a report, nor for a user's call that waits for a lock in the database."""

    def __init__(self, settings: Settings) -> None:
        self.work = Store(settings, "work", settings.work_connections)
        self.claims = Store(settings, "claims", 1, ON_DEMAND_SECONDS)
        self.users = Store(settings, "user", settings.user_connections, ON_DEMAND_SECONDS)
        limit = min(settings.call_timeout, Tuning.report_seconds)
        limited = replace(settings, call_timeout=limit)
        self.people = Store(limited, "people", 2, ON_DEMAND_SECONDS)
        self.reports = self.lists = Reports(self.people.pool, settings.call_timeout)
        self._all = [self.people, self.users, self.claims, self.work]
        if settings.replica:
            store = Store(replace(limited, dsn=settings.replica), "replica", 2, ON_DEMAND_SECONDS)
            self.lists = Reports(store.pool, settings.call_timeout)
            self._all.append(store)
        self.ends: AsyncGenerator[None, None] | None = None
        """The loop closes it when it ends."""

    def abandon(self) -> None:
        """Close the connections at the end of their event loop, or after it."""
        for store in self._all:
            store.abandon()

    async def close(self) -> None:
        for store in self._all:
            await store.close()


class Home:
    """The base of App, and the part of it that its other parts use: settings, tasks, calls, and
    the stores of each event loop. It opens a connection only when one is needed."""

    def __init__(self, settings: Settings, codec: Codec | None = None) -> None:
        self.settings = settings
        self.env = Env()
        self.codec = codec
        self.registry = Registry(settings.payload_limit, codec)
        self.test_database = ""
        """The name of the database that a test has given to this app."""
        self.on_connection = self._on_connection()
        self.desk = Desk(self.located)
        self.locks_work = False
        """An advisory lock on a user's connection has been seen in pg_locks, so they work there."""
        self.noted_locks: dict[Noted, float] = {}
        """The names of advisory locks that the database has, and when they were written."""
        self._stores: WeakKeyDictionary[asyncio.AbstractEventLoop, Stores] = WeakKeyDictionary()
        self._embedded: Any = None
        self.taking_part: list[tuple[int, bool]] = []
        """The process of each of this app's nodes, and whether the node runs jobs."""
        self._lock = threading.Lock()
        self._process = own_tasks.generation

    @in_loop("app.sync.enqueue(task.job(…))")
    async def enqueue(self, request: JobRequest[R], *, on: Any = None) -> Job[R]:
        """Enqueue one job::

            job = await app.enqueue(send.job(user_id=42), on=session)

        ``on`` is your own connection or session (psycopg, asyncpg, SQLAlchemy, Django). The job is
        then part of its transaction. Without ``on``, leasework commits the job before it returns.

        Raises WrongConnection, BadPayload, UniqueConflict, or Unavailable.
        """
        return await (await self.client()).enqueue(request, on)

    @in_loop("app.sync.enqueue_many(…)")
    async def enqueue_many(
        self, requests: Iterable[JobRequest[R]], *, on: Any = None
    ) -> list[Job[R]]:
        """Enqueue up to 100,000 jobs: all of them or none::

            jobs = await app.enqueue_many(send.job(user_id=n) for n in user_ids)

        A generator is read to its end first. If it raises, that error is raised here and no job is
        enqueued. ``on`` and errors: see :meth:`enqueue`. Also raises BadJob if there are too many
        jobs.
        """
        return await (await self.client()).enqueue_many(requests, on)

    @in_loop("app.sync.batch(…)")
    async def batch(
        self,
        requests: Iterable[JobRequest[R]],
        *,
        on_done: Follows = None,
        on_success: Follows = None,
        on_failure: Follows = None,
        on: Any = None,
    ) -> Batch[Job[R]]:
        """Enqueue up to 100,000 jobs whose end is one event: all of them or none::

            batch = await app.batch((load.job(row) for row in rows), on_done=report)

        When all have ended, ``on_done`` is enqueued, and ``on_success`` if all completed, or else
        ``on_failure``, once each. Each is a job, or a task whose handler takes ``batch``, a dict
        with ``id``, ``total`` and ``failed``. A job that is run again later does not call again.
        ``on`` and errors: see :meth:`enqueue_many`. Also raises UnknownTask.
        """
        given = {"on_done": on_done, "on_success": on_success, "on_failure": on_failure}
        of_batch = self.registry.of_batch
        callbacks = {name: of_batch(name, each) for name, each in given.items() if each}
        return await (await self.client()).batch(requests, callbacks, on)

    async def get_batch(self, batch: UUID) -> BatchView:
        """Return how far a batch is. Raises JobNotFound, also if it was pruned."""
        found = await (await self.store()).get_batch(batch)
        if found is None:
            do = "It is kept as long as finished jobs are"
            raise JobNotFound("no such batch", got=str(batch), do=do)
        return found

    async def batch_results(self, batch: UUID, *, after: UUID | None = None) -> list[Ended]:
        """Return the jobs of a batch that have ended, in their order: id, state, result, error. At
        most 1,000; those behind ``after``, the last id of a page, are the next ones. Raises
        BadPayload for results that the codec cannot read."""
        found = await (await self.store()).batch_results(batch, after or UUID(int=0), 1000)
        return [one._replace(result=opened(self.codec, one.result)) for one in found]

    @in_loop("app.sync.signal(…)")
    async def signal(
        self, job: UUID | str, name: str, payload: Any = None, *, on: Any = None
    ) -> bool:
        """Send a signal to a job, whose handler gets ``payload`` from ``ctx.event(name)``::

            await app.signal(job_id, "approved", {"by": "kim"}, on=session)

        It is kept until the handler takes it. ``on``: see :meth:`enqueue`; two open transactions
        with signals to one job wait for each other. Return False if the job has ended. Raises
        JobNotFound, and BadPayload for what JSON cannot hold."""
        return await (await self.client()).signal(job, name, payload, on)

    async def get(self, job: UUID | str) -> JobRecord:
        """Return a job and its current state. Raises JobNotFound, also if its history was
        pruned::

            record = await app.get(job_id)
            print(record.state, record.progress, record.result)
        """
        return await (await self.client()).get(job)

    async def jobs(
        self,
        *,
        state: State | StateName | None = None,
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        limit: int = 100,
    ) -> list[JobRecord]:
        """Return jobs, the newest first::

            failed = await app.jobs(state="discarded", queue="mail", limit=20)

        ``task`` is the name of a task. ``limit`` is at most 10,000. With ``state="running"`` the
        oldest come first, and with ``scheduled`` or ``retryable`` those that are due next. Raises
        BadJob for an unknown state and a wrong limit, BadFilter if too many available jobs stand
        before the running ones, and Unavailable after ``call_timeout`` seconds.
        """
        wanted = JobFilter.only(state=state, queue=queue, task=task, tag=tag)
        return await (await self.client()).jobs(wanted, limit)

    async def cancel(
        self, job: UUID | str, reason: str = "cancelled", *, family: bool = False
    ) -> bool:
        """Cancel a waiting job now, or tell a running one to stop. Return False if the job has
        already finished. ``reason`` is stored with the job. ``family``: also cancel the jobs that
        it has made with ``ctx.gather`` and ``ctx.spawn``, and those have made. Raises JobNotFound,
        and ConfigError for a reason that cannot be stored::

            await app.cancel(job_id, "the order was withdrawn")
        """
        return await (await self.client()).cancel(job, reason, family)

    async def retry(self, job: UUID | str) -> bool:
        """Run a finished job again, or make a waiting one due now. Return False if the job is
        running. A finished job that runs again loses its ``requeue_after``, unique key and trace,
        and stays in the history when it completes. Raises JobNotFound."""
        return await (await self.client()).retry(job)

    def check_in_time(self, what: str, *, for_jobs: bool = False) -> None:
        """Raise ConfigError for a definition after a node was made, because the node would ignore
        it. ``for_jobs``: the definition matters only to nodes that run jobs."""
        for pid, executes in self.taking_part:
            if pid == os.getpid() and (executes or not for_jobs):
                raise ConfigError(
                    f"{what} is defined too late: a node of this application runs in this process "
                    "and has already read its tasks and schedules",
                    do="Define it before app.node(), app.lifespan or the worker starts: import its "
                    "module at the top of the application",
                )

    async def client(self) -> Client:
        """Return the client of the running event loop. In a plain call on a user's connection, it
        has no connections of leasework's."""
        users = reports = cast(Any, None)
        if not own_tasks.may_block.get():
            stores = await self.stores()  # first: it may change the settings
            users, reports = stores.users, stores.reports
        return Client(
            users,
            reports,
            self.env,
            self.settings,
            self.on_connection,
            self.client,
            self.codec,
        )

    async def store(self) -> Store:
        """Return the running loop's store for users' calls."""
        return (await self.stores()).users

    async def reports(self) -> Reports:
        """Return the running loop's reports for people."""
        return (await self.stores()).reports

    async def operator(self, who: str, via: str, reason: str = "") -> Operator:
        """Return an operator, which reads and acts for a person. Each action emits an event that
        names the person (``who``), the interface (``via``: ``web`` or ``cli``) and the
        ``reason``."""
        stores = await self.stores()
        given = self.env, self.settings, who, via, reason
        return Operator(stores.people, stores.reports, stores.lists, *given)

    async def dsn(self) -> str:
        """Return the database's DSN as a URL, for your own connections and for SQLAlchemy's
        ``make_url``. This starts the embedded server if the settings say ``embedded``. Raises
        ConfigError if no database is configured, and WrongDsn."""
        return as_url(read_dsn((await self.located()).dsn))

    @property
    def given(self) -> Settings:
        """The settings as they were given: another process that gets them finds or starts the
        embedded server itself, whose DSN is of use only while a process keeps it."""
        if self._embedded is None or self.settings.dsn != self._embedded.dsn:
            return self.settings
        return Settings.load({**vars(self.settings), "dsn": "embedded"})

    async def located(self) -> Settings:
        """Return the settings with the DSN of a server. This starts the embedded server if the
        settings say ``embedded``. Raises ConfigError if no database is configured."""
        if self.settings.dsn == "embedded":
            await asyncio.to_thread(self._start_embedded)
        elif not self.settings.dsn:
            raise ConfigError(
                "no database is configured",
                do="Set LEASEWORK_DSN, or App(dsn='postgresql://…'), or dsn='embedded'",
            )
        return self.settings

    def configure(self, **options: Unpack[ConfigureGiven]) -> None:
        """Override settings of the code, for example from the command line or in a test::

            app.configure(dsn=test_dsn, listen=False)

        ``options`` are fields of :class:`leasework.config.Settings`; one that is None has no
        effect, nor has ``dsn`` while a test has given the app a database. Raises ConfigError for an
        invalid setting, and while the app has open connections: call :meth:`close` first.
        """
        given = {name: value for name, value in options.items() if value is not None}
        if self.test_database:
            given.pop("dsn", None)
        self._use_settings({**vars(self.given), **given})

    def _use_settings(self, settings: Mapping[str, Any]) -> None:
        """Replace all settings. Raises ConfigError, as :meth:`configure` does."""
        if self.in_use():
            raise ConfigError(
                "configure() was called while the app has connections open",
                do="Call it before the app is used, or after `await app.close()` "
                "(app.sync.close() for what app.sync opened)",
            )
        # an embedded server: find it again, and apply the schema there
        self.settings = Settings.load(settings)
        self.registry.payload_limit = self.settings.payload_limit
        self.on_connection = self._on_connection()

    def _on_connection(self) -> UserConnections:
        given = self.settings
        most = given.limits.result_bytes
        return UserConnections(given.schema, self.codec, self.test_database, most)

    def in_use(self) -> bool:
        """Return whether connections are open, or a node runs."""
        self._forget_after_fork()
        self._abandon_closed_loops()
        return bool(self._stores) or self.desk.is_open()

    def current_dsn(self) -> str:
        """Return the DSN of the settings, which an integration may look up anew."""
        return self.settings.dsn

    def schema_sql(self) -> str:
        """Return the SQL that creates the whole schema, as one transaction."""
        return migrate.script(self.settings.schema)

    def schema_statements(self, after: int = 0) -> list[str]:
        """Return the statements of :meth:`schema_sql` without ``begin`` and ``commit``, for Alembic
        and other tools that open the transaction themselves. ``after`` is the number of the last
        migration to leave out."""
        return migrate.statements(self.settings.schema, after)

    def roles_sql(self) -> str:
        """Return the SQL that creates the roles: for logins that enqueue, work, act for
        people, observe or administer."""
        return roles.script(self.settings.schema)

    async def apply_schema(self, tell: Callable[[str], None] | None = None) -> list[str]:
        """Apply the missing migrations, and return their names::

            print(await app.apply_schema(print))

        ``tell`` is called with messages about the progress. Any number of processes may call this
        at once. Raises PermissionDenied, SchemaMissing if the schema has tables but no record of
        migrations, SchemaTooNew, or Unavailable."""
        applied = []
        if self.settings.dsn == "embedded":  # a new server gets the schema as it starts
            applied = await asyncio.to_thread(self._start_embedded)
        applied += await migrate.apply(await self.located(), tell)
        return [f"{m.number:04}_{m.name}" for m in applied]

    async def verify_schema(self) -> list[str]:
        """Compare the schema with a new one. Return the differences as sentences, or an empty
        list. Raises SchemaMissing, SchemaTooNew or PermissionDenied."""
        return await migrate.verify(await self.located())

    async def lift_tokens(self) -> int:
        """Make all later tokens higher than all earlier ones. Call this after a restore from a
        backup, because other systems may remember tokens that the backup does not contain. Return
        the new timeline, the number with which the later tokens begin. Raises PermissionDenied."""
        return await migrate.lift_tokens(await self.located())

    async def close(self) -> None:
        """Close the connections of the running event loop, and the idle connections for locks and
        leaders, whatever their thread. The app opens new connections when it needs them."""
        await own_tasks.in_thread_of_its_own(self.desk.close, True)
        stores = self._stores.pop(asyncio.get_running_loop(), None)
        if stores:
            await stores.close()
            if stores.ends:
                await stores.ends.aclose()

    def loops(self) -> list[asyncio.AbstractEventLoop]:
        """Return the event loops in which the app has connections open."""
        self._abandon_closed_loops()
        return list(self._stores)

    async def stores(self) -> Stores:
        """Return the stores of the running loop."""
        if self._process != own_tasks.generation:
            self._forget_after_fork()
        loop = asyncio.get_running_loop()
        stores = self._stores.get(loop)
        if stores is None:
            settings = await self.located()
            self._abandon_closed_loops()
            stores = self._stores.setdefault(loop, Stores(settings))
            if stores.ends is None:
                stores.ends = self._until_it_ends(loop, stores)
                await anext(stores.ends)
        return stores

    async def _until_it_ends(
        self, loop: asyncio.AbstractEventLoop, stores: Stores
    ) -> AsyncGenerator[None, None]:
        """Close the connections when the loop ends: ``asyncio.run`` and others first close the
        loop's async generators."""
        try:
            yield
        finally:
            self._forget_after_fork()
            if self._stores.get(loop) is stores:  # it stays: a node may open others as it stops
                stores.abandon()

    def _abandon_closed_loops(self) -> None:
        """Drop the stores of loops that were closed by hand, without ``shutdown_asyncgens``. Other
        threads may do this at the same time."""
        closed = [loop for ref in self._stores.keyrefs() if (loop := ref()) and loop.is_closed()]
        for loop in closed:
            if left := self._stores.pop(loop, None):
                left.abandon()

    def _forget_after_fork(self) -> None:
        """A forked child must not use its parent's sockets. It opens its own."""
        if self._process != own_tasks.generation:
            self._process = own_tasks.generation
            self._stores = WeakKeyDictionary()
            self.env = Env()
            # use the embedded server in its own name, which may run longer than its parent
            self.settings, self._embedded = self.given, None

    def _start_embedded(self) -> list[migrate.Migration]:
        """Start the server, apply the schema, and return the migrations that were missing."""
        from leasework.embedded import EmbeddedServer

        with self._lock:
            if self.settings.dsn != "embedded":
                return []
            server = self._embedded or EmbeddedServer.start()
            settings = Settings.load({**vars(self.settings), "dsn": server.dsn})
            applied = asyncio.run(migrate.apply(settings))
            # keep the server until the process ends; the last process to keep it stops it
            self._embedded, self.settings = server, settings
            return applied
