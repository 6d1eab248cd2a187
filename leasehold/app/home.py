"""What the parts of an App know of it: settings, tasks, and ways to the database and the guard."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from leasehold.app.desk import Desk
from leasehold.config import ON_DEMAND_SECONDS, Settings
from leasehold.env import Env
from leasehold.errors import ConfigError
from leasehold.jobs.client import Client, Job
from leasehold.jobs.tasks import Registry
from leasehold.model.job import JobRecord, JobRequest
from leasehold.model.lock_key import Noted
from leasehold.pg.schema import migrate
from leasehold.pg.stores.reports import PgReports
from leasehold.pg.stores.store import PgStore
from leasehold.pg.users.user import UserConnections
from leasehold.watch.operator import Operator


class Stores:
    """Those of one event loop. Each has connections of its own, and opens them on demand: what
    users call may wait in the database for as long as their transactions last, and no claim waits
    behind somebody who looks."""

    def __init__(self, settings: Settings) -> None:
        self.work = PgStore(settings, "work", settings.work_connections)
        self.users = PgStore(settings, "user", settings.user_connections, ON_DEMAND_SECONDS)
        self.reports = PgReports(settings)

    def abandon(self) -> None:
        """Close the connections of a loop that is closed itself."""
        for store in self.work, self.users, self.reports.store:
            store.abandon()

    async def close(self) -> None:
        for store in self.reports.store, self.users, self.work:
            await store.close()


class Home:
    """The base of App, and all that its parts know of it: settings, tasks, calls, and stores for
    each event loop. It opens nothing before it is needed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.env = Env()
        self.registry = Registry(settings.payload_limit)
        self.on_connection = UserConnections(settings.schema)
        self.desk = Desk(self.located)
        self.locks_work = False
        """The server of the users' connections was seen to hold what it says that it holds."""
        self.noted_locks: dict[Noted, float] = {}
        """Names of advisory locks that the database knows, and since when."""
        self._stores: WeakKeyDictionary[asyncio.AbstractEventLoop, Stores] = WeakKeyDictionary()
        self._embedded: Any = None
        self._lock = threading.Lock()
        self._pid = os.getpid()

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

    # -- ways to the database ---------------------------------------------------------------------
    async def client(self) -> Client:
        """The client of the running loop."""
        settings = await self.located()
        return Client(await self.store(), self.env, settings, self.on_connection, self.client)

    async def store(self) -> PgStore:
        """The running loop's store for what users call."""
        return (await self._of_loop()).users

    async def work_store(self) -> PgStore:
        """The same for the protocol's own work: a node's, or a certifier's."""
        return (await self._of_loop()).work

    async def operator(self, who: str, via: str) -> Operator:
        """To look and to act as a person: each act is an event that says ``who``, and ``via``
        what (``web``, ``cli``)."""
        reports = (await self._of_loop()).reports
        return Operator(reports.store, reports, self.env, self.settings, who, via)

    async def dsn(self) -> str:
        """Where the database is, for connections of your own; with ``embedded`` it is started."""
        return (await self.located()).dsn

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

    def configure(self, **options: Any) -> None:
        """Settings that win over those of the code, such as the command line's or a test's. Raises
        ConfigError while the app has connections open: :meth:`close` them first."""
        self._abandon_closed_loops()
        if self._stores or self.desk.is_open():
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

    async def close(self) -> None:
        """Close the connections of the running loop, and those that locks and leaders of any
        thread have left open. The app can be used again."""
        await asyncio.to_thread(self.desk.close_idle)
        stores = self._stores.pop(asyncio.get_running_loop(), None)
        if stores:
            await stores.close()

    async def _of_loop(self) -> Stores:
        self._forget_after_fork()
        loop = asyncio.get_running_loop()
        stores = self._stores.get(loop)
        if stores is None:
            settings = await self.located()
            self._abandon_closed_loops()
            stores = self._stores.setdefault(loop, Stores(settings))
        return stores

    def _abandon_closed_loops(self) -> None:
        """Each ``asyncio.run()`` has a loop of its own. Other threads may do this meanwhile."""
        closed = [loop for ref in self._stores.keyrefs() if (loop := ref()) and loop.is_closed()]
        for loop in closed:
            if left := self._stores.pop(loop, None):
                left.abandon()

    def _forget_after_fork(self) -> None:
        """A forked child shares sockets with its parent: it must open its own."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._stores = WeakKeyDictionary()
            self.env = Env()

    def _start_embedded(self) -> None:
        from leasehold.embedded import EmbeddedServer

        with self._lock:
            if self.settings.dsn != "embedded":
                return
            server = self._embedded or EmbeddedServer.start()
            settings = Settings.load({**vars(self.settings), "dsn": server.dsn})
            asyncio.run(migrate.apply(settings))
            # held until the process ends; the last process that holds it stops the server
            self._embedded, self.settings = server, settings
