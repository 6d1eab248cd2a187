"""App: settings, stores and nodes put together."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from leasehold.app.advisory_locks import AdvisoryLocks
from leasehold.app.deadlines import StandingDeadline, standing_deadline
from leasehold.app.definitions import Definitions, Task
from leasehold.app.desk import Desk
from leasehold.app.diagnosis import Diagnosis, diagnose
from leasehold.app.leader import Leader
from leasehold.app.lock import Lock
from leasehold.app.office import Office, of_closed_loops
from leasehold.app.sync import SyncApp
from leasehold.config import Settings, check_text
from leasehold.duties.syncer import Planned
from leasehold.env import Env
from leasehold.errors import ConfigError, suggest
from leasehold.jobs.client import Client, Job
from leasehold.jobs.tasks import Registry
from leasehold.model.job import JobRecord, JobRequest
from leasehold.model.lock_key import Noted
from leasehold.node import Node, NodePlan, Tools
from leasehold.pg.connection.listener import Listener
from leasehold.pg.stores.store import PgStore, Stores
from leasehold.pg.users.user import UserConnections
from leasehold.telemetry import logger
from leasehold.version import VERSION
from leasehold.watch.inspector import Inspector
from leasehold.watch.operator import Operator

DEFAULT_SLOTS = 100
ONCE_KEPT_SECONDS = 366 * 86400.0


class App(Definitions, AdvisoryLocks):
    """Tasks, schedules and settings of an application.

    ``dsn`` is ``postgresql://…``, ``embedded`` (a PostgreSQL that leasehold starts itself, for
    development), or the environment's ``LEASEHOLD_DSN``. ``options`` are the fields of
    :class:`leasehold.config.Settings`. Nothing is opened before it is needed.
    """

    def __init__(self, dsn: str | None = None, **options: Any) -> None:
        self.settings = Settings.load({**options, "dsn": dsn})
        self.env = Env()
        self.registry = Registry(self.settings.payload_limit)
        self.on_connection = UserConnections(self.settings.schema)
        self._planned: dict[str, Planned] = {}
        self._once: dict[str, Task[Any, Any]] = {}
        self._stores: WeakKeyDictionary[asyncio.AbstractEventLoop, Stores] = WeakKeyDictionary()
        self._embedded: Any = None
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._claims: dict[str, str] = {}
        self._taking_part: list[tuple[int, bool]] = []
        """Of each node of this app: its process, and whether it runs jobs."""
        self._noted_locks: dict[Noted, float] = {}
        self.sync = SyncApp(self)
        self.desk = Desk(self)
        self._office = Office(self)

    # -- jobs ------------------------------------------------------------------------------------
    async def enqueue(self, request: JobRequest, *, on: Any = None) -> Job[Any]:
        """Enqueue ``task.job(...)``. ``on``: a connection or session of yours (psycopg, asyncpg,
        SQLAlchemy, Django); the job is then part of its transaction. Raises WrongConnection,
        BadPayload, UniqueConflict, Unavailable."""
        return await (await self.client()).enqueue(request, on)

    async def enqueue_many(
        self, requests: Iterable[JobRequest], *, on: Any = None
    ) -> list[Job[Any]]:
        """Enqueue up to 100,000 jobs: all of them or none. Of a generator, ``task.job(n=n) for n in
        numbers``, jobs are made while the database works on those before them; what it raises is
        raised here, and nothing was enqueued."""
        return await (await self.client()).enqueue_many(requests, on)

    async def get(self, job: UUID | str) -> JobRecord:
        """Raises JobNotFound."""
        return await (await self.client()).get(job)

    async def jobs(self, **filters: Any) -> list[JobRecord]:
        """The newest jobs, at most ``limit`` (100 by default, 10,000 at most). Filters: the keys
        of ``leasehold.model.filter.SIMPLE``, such as ``state`` and ``queue``. Raises BadJob."""
        return await (await self.client()).jobs(**filters)

    async def cancel(self, job: UUID | str, reason: str = "cancelled") -> bool:
        """A waiting job ends now, a running one is asked to. False: it had finished."""
        return await (await self.client()).cancel(job, reason)

    async def retry(self, job: UUID | str) -> bool:
        """A finished job runs again, a waiting one is due now. False: it runs already. Run again, a
        finished one has no ``requeue_after``, unique key or trace, and is kept in the history."""
        return await (await self.client()).retry(job)

    async def deadline(
        self, name: str, *, due: Any = None, on_breach: Any = None, on: Any = None
    ) -> StandingDeadline:
        """Arm a deadline that stands alone; then ``await it.met()`` in time, or the task
        ``on_breach`` is told. ``due``: a datetime, a timedelta or seconds from now; or a
        :class:`Deadline` or several. While one of that name is armed, and for the same fixed time
        for good, it is given back instead. Without ``due`` it must be there. ``on``: in the
        transaction of a connection of yours. Raises BadDeadline, UnknownTask, DeadlineNotFound."""
        return await standing_deadline(self, name, due, on_breach, on)

    async def client(self) -> Client:
        """The client of the running loop."""
        settings = await self.located()
        return Client(await self.store(), self.env, settings, self.on_connection, self.client)

    async def dsn(self) -> str:
        """Where the database is, for connections of your own; with ``embedded`` it is started."""
        return (await self.located()).dsn

    # -- leaders and locks -------------------------------------------------------------------------
    def leader(self, name: str, **options: Any) -> Leader:
        """Take part in an election: ``async with app.leader("engine") as lead:``. In all the
        processes that use this schema and this name, one leads at a time. Options and what
        ``lead`` can: see :class:`leasehold.app.leader.Leader`."""
        return Leader(self, name, **options)

    def lock(self, name: str, **options: Any) -> Lock:
        """A lock over all processes that use this schema: ``async with app.lock("nightly"):``.
        See :class:`leasehold.app.lock.Lock`."""
        return Lock(self, name, **options)

    # -- operating -------------------------------------------------------------------------------
    async def inspect(self) -> Inspector:
        """For operators: nodes, leaders, schedules, events, and what is wrong."""
        return Inspector(await self.store(), self.env, self.settings)

    async def operator(self, who: str, via: str) -> Operator:
        """To look and to act as a person: each act is an event that says ``who``, and ``via``
        what (``web``, ``cli``)."""
        return await self._office.operator(who, via)

    def configure(self, **options: Any) -> None:
        """Settings that win over those of the code, such as the command line's or a test's. Raises
        ConfigError while the app has connections open: :meth:`close` them first."""
        for left in of_closed_loops(self._stores):
            left.abandon()
        if self._stores or self._office.is_open() or self.desk.is_open():
            raise ConfigError(
                "configure() was called while the app has connections open",
                do="Call it before the app is used, or after `await app.close()` "
                "(app.sync.close() for what app.sync opened)",
            )
        settings = vars(self.settings)
        if self._embedded:  # the server is found again, and the schema applied there
            settings = {**settings, "dsn": "embedded"}
        self.settings = Settings.load({**settings, **options})
        self.on_connection = UserConnections(self.settings.schema)

    def schema_sql(self) -> str:
        """The SQL that makes the whole schema, as one transaction."""
        from leasehold.pg.schema import migrate

        return migrate.script(self.settings.schema)

    def schema_statements(self, after: int = 0) -> list[str]:
        """The same as :meth:`schema_sql`, one statement each and without ``begin`` and ``commit``:
        for Alembic and other tools that open the transaction. ``after``: leave out migrations up
        to this number."""
        from leasehold.pg.schema import migrate

        return migrate.statements(self.settings.schema, after)

    def roles_sql(self) -> str:
        """The SQL that makes roles for logins that enqueue, work, observe or administer."""
        from leasehold.pg.schema import roles

        return roles.script(self.settings.schema)

    async def apply_schema(self, tell: Callable[[str], None] | None = None) -> list[str]:
        """Apply the migrations that are missing; their names. ``tell`` hears what goes on.
        Any number of processes may do this at once."""
        from leasehold.pg.schema import migrate

        applied = await migrate.apply(await self.located(), tell)
        return [f"{m.number:04}_{m.name}" for m in applied]

    async def verify_schema(self) -> list[str]:
        """How the schema differs from a fresh one, in words; empty when it does not."""
        from leasehold.pg.schema import migrate

        return await migrate.verify(await self.located())

    async def lift_tokens(self) -> int:
        """Make every later token higher than all earlier ones, also those that only the outside
        remembers: after a restore from an older backup. Returns the timeline that they begin
        with."""
        from leasehold.pg.schema import migrate

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
            # no call of the guard may keep it from fencing itself in time
            lambda: PgStore(replace(settings, call_timeout=settings.timings.call_timeout), "guard"),
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

    def _once_job(self, key: str, task: Task[Any, Any]) -> JobRequest:
        # the task's name holds the release; a digest, because a key is at most 200 characters
        digest = hashlib.sha256(f"{self.settings.name}\n{key}".encode()).hexdigest()
        return task.job(unique=f"once-{digest}", unique_for=ONCE_KEPT_SECONDS)

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

    # -- composition -----------------------------------------------------------------------------
    async def store(self) -> PgStore:
        """The running loop's store for what users call; made when first asked for."""
        return (await self._of_loop()).users

    async def work_store(self) -> PgStore:
        """The same for the protocol's own work: a node's, or a certifier's."""
        return (await self._of_loop()).work

    async def _of_loop(self) -> Stores:
        self._forget_after_fork()
        loop = asyncio.get_running_loop()
        stores = self._stores.get(loop)
        if stores is None:
            settings = await self.located()
            for left in of_closed_loops(self._stores):
                left.abandon()
            stores = self._stores.setdefault(loop, Stores(settings))
        return stores

    async def close(self) -> None:
        """Close the connections of the running loop, and those that locks and leaders of any
        thread have left open. The app can be used again."""
        await self._office.close()
        await asyncio.to_thread(self.desk.close_idle)
        stores = self._stores.pop(asyncio.get_running_loop(), None)
        if stores:
            await stores.close()

    async def located(self) -> Settings:
        """The settings with a DSN that can be connected to."""
        if self.settings.dsn == "embedded":
            await asyncio.to_thread(self._start_embedded)
        elif not self.settings.dsn:
            raise ConfigError(
                "no database is configured",
                do="Set LEASEHOLD_DSN, or App(dsn='postgresql://…'), or dsn='embedded'",
            )
        return self.settings

    def _start_embedded(self) -> None:
        from leasehold.embedded import EmbeddedServer

        with self._lock:
            if self.settings.dsn != "embedded":
                return
            server = self._embedded or EmbeddedServer.start()
            settings = Settings.load({**vars(self.settings), "dsn": server.dsn})
            asyncio.run(_apply_schema(settings))
            # held until the process ends; the last process that holds it stops the server
            self._embedded, self.settings = server, settings

    def _forget_after_fork(self) -> None:
        """A forked child shares sockets with its parent: it must open its own."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._stores = WeakKeyDictionary()
            self.env = Env()

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


async def _apply_schema(settings: Settings) -> None:
    from leasehold.pg.schema import migrate

    await migrate.apply(settings)
