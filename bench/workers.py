"""Worker processes of one contender, on one database, with a ledger of what they ran."""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.cost import resident_mb, tree_seconds
from bench.ledger import Ledgers
from bench.process import Contender, Side, call
from bench.redis import redis
from bench.server import Server

LOOK_SECONDS = 0.003


class Wrong(Exception):
    """A job was lost, ran twice, is not recorded as finished, or nothing went on."""


def queries_of(contender: Contender) -> Any:
    return importlib.import_module(f"bench.queries.{contender.module}")


class Place:
    """A database with a contender's tables, and a connection ``watcher`` to look at it."""

    def __init__(
        self, server: Server, contender: Contender, database: str, dsn: str, folder: Path
    ) -> None:
        self.server = server
        self.contender = contender
        self.dsn = dsn
        """What the contender is given: of the database, or of its redis."""
        self.database = database
        self.dbname = str(conninfo_to_dict(database)["dbname"])
        self.folder = folder
        self.ledgers = Ledgers(folder)
        self.queries = queries_of(contender)
        self.watcher: psycopg.Connection[Any] = psycopg.connect(database, autocommit=True)

    def fresh_ledgers(self) -> None:
        """For another slice in the same database."""
        self.folder = Path(tempfile.mkdtemp(prefix="more-", dir=self.folder))
        self.ledgers = Ledgers(self.folder)

    def call(self, verb: str, **options: Any) -> Any:
        """A verb of the contender, run to its end in a process of its own."""
        return call(self.contender, verb, dsn=self.dsn, **options)

    def unfinished(self) -> bool:
        return bool(self.queries.unfinished(self.watcher, self.dsn))

    def newest(self) -> Any:
        """A place in the order of jobs, behind which those come that are enqueued from now on."""
        newest = getattr(self.queries, "newest", None)  # some peers have none
        return newest and newest(self.watcher)

    def unfinished_since(self, newest: Any) -> bool:
        """The same as ``unfinished``, of jobs behind that place: beside a held transaction it takes
        long to walk over all that are dead, and is no part of what is measured."""
        if newest is None:
            return self.unfinished()
        return bool(self.queries.unfinished_since(self.watcher, newest))

    def finished(self) -> int | None:
        """How many are recorded as finished; None where nothing is kept."""
        count: int | None = self.queries.finished(self.watcher, self.dsn)
        return count

    @contextmanager
    def workers(
        self, count: int, entries: int, limit_seconds: float = 170.0, **options: Any
    ) -> Iterator[Workers]:
        """``count`` processes that work, all started at one moment."""
        given = {"dsn": self.dsn, "folder": str(self.folder), "entries": entries, **options}
        given.update(self.contender.work)
        with ExitStack() as stack:
            sides = [
                stack.enter_context(Side(self.contender, "work", **given)) for _ in range(count)
            ]
            for side in sides:
                side.ready()
            for side in sides:
                side.go()
            yield Workers(self, sides, time.monotonic() + limit_seconds)


class Workers:
    """Running ones."""

    def __init__(self, place: Place, sides: list[Side], limit: float) -> None:
        self._place = place
        self.sides = sides
        self._limit = limit

    def wait(self, until: Callable[[], bool], pause: float = LOOK_SECONDS) -> None:
        """Raises Wrong when it lasts too long, SideFailed when a worker ended."""
        while not until():
            for side in self.sides:
                side.check()
            if time.monotonic() > self._limit:
                count = self._place.ledgers.count
                raise Wrong(f"{self._place.contender.name}: not in time; {count} jobs ran")
            time.sleep(pause)

    def wait_ran(self, count: int, pause: float = LOOK_SECONDS) -> None:
        self.wait(lambda: self._place.ledgers.count >= count, pause)

    def cpu_seconds(self) -> float:
        """Of the worker processes, with their threads and children."""
        return sum(tree_seconds(side.process.pid) for side in self.sides)

    def memory_mb(self, kind: str = "VmRSS") -> float:
        """Resident, of the largest worker process. ``RssAnon``: without the ledger, which grows."""
        return max(resident_mb(side.process.pid, kind) for side in self.sides)

    def stop(self) -> None:
        for side in self.sides:
            side.process.terminate()
        for side in self.sides:
            side.stopped()


@contextmanager
def place(server: Server, contender: Contender) -> Iterator[Place]:
    """A fresh one; a checkpoint before it, so that full pages in the WAL are the load's."""
    with ExitStack() as stack:
        database = stack.enter_context(server.database())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ledger-"))
        dsn = stack.enter_context(redis()) if contender.redis else database
        server.checkpoint()
        call(contender, "prepare", dsn=dsn)
        here = Place(server, contender, database, dsn, Path(folder))
        stack.callback(here.watcher.close)
        yield here
