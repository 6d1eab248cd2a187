"""DjangoApp: an App on one of Django's databases, in Django's transactions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any, Unpack

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections, transaction
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from leasework.app import App
from leasework.app.core import Lifespan, M
from leasework.app.sync import SyncApp, SyncJob
from leasework.config import ConfigureGiven, Settings, SettingsGiven
from leasework.errors import ConfigError, suggest
from leasework.jobs.tasks import Registry
from leasework.model.codec import Codec
from leasework.model.job import JobRequest


class DjangoApp(App):
    """An App for a Django project::

        app = DjangoApp(recover_within=30)  # in shop/jobs.py
        LEASEWORK = {"APP": "shop.jobs:app"}  # in settings.py

    ``database`` names one of Django's DATABASES. Inside ``transaction.atomic``, what ``app.sync``
    enqueues is part of that transaction, and so are the changes of ``app.sync.schedules`` and
    ``app.sync.deadline``. Before and after each job in a thread, leasework closes the thread's old
    and broken database connections, as Django does around a request. An ``async def`` task has
    connections of its own.

    ``options`` are those of :class:`leasework.App`. With ``dsn``, jobs are in that database, over
    connections of leasework's own, and not part of Django's transactions.

    Raises ConfigError if the database is not PostgreSQL.
    """

    def __init__(
        self,
        *,
        database: str = "default",
        dsn: str | None = None,
        lifespan: Lifespan | None = None,
        codec: Codec | None = None,
        **options: Unpack[SettingsGiven],
    ) -> None:
        self.database = "" if dsn else database
        """The name in DATABASES; empty if the app has a DSN of its own."""
        super().__init__(dsn or database_dsn(database), lifespan=lifespan, codec=codec, **options)
        self.registry: _Registry = _Registry(self.settings.payload_limit, self.codec)
        self.sync: SyncApp = _SyncInDjango(self, self.schedules)

    def middleware(self, function: M, /) -> M:
        """See :meth:`App.middleware`."""
        super().middleware(_tidy(function))
        return function

    async def located(self) -> Settings:
        """The settings, with the DSN of Django's database as it is now: Django's test runner
        replaces the database after the app was made."""
        old, new = self.settings.dsn, self.current_dsn()
        if new != old and not (_same_but_for_the_password(new, old) and self.in_use()):
            super().configure(dsn=new)
        return await super().located()

    def current_dsn(self) -> str:
        """The DSN of Django's database as it is now."""
        return database_dsn(self.database) if self.database else super().current_dsn()

    def configure(self, **options: Unpack[ConfigureGiven]) -> None:
        """See :meth:`App.configure`. With ``dsn``, the app no longer uses Django's database."""
        super().configure(**options)
        if options.get("dsn") is not None:
            self.database = ""


class _SyncInDjango(SyncApp):
    """``app.sync``, whose changes are part of the calling thread's ``transaction.atomic``."""

    _app: DjangoApp

    def joined(self, on: Any) -> Any:
        database = self._app.database
        if on is None and database and connections[database].in_atomic_block:
            return connections[database]
        return on

    def enqueue_many(
        self, requests: Iterable[JobRequest[Any]], *, on: Any = None
    ) -> list[SyncJob[Any]]:
        database = self._app.database
        if self.joined(on) is not None or not database:
            return super().enqueue_many(requests, on=on)
        with transaction.atomic(using=database):
            return super().enqueue_many(requests)


class _Registry(Registry):
    """The tasks of the project."""

    first_import = "leasework.integrations.django.set_up"

    def __init__(self, payload_limit: int, codec: Codec | None) -> None:
        super().__init__(payload_limit, codec)
        self.more_queues: set[str] = set()
        """Those that the setting TASKS names."""

    def as_handler(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return _tidy(function)

    def queues(self) -> set[str]:
        return super().queues() | self.more_queues


def _tidy(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function. In a job's thread, broken and old connections are closed before and after
    it, since one may have become too old while no job ran."""
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def in_loop(*args: Any, **kwargs: Any) -> Any:
            # its queries have a thread of their own until it ends, as a request under ASGI has
            async with ThreadSensitiveContext():
                try:
                    return await function(*args, **kwargs)
                finally:
                    await sync_to_async(connections.close_all)()

        return in_loop

    @wraps(function)
    def in_thread(*args: Any, **kwargs: Any) -> Any:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return in_thread


def _same_but_for_the_password(one: str, other: str) -> bool:
    """A backend may make a new password, such as a token, for each connection. The ones that are
    open keep theirs, and the node would have to stop for another one."""
    first, second = conninfo_to_dict(one), conninfo_to_dict(other)
    return {**first, "password": None} == {**second, "password": None}


def database_dsn(alias: str) -> str:
    """The DSN of one of Django's DATABASES. Raises ConfigError if it is not PostgreSQL."""
    if alias not in connections.settings:
        raise ConfigError(f"DATABASES has no {alias!r}", do=suggest(alias, connections.settings))
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise ConfigError(
            f"leasework needs PostgreSQL, and DATABASES[{alias!r}] is another database",
            got=connection.settings_dict["ENGINE"],
            do='Name another one of DATABASES: LEASEWORK = {"DATABASE": "jobs"}, or a database '
            'outside Django: LEASEWORK = {"DSN": "postgresql://…"}',
        )
    given = connection.get_connection_params()
    if role := connection.settings_dict.get("OPTIONS", {}).get("assume_role"):
        # Django sends SET ROLE itself
        escaped = re.sub(r"([\\\s])", r"\\\1", role)
        given["options"] = f"{given.get('options', '')} -c role={escaped}".strip()
    return make_conninfo(**{name: value for name, value in given.items() if name in _of_libpq()})


@cache
def _of_libpq() -> set[str]:
    """The parameters of a DSN. Django adds some of the driver's own."""
    names = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    return names - {"client_encoding"}
