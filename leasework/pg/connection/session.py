"""A session: one connection, opened with suitable timeouts and checked.

Each call has a timer on the client that ends the call and its connection, because a timeout on the
server limits neither a lost network link nor a COMMIT that waits for a standby.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from msgspec import Struct
from psycopg.pq.abc import PGresult
from psycopg.types.json import set_json_loads

from leasework import errors
from leasework.config import Settings
from leasework.model.job import decode
from leasework.pg.connection.connect import connect, read_iso
from leasework.pg.connection.dsn import read_dsn
from leasework.pg.connection.fast.copying import batched
from leasework.pg.connection.fast.link import Link, OnNotification, Row, settle
from leasework.pg.connection.faults import PRIMARY, translate
from leasework.pg.sql import in_sql, query, statement
from leasework.tuning import Tuning

# How soon TCP notices a dead peer. With psycopg's defaults, connections still hung after 15 s.
TCP = {
    "tcp_user_timeout": 2000,
    "keepalives": 1,
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 2,
}
_STRONG = ("on", "remote_apply")
_LOOKS_ANEW = ("read committed", "read uncommitted")  # the same in PostgreSQL

_STEADY = ("guard", "lease", "work", "user", "people")
"""Roles that repeat the same statements, each of which has an index."""
_GENERIC = ("guard",)
"""Roles whose statements need the same plan whatever their values are, and call no functions whose
plans depend on what is there."""
_ALLOW = "set local statement_timeout ="
_COPY_LINES, _COPY_CHARS = 500, 1 << 18  # the most in one write, so that other tasks can run
_LONGEST_MS = (1 << 31) - 1
_SHORTEST_SECONDS = 0.001

SCHEMA_NUMBERS = "session/schema"
"""The statement that reads the numbers that ``pool.check_schema`` checks."""
Params = dict[str, Any]
_DRIVERS = (psycopg.Error, OSError)
"""The errors of drivers."""
_OF_A_CALL = (*_DRIVERS, UnicodeEncodeError)
"""The errors of a call, including a parameter with a lone surrogate, which is not sent."""


class ServerFacts(Struct, frozen=True):
    """What a new connection learns about the server."""

    backend_pid: int
    pooled: bool
    """The connection is through a pooler: it has no session state and no LISTEN."""
    version: int
    schema_number: int | None
    """The number of the newest migration. None: the schema does not exist. 0: it has none."""
    schema_min_known: int
    """The number of the oldest migration that a program must know to work with the schema."""


class Timer:
    """The time limit of a connection's calls, one after the other. Most calls end long before the
    first check. So all share one timer of the loop: when it fires, it is set again for the call
    that runs then."""

    __slots__ = ("_handle", "_late", "_link", "_loop", "_seconds", "_until", "_wakes_at")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._until: float | None = None
        self._seconds = 0.0
        self._late = False

    def start(self, seconds: float) -> None:
        """Give the call ``seconds`` from now."""
        self._seconds, self._late = seconds, False
        now = self._loop.time()
        until = self._until = now + max(seconds, _SHORTEST_SECONDS)
        if self._handle is None or self._wakes_at > until:
            self.close()
            self._set(min(until, now + Tuning.socket_look_seconds))

    def extend(self, seconds: float) -> None:
        """Give the call ``seconds`` more."""
        self._seconds += seconds
        if self._until is not None:
            self._until += seconds

    def stop(self) -> None:
        """The call has ended."""
        self._until = None

    def close(self) -> None:
        """End the timer. There is no further call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def explained(self, error: Exception, *, sent: bool = True) -> errors.LeaseworkError:
        """Return the error to raise for the call's error."""
        if self._late:
            text = f"the database did not answer within {self._seconds:.3g} s"
            return errors.Unavailable(text, sent=sent)
        return translate(error, sent=sent)

    def _set(self, moment: float) -> None:
        self._wakes_at = moment
        self._handle = self._loop.call_at(moment, self._look)

    def _look(self) -> None:
        self._handle = None
        if self._until is None:
            return
        now = self._loop.time()
        if self._until > now:
            self._set(min(self._until, now + Tuning.socket_look_seconds))
            self._link.look()
        else:
            self._late = True
            self._link.give_up("the call took too long")


class Session:
    """An open connection in autocommit: each statement is its own transaction."""

    def __init__(self, connection: Link, facts: ServerFacts, settings: Settings) -> None:
        self.connection = connection
        self.facts = facts
        self._settings = settings
        self._timer = Timer(connection)
        self.idle_since = 0.0
        """By the loop's clock. Set by the pool."""
        self.waits = False
        """The pool has lent it to a call that may wait for other transactions."""

    @classmethod
    async def open(cls, settings: Settings, role: str, timeout: float | None = None) -> Session:
        """Connect and check the server, within ``timeout`` seconds (default: ``call_timeout``).
        ``role`` (guard, work, user …) appears in pg_stat_activity. Raises ServerError if leasework
        cannot work with the server, and Unavailable if it does not answer."""
        options = connect_options(settings, role)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + (settings.call_timeout if timeout is None else timeout)
        try:
            connection = await connect(options, give_up_at - loop.time())
        except TimeoutError:
            raise errors.Unavailable(
                "the database did not answer in time",
                do="Try again. leasework doctor checks the connection",
            ) from None
        except _DRIVERS as error:
            raise translate(error, sent=False) from None
        except RuntimeError as error:
            if "schedule new futures" not in str(error):
                raise
            # the threads that look up host names have ended
            raise errors.Unavailable("the process is ending", got=error) from None
        except UnicodeError:
            raise errors.WrongDsn(
                "a host in the DSN is not a valid host name", do="Correct the DSN"
            ) from None
        try:
            facts = await _learn(connection, settings, role, give_up_at - loop.time())
        except BaseException:
            await _close(connection)
            raise
        return cls(connection, facts, settings)

    async def fetch(self, name: str, params: Params, timeout: float) -> list[Row]:
        """Run one statement of sql/ and return its rows. ``timeout`` is in seconds. The plain way:
        through psycopg's cursor."""
        text = statement(name, self._settings.schema)
        async with self.guarded(timeout):
            cursor = await self.connection.execute(text, params)
            return await cursor.fetchall() if cursor.description else []

    async def fetch_fast(
        self, name: str, params: Params, timeout: float, free: Callable[[], None]
    ) -> list[Row]:
        """Do what ``fetch`` does, without a cursor. ``free`` is called once, when the statement
        ends, even if the caller was cancelled: the session then has room for the next statement,
        while this caller reads its rows."""
        answer: asyncio.Future[PGresult] = asyncio.get_running_loop().create_future()
        timer = self._timer
        timer.start(timeout)

        def ended(result: PGresult | None, error: BaseException | None) -> None:
            timer.stop()
            if isinstance(error, _DRIVERS):
                explained = timer.explained(error)
                explained.__cause__ = error
                error = explained
            free()
            settle(answer, result, error)

        try:
            self.connection.send(query(name, self._settings.schema), params, ended)
        except BaseException as error:
            timer.stop()
            free()
            if isinstance(error, _OF_A_CALL):
                raise timer.explained(error) from error
            raise
        result = await answer
        try:
            return self.connection.rows(result)
        except psycopg.Error as error:
            raise translate(error, sent=True) from error

    async def copy(
        self,
        name: str,
        lines: Iterable[str],
        timeout: float,
        most: int,
        most_bytes: int = 0,
        first: tuple[str, Params] | None = None,
    ) -> None:
        """COPY at most ``most`` lines (see fast/copying.py): all of them or none. ``timeout`` is in
        seconds for the whole call; each line and each byte extends it. The COMMIT is a separate
        message, sent when the rows are known to be in the table. So a COPY that the server executes
        after this call has given up is never committed, and a retry, which inserts the same ids,
        waits for the outcome of a COMMIT that still runs."""
        text = statement(name, self._settings.schema)
        async with self.guarded(timeout) as timer:
            longest = timeout + most * Tuning.line_seconds + most_bytes * Tuning.byte_seconds
            longest = min(_LONGEST_MS, max(1, round(longest * 1000)))
            # behind a pooler, the server's statement_timeout was not set
            allow = "" if self.facts.pooled else f"; {_ALLOW} {longest}"
            await self.connection.execute(f"begin{allow}".encode(), prepare=False)
            try:
                if first:
                    before = statement(first[0], self._settings.schema)
                    await self.connection.execute(before.encode(), first[1], prepare=False)
                async with self.connection.cursor() as cursor, cursor.copy(text) as copy:
                    for block in batched(lines, _COPY_LINES, _COPY_CHARS):
                        text = "".join(block)
                        timer.extend(
                            len(block) * Tuning.line_seconds + len(text) * Tuning.byte_seconds
                        )
                        await copy.write(text)
            except BaseException:
                with suppress(*_DRIVERS):  # raise the earlier error instead
                    await self.connection.rollback()
                raise
            await self.connection.commit()

    async def listen(self, call: OnNotification, timeout: float) -> None:
        """Listen to the schema's channel from now on; see :meth:`Link.on_notification`."""
        self.connection.on_notification(call)
        async with self.guarded(timeout):
            await self.connection.execute(f"listen {in_sql(self._settings.schema)}".encode())

    @asynccontextmanager
    async def guarded(self, timeout: float) -> AsyncIterator[Timer]:
        """Run a block with a timer that ends the connection, and translate the driver's errors."""
        timer = Timer(self.connection)  # not self._timer, because blocks of two tasks may overlap
        timer.start(timeout)
        try:
            yield timer
        except _OF_A_CALL as error:
            raise timer.explained(error) from error
        finally:
            timer.close()

    def shut(self) -> None:
        """Shut down the connection's socket. The current caller gets an error at once."""
        self.connection.give_up("the connection was shut down")

    @property
    def usable(self) -> bool:
        return self.connection.usable

    async def close(self) -> None:
        self._timer.close()
        await _close(self.connection)


def connect_options(settings: Settings, role: str) -> dict[str, Any]:
    """Return the parts of the DSN, with leasework's defaults. Raises WrongDsn."""
    return {
        **TCP,
        "application_name": f"leasework {role}",
        **read_dsn(settings.dsn),
    }


async def _close(connection: Link) -> None:
    with suppress(*_DRIVERS):
        await connection.close()


def _check_defaults(commit: str, isolation: str) -> None:
    """Check a role's defaults behind a pooler, where a session cannot set them. Raises
    UnsafeServer."""
    if commit not in _STRONG:
        raise errors.UnsafeServer(
            "commits of this role are not durable, and the connection is through a pooler",
            got=f"synchronous_commit={commit}",
            do="ALTER ROLE … SET synchronous_commit = on",
        )
    if isolation not in _LOOKS_ANEW:
        raise errors.UnsafeServer(
            "transactions of this role do not see what others commit, and the connection is "
            "through a pooler",
            got=f"default_transaction_isolation={isolation}",
            do="ALTER ROLE … SET default_transaction_isolation = 'read committed'",
        )


async def _learn(connection: Link, settings: Settings, role: str, timeout: float) -> ServerFacts:
    """Check that the server is safe, and set the session's settings where that is possible."""
    timer = Timer(connection)
    timer.start(timeout)
    try:
        set_json_loads(decode, connection)
        encoding = connection.info.parameter_status("server_encoding")
        if encoding not in (None, "UTF8"):  # a pooler may not tell
            raise errors.UnsafeServer(
                "the database's encoding is not UTF8",
                got=f"encoding {encoding}",
                do="Use another database: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
            )
        await read_iso(connection)
        cursor = await connection.execute(statement("session/facts", settings.schema))
        row = await cursor.fetchone()
        assert row is not None
        pid, recovering, read_only, commit, isolation, version, has_schema = row
        pooled = pid != connection.info.backend_pid
        if (recovering or read_only) and role != "replica":
            raise errors.ReadOnlyServer(
                "the server is a replica" if recovering else errors.READ_ONLY,
                got=f"{connection.info.host}:{connection.info.port}",
                do=PRIMARY if recovering else errors.WRITE_AGAIN,
            )
        if version < 150000:
            raise errors.UnsafeServer(
                "PostgreSQL 15 or newer is needed", got=version, do="Upgrade the server"
            )
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
                    "generic": role in _GENERIC,
                },
            )
        number, min_known = None, 0
        if has_schema:
            cursor = await connection.execute(statement(SCHEMA_NUMBERS, settings.schema))
            number, min_known = await cursor.fetchone() or (None, 0)
        return ServerFacts(pid, pooled, version, number, min_known)
    except _DRIVERS as error:
        raise timer.explained(error, sent=False) from error
    finally:
        timer.close()
