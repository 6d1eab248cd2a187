"""Cells: one application on several PostgreSQL servers, each with its part of the keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from hashlib import blake2b
from uuid import UUID

from leasework.app import App, SyncApp
from leasework.app.schedules import StoredSchedules
from leasework.config import Limits, check_text
from leasework.errors import ConfigError, ServerError, Unavailable, suggest
from leasework.telemetry import logger

Key = str | int | UUID
"""What decides the cell, such as a customer's id. 7 and "7" are the same key."""


class Cells:
    """One application on several PostgreSQL servers, its cells. Each key belongs to one of them::

        app = App(name="shop")  # the tasks and schedules, and no database
        cells = Cells(app, {"eu1": dsn1, "eu2": dsn2, "eu3": dsn3}, schedules="eu1")

        await cells.of(customer).enqueue(send.job(customer))

    ``databases``: the DSNs by the cells' names. The names decide which keys a cell has: keep them
    when a server moves. ``schedules``: the cell where the schedules of the code run. ``pins``: keys
    with another cell than that of their hash. Nothing joins cells: no transaction, unique key,
    limit, batch, lock or leader spans two of them.

    Raises ConfigError, also if ``app`` has a database: its tasks would enqueue there.
    """

    def __init__(
        self,
        app: App,
        databases: Mapping[str, str],
        *,
        schedules: str,
        pins: Mapping[str, str] | None = None,
    ) -> None:
        if app.settings.dsn:
            do = "Give DSNs to Cells alone: none to the App, and none in LEASEWORK_DSN"
            raise ConfigError("the App of Cells has a database of its own", do=do)
        _check_names(databases)
        if not all(databases.values()) or len({*databases.values()}) < len(databases):
            raise ConfigError("each cell needs a DSN of its own", got=[*databases])
        if schedules not in databases:
            do = suggest(str(schedules), databases)
            raise ConfigError("schedules names no cell", got=schedules, do=do)
        self.apps: dict[str, App] = {}
        """The App of each cell, for its worker, schema, dashboard and sync calls."""
        given = vars(app.settings)
        for name, dsn in databases.items():
            cell = App(lifespan=app.process_lifespan, codec=app.codec, **{**given, "dsn": dsn})
            cell.registry, cell.taking_part = app.registry, app.taking_part  # for later tasks, too
            if name == schedules:
                cell._planned = app._planned
                cell.schedules = StoredSchedules(cell, cell._planned)
                cell.sync = SyncApp(cell, cell.schedules)
            self.apps[name] = cell
        self._pins: dict[str, str] = {}
        self.pin(pins or {})

    def pin(self, pins: Mapping[str, str]) -> None:
        """Replace all pins, for example by the rows of a table that each process reads every few
        seconds. Raises ConfigError if one of them names no cell; the earlier pins then stay."""
        read = {_text(key): name for key, name in pins.items()}
        for key, name in read.items():
            if name not in self.apps:
                do = suggest(str(name), self.apps)
                raise ConfigError(f"the pin of {key!r} names no cell", got=name, do=do)
        self._pins = read

    def name_of(self, key: Key) -> str:
        """Return the name of the cell that the key belongs to. Raises ConfigError."""
        return self._pins.get(_text(key)) or _owner(_text(key), self.apps)

    def of(self, key: Key) -> App:
        """Return the App of the cell that the key belongs to. Raises ConfigError."""
        return self.apps[self.name_of(key)]

    def moves(self, keys: Iterable[Key], names: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the keys that would move if the cells had these names, and their cells now and
        then. Before you add a cell, pin them to their cells of now. A pinned key moves only if its
        cell is not among the names. Raises ConfigError."""
        wanted = _check_names(names)
        found = {}
        for key in map(_text, keys):
            now = self.name_of(key)
            then = now if key in self._pins and now in wanted else _owner(key, wanted)
            if then != now:
                found[key] = now, then
        return found

    @asynccontextmanager
    async def nodes(
        self, *, queues: Mapping[str, int] | None = None, execute: bool = True
    ) -> AsyncIterator[None]:
        """Run a node of each cell in this process. A cell whose server does not answer is tried
        again until it does, and the others work. For the options, see :meth:`App.node`."""
        try:
            async with asyncio.TaskGroup() as group:
                run = [_keep_node(name, app, queues, execute) for name, app in self.apps.items()]
                tasks = [group.create_task(each) for each in run]
                yield
                for task in tasks:  # a group cancels its tasks only after an error
                    task.cancel()
        except BaseExceptionGroup as errors:  # of the block, or of a node that can never start
            raise errors.exceptions[0] from None

    async def close(self) -> None:
        """Close the connections of all cells: see :meth:`App.close`."""
        await asyncio.gather(*[app.close() for app in self.apps.values()])


def _owner(key: str, cells: Iterable[str]) -> str:
    """Return the cell of the highest weight for the key (rendezvous hashing). The weight depends on
    the two texts alone, so it is the same in all processes and versions."""
    return max(cells, key=lambda cell: blake2b(f"{cell}\0{key}".encode(), digest_size=8).digest())


def _text(key: Key) -> str:
    if isinstance(key, bool) or not isinstance(key, Key):
        raise ConfigError("a key is text, a whole number or a UUID", got=key, do="Use str(…)")
    return check_text("a key", str(key), Limits.text_chars)


def _check_names(names: Iterable[str]) -> list[str]:
    if found := [check_text("a cell's name", name, Limits.text_chars) for name in names]:
        return found
    raise ConfigError("there are no cells", got=found, do="Give their names")


async def _keep_node(name: str, app: App, queues: Mapping[str, int] | None, execute: bool) -> None:
    """Run a node of the cell until this task is cancelled."""
    stopping = asyncio.current_task().cancelling  # type: ignore[union-attr]
    said = ""
    while not stopping():
        try:
            async with app.node(queues=queues, execute=execute):
                await asyncio.Event().wait()
        except (ServerError, Unavailable) as error:
            if said != (said := str(error)):
                logger.warning("the cell %s has no node here, and is tried again: %s", name, error)
        await asyncio.sleep(app.env.jitter(1.0, 0.25))
