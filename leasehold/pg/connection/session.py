"""One connection: opened with the right timeouts, checked, and closed by a timer of our own.

Every call has a client-side timer that ends the call and its connection: a server-side timeout
bounds neither a lost link nor a COMMIT that waits for a standby.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.json import set_json_loads

from leasehold import errors
from leasehold.config import Settings
from leasehold.model.job import decode
from leasehold.pg.connection.connect import connect, read_iso
from leasehold.pg.connection.copying import batched
from leasehold.pg.connection.dsn import read_dsn
from leasehold.pg.connection.exchange import Answer, Row
from leasehold.pg.connection.faults import translate
from leasehold.pg.connection.link import Ear, Ended, Link
from leasehold.pg.connection.timer import Timer
from leasehold.pg.sql import query, statement

# What TCP may take to notice a dead peer; psycopg's defaults still hung after 15 s.
TCP = {
    "tcp_user_timeout": 2000,
    "keepalives": 1,
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 2,
}
_STRONG = ("on", "remote_apply")
_LOOKS_ANEW = ("read committed", "read uncommitted")  # PostgreSQL knows no difference

_STEADY = ("guard", "lease", "work", "user", "web")
"""Roles that send the same statements all the time, and have an index for each of them."""
_ALLOW = "set local statement_timeout ="
_COPY_LINES, _COPY_CHARS = 500, 1 << 18  # in one write, so that the loop has its turn
_LINE_SECONDS = 1 / 5000
BYTE_SECONDS = 1 / 100_000
"""What a call that sends many bytes gets beyond its time limit, for each: a slow link needs it."""
_LONGEST_MS = (1 << 31) - 1

Params = dict[str, Any]
_DRIVERS = (psycopg.Error, OSError)
"""Their errors."""
_OF_A_CALL = (*_DRIVERS, UnicodeEncodeError)
"""Also of one that was not sent: a parameter holds half of a surrogate pair."""


@dataclass(frozen=True)
class ServerFacts:
    """What a new connection learns about the other end."""

    backend_pid: int
    pooled: bool
    """A pooler stands between: no session state, no LISTEN."""
    version: int
    schema_number: int | None
    """The newest migration; None: the schema is not there."""
    schema_min_known: int
    """The oldest migration that a program must know to work with the schema."""


class Session:
    """One open connection in autocommit: each statement is its own transaction."""

    def __init__(self, connection: Link, facts: ServerFacts, settings: Settings) -> None:
        self.connection = connection
        self.facts = facts
        self._settings = settings
        self._timer = Timer(connection)
        self.idle_since = 0.0
        """By the loop's clock; kept by its pool."""

    @classmethod
    async def open(cls, settings: Settings, role: str, timeout: float | None = None) -> Session:
        """``role`` (guard, work, user …) is seen in pg_stat_activity; ``timeout`` in seconds,
        for all of it.

        Raises ServerError with the reason when the server cannot serve us, Unavailable when it
        does not answer.
        """
        given = read_dsn(settings.dsn)
        defaults: dict[str, Any] = {
            **TCP,
            "connect_timeout": max(2, round(settings.call_timeout)),
            "application_name": f"leasehold {role}",
        }
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + (settings.call_timeout if timeout is None else timeout)
        try:
            async with asyncio.timeout_at(give_up_at):
                connection = await connect({**defaults, **given})
        except TimeoutError:
            raise errors.Unavailable("the database did not answer in time") from None
        except _DRIVERS as error:
            raise translate(error, sent=False) from None
        except UnicodeError:
            raise errors.WrongDsn("a host of the DSN is no name of a host") from None
        try:
            facts = await _learn(connection, settings, role, give_up_at - loop.time())
        except BaseException:
            await _close(connection)
            raise
        return cls(connection, facts, settings)

    async def fetch(self, name: str, params: Params, timeout: float) -> list[Row]:
        """Run one statement of sql/ and give its rows. ``timeout`` in seconds."""
        text = statement(name, self._settings.schema)
        async with self.guarded(timeout):
            cursor = await self.connection.execute(text, params)
            return await cursor.fetchall() if cursor.description else []

    def send(self, name: str, params: Params, timeout: float, ended: Ended) -> None:
        """Run one statement of sql/ as a transaction of its own. ``ended`` is called once, with
        its Answer or with what ``fetch`` would raise, whatever becomes of who sent it.

        Raises what ``fetch`` would raise when it cannot be sent.
        """
        timer = self._timer
        timer.start(timeout)

        def then(answer: Answer | None, error: BaseException | None) -> None:
            timer.stop()
            if isinstance(error, _DRIVERS):
                told = timer.explained(error)
                told.__cause__ = error
                error = told
            ended(answer, error)

        try:
            self.connection.send(query(name, self._settings.schema), params, then)
        except BaseException as error:
            timer.stop()
            if isinstance(error, _OF_A_CALL):
                raise timer.explained(error) from error
            raise

    async def copy(
        self, name: str, lines: Iterable[str], timeout: float, most: int, most_bytes: int = 0
    ) -> None:
        """COPY lines of text in (see pg/copying.py), at most so many; all of them or none.
        ``timeout``: of it all; each line and each byte add to it.

        The COMMIT is a message of its own, sent when the rows are known to be in the table: a
        COPY that the server carries out when we have given up is never committed, and whoever
        tries again waits for the fate of a COMMIT that is under way at the rows' own ids.
        """
        text = statement(name, self._settings.schema)
        async with self.guarded(timeout) as timer:
            longest = timeout + most * _LINE_SECONDS + most_bytes * BYTE_SECONDS
            longest = min(_LONGEST_MS, max(1, round(longest * 1000)))
            # behind a pooler the server's own limit was not set
            allow = "" if self.facts.pooled else f"; {_ALLOW} {longest}"
            await self.connection.execute(f"begin{allow}".encode(), prepare=False)
            try:
                async with self.connection.cursor() as cursor, cursor.copy(text) as copy:
                    for block in batched(lines, _COPY_LINES, _COPY_CHARS):
                        text = "".join(block)
                        timer.extend(len(block) * _LINE_SECONDS + len(text) * BYTE_SECONDS)
                        await copy.write(text)
            except BaseException:
                with suppress(*_DRIVERS):  # what went wrong before says more
                    await self.connection.rollback()
                raise
            await self.connection.commit()

    async def listen(self, ear: Ear, timeout: float) -> None:
        """Listen to the schema's channel from now on; see :meth:`Link.hear`."""
        self.connection.hear(ear)
        async with self.guarded(timeout):
            await self.connection.execute(f"listen {self._settings.schema}".encode())

    @asynccontextmanager
    async def guarded(self, timeout: float) -> AsyncIterator[Timer]:
        """A block with a timer that ends the connection; errors become ours."""
        timer = Timer(self.connection)  # of its own: blocks of two tasks may overlap
        timer.start(timeout)
        try:
            yield timer
        except _OF_A_CALL as error:
            raise timer.explained(error) from error
        finally:
            timer.close()

    def shut(self) -> None:
        """End the connection at the socket: whoever waits on it gets an error at once."""
        self.connection.give_up("the connection was shut down")

    @property
    def usable(self) -> bool:
        return self.connection.usable

    async def close(self) -> None:
        self._timer.close()
        await _close(self.connection)


def read(answer: Answer) -> list[Row]:
    """The rows of an answer, in Python's types."""
    try:
        return answer.rows()
    except psycopg.Error as error:
        raise translate(error, sent=True) from error


async def _close(connection: Link) -> None:
    with suppress(*_DRIVERS):
        await connection.close()


def _check_defaults(commit: str, isolation: str) -> None:
    """Of a role behind a pooler, where we can set nothing. Raises UnsafeServer."""
    if commit not in _STRONG:
        raise errors.UnsafeServer(
            "commits of this role are not durable, and a pooler stands between",
            got=f"synchronous_commit={commit}",
            do="ALTER ROLE … SET synchronous_commit = on",
        )
    if isolation not in _LOOKS_ANEW:
        raise errors.UnsafeServer(
            "transactions of this role do not see what others commit, and a pooler stands between",
            got=f"default_transaction_isolation={isolation}",
            do="ALTER ROLE … SET default_transaction_isolation = 'read committed'",
        )


async def _learn(connection: Link, settings: Settings, role: str, timeout: float) -> ServerFacts:
    """Who is on the other end, and is it safe? Sets what a session may set."""
    timer = Timer(connection)
    timer.start(timeout)
    try:
        set_json_loads(decode, connection)
        if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
            raise errors.UnsafeServer(
                "the database does not know which characters its bytes are",
                got="encoding SQL_ASCII",
                do="Use a database with another encoding: "
                "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
            )
        await read_iso(connection)
        cursor = await connection.execute(statement("session/facts", settings.schema))
        row = await cursor.fetchone()
        assert row is not None
        pid, recovering, read_only, commit, isolation, version, has_schema = row
        pooled = pid != connection.info.backend_pid
        if recovering or read_only:
            raise errors.ReadOnlyServer(
                "the server is a replica or read-only",
                got=f"{connection.info.host}:{connection.info.port}",
                do="Give the primary's address, or target_session_attrs=read-write",
            )
        if version < 150000:
            raise errors.UnsafeServer("PostgreSQL 15 or newer is needed", got=version)
        if pooled:
            _check_defaults(commit, isolation)
            connection.prepare_threshold = None
        else:
            await connection.execute(
                statement("session/settings", settings.schema),
                {
                    "commit": commit if commit in _STRONG else "on",
                    "statement_ms": str(round(settings.call_timeout * 1000)),
                    "steady": role in _STEADY,
                },
            )
        number, min_known = None, 0
        if has_schema:
            cursor = await connection.execute(statement("session/schema", settings.schema))
            number, min_known = await cursor.fetchone() or (None, 0)
        return ServerFacts(pid, pooled, version, number, min_known or 0)
    except _DRIVERS as error:
        raise timer.explained(error, sent=False) from error
    finally:
        timer.close()
