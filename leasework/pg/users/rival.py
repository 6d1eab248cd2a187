"""A second session for tests of locks, with a check that it is not the first one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from leasework.errors import ConfigError, SameSession
from leasework.pg.users.kinds import described, recognise

_WHO = "select pg_backend_pid()"


class RivalSession:
    """A second session, which :func:`open_rival_session` opens."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection: psycopg.Connection[Any] = connection
        """In autocommit."""
        self.pid: int = connection.info.backend_pid
        """Of its server process."""

    def execute(self, query: str, parameters: Any = None) -> list[Any]:
        """Run one statement in its own transaction and return the rows."""
        cursor = self.connection.execute(query.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def differs_from(self, mine: Any) -> None:
        """Raises SameSession, an AssertionError, if ``mine`` is the same session. ``mine``: a pid,
        or a connection or session of a sync driver (for async: its ``pg_backend_pid()``). Raises
        ConfigError for anything else."""
        pid = mine if isinstance(mine, int) else backend_pid(mine)
        if pid == self.pid:
            raise SameSession(
                "both are the same session, which its own lock never blocks, so a test of locks "
                "would always pass here",
                got=f"server process {pid}",
                do="Let the code under test open its own connection",
            )


@contextmanager
def open_rival(dsn: str, beside: Any = None) -> Iterator[RivalSession]:
    with psycopg.connect(dsn, autocommit=True, application_name="rival") as connection:
        rival = RivalSession(connection)
        [(pid,)] = rival.execute(_WHO)
        if pid != rival.pid:
            raise SameSession(
                "the rival session goes through a pooler, which shares sessions between clients",
                got=f"server process {pid}, the connection was told {rival.pid}",
                do="Give the DSN of the server itself",
            )
        if beside is not None:
            rival.differs_from(beside)
        yield rival


def backend_pid(connection: Any) -> int:
    """The pid that the server reports; the driver may only know a pooler's. Raises ConfigError."""
    kind, inside = recognise(connection)
    row = None
    if kind == "sqlalchemy":
        inside = inside.connection() if hasattr(inside, "get_bind") else inside
        row = inside.exec_driver_sql(_WHO).first()
    elif kind == "django":
        with inside.cursor() as cursor:
            cursor.execute(_WHO)
            row = cursor.fetchone()
    elif kind == "psycopg":
        with psycopg.Cursor(inside, row_factory=tuple_row) as cursor:
            row = cursor.execute(_WHO).fetchone()
    if row is None:
        raise ConfigError(
            "leasework cannot read the server process of this kind of session",
            got=described(connection),
            do="Pass the result of its `select pg_backend_pid()`",
        )
    return int(row[0])
