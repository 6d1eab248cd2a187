"""Operations on the user's connection, inside the user's own transaction.

The connection's encoding is the user's choice, so all texts are sent as JSON in ASCII. None of the
drivers is imported here. On a sync driver these coroutines never suspend.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row

from leasework.config import Limits
from leasework.errors import (
    BadJob,
    LeaseworkError,
    LostClaim,
    LostLease,
    ReadOnlyServer,
    SchemaMissing,
    WrongConnection,
)
from leasework.model.codec import Codec, sealed
from leasework.model.job import JobRequest, encode
from leasework.model.lock_key import LockKey
from leasework.model.outcome import StepItem
from leasework.own_tasks import may_block
from leasework.pg.connection.faults import sqlstate_of, translate
from leasework.pg.sql import statement
from leasework.pg.users.kinds import ASYNC, described, recognise

_IDLE_MS = 10_000
"""How long a transaction that holds a job's row may be idle. That allows a pause between two
statements, but the lock ends before a dead node's jobs are rescued."""
_FAILED_TRANSACTION = "25P02"
_REFUSED = "LH001"
"""Raised by ``leasework.refuse``."""
_READ_ONLY = "25006"
_BUSY = (
    "the connection is busy with a copy, a stream or another statement",
    "Wait for its end first. To enqueue several jobs, use enqueue_many",
)
_CLOSED = ("the connection is closed", "Pass an open one")
_HAS_FAILED = "the transaction has already failed"
_ROLL_BACK = "Roll it back first"
_PARAMETER = re.compile(r"%\((\w+)\)s")

Rows = Sequence[Sequence[Any]]
Run = Callable[[Any, str, dict[str, Any]], Awaitable[Rows]]


_NOT_ASCII = re.compile("[^\x00-\x7f]")


@dataclass(eq=False)
class UserConnections:
    """The operations of the client and the contexts with ``on=``. In a test with a database of its
    own, they refuse a connection to any other database than ``_only``."""

    _schema: str
    _codec: Codec | None = None
    _only: str = ""
    _result_bytes: int = Limits.result_bytes

    async def enqueue(
        self, connection: Any, jobs: Sequence[tuple[UUID, JobRequest[Any]]], payload_limit: int
    ) -> list[tuple[UUID, bool]]:
        """(id, created) per job. Commits with the user's transaction, or not at all."""
        requests = [job.as_request(job_id, payload_limit) for job_id, job in jobs]
        return _created(await self.fetch(connection, "user/enqueue", jobs=requests))

    async def assert_mine(self, connection: Any, job: UUID, node: UUID, token: int) -> None:
        await self.fetch(connection, "user/assert_mine", job=job, node=node, token=token)

    async def complete(
        self, connection: Any, job: UUID, node: UUID, token: int, result: Any
    ) -> str | None:
        written = None if result is None else encode("result", result, self._result_bytes)
        text = written and sealed(self._codec, "result", written, self._result_bytes)
        mine = {"job": job, "node": node, "token": token}
        await self.fetch(connection, "user/complete", **mine, result=text and _json_in_ascii(text))
        return written

    async def record_step(self, connection: Any, node: UUID, item: StepItem) -> None:
        """Record a step, if the user's transaction commits. Raises LostClaim."""
        sent = {"name": {"name": item.name}, "result": _json_in_ascii(item.result)}
        await self.fetch(connection, "user/step", **{**item._asdict(), **sent}, node=node)

    async def signal(
        self, connection: Any, job: UUID, name: str, payload: str | None
    ) -> str | None:
        """Send a signal, if the user's transaction commits."""
        sent = {"name": {"name": name}, "payload": payload and _json_in_ascii(payload)}
        found: str | None = (await self.fetch(connection, "user/signal", job=job, **sent))[0][0]
        return found

    async def make_batch(
        self,
        connection: Any,
        batch: tuple[UUID, dict[str, Any]],
        jobs: Sequence[tuple[UUID, JobRequest[Any]]],
        payload_limit: int,
    ) -> list[tuple[UUID, bool]]:
        """(id, created) per job of the batch, if the user's transaction commits."""
        requests = [job.as_request(job_id, payload_limit) for job_id, job in jobs]
        sent = {"batch": batch[0], "definition": batch[1], "jobs": requests}
        return _created(await self.fetch(connection, "user/make_batch", **sent))

    async def arm_deadline(
        self, connection: Any, deadline: UUID, name: str, promise: dict[str, Any]
    ) -> tuple[UUID, bool]:
        """(id, created). Armed when the user's transaction commits."""
        sent = {"id": deadline, "name": json.dumps(name), "promise": promise}
        return _created(await self.fetch(connection, "user/deadline_arm", **sent))[0]

    async def find_deadline(self, connection: Any, name: str) -> UUID | None:
        """The deadline's id, as the user's transaction sees it."""
        rows = await self.fetch(connection, "user/deadline_find", name=json.dumps(name))
        return UUID(str(rows[0][0])) if rows else None

    async def end_deadline(self, connection: Any, deadline: UUID, verdict: str) -> str | None:
        """End a deadline and return its new state, if the transaction commits."""
        rows = await self.fetch(connection, "user/deadline_end", id=deadline, verdict=verdict)
        state: str | None = rows[0][0]
        return state

    async def database_now(self, connection: Any) -> datetime:
        """The database's time."""
        [[seconds]] = await self.fetch(connection, "user/clock")
        return datetime.fromtimestamp(seconds, UTC)

    async def put_schedule(self, connection: Any, app: str, definition: dict[str, Any]) -> bool:
        """Make or replace a schedule, if the user's transaction commits. False: the code defines
        one of that name."""
        sent = {"app": json.dumps(app), "definition": definition}
        return bool((await self.fetch(connection, "user/schedule_put", **sent))[0][0])

    async def spec_of(self, connection: Any, app: str, name: str) -> dict[str, Any] | None:
        """The spec of a schedule, as the user's transaction sees it."""
        rows = await self.fetch(connection, "user/schedule_spec", **_schedule(app, name))
        return json.loads(rows[0][0]) if rows else None

    async def delete_schedule(self, connection: Any, app: str, name: str) -> bool:
        """Delete a schedule that was put, if the user's transaction commits."""
        return bool(await self.fetch(connection, "user/schedule_delete", **_schedule(app, name)))

    async def pause_schedule(self, connection: Any, app: str, name: str, paused: bool) -> bool:
        """Pause a schedule, or resume it, if the user's transaction commits."""
        sent = {**_schedule(app, name), "paused": paused}
        return bool(await self.fetch(connection, "user/schedule_pause", **sent))

    async def advisory_lock(
        self, connection: Any, key: LockKey, shared: bool, wait: float | None, check: bool
    ) -> tuple[bool, bool]:
        """Take an advisory lock until the user's transaction ends. Return whether it is acquired,
        and whether the server shows it (``check``). ``wait`` is in seconds; None tries once."""
        wait_ms = None if wait is None else max(1, round(wait * 1000))
        sent = {**key.params, "shared": shared, "wait_ms": wait_ms, "check": check}
        [[got, shown]] = await self.fetch(connection, "user/advisory_lock", **sent)
        return bool(got), bool(shown)

    async def verify(self, connection: Any, name: str, token: int, idle_seconds: float) -> None:
        """Hold a lease's fence until the user's transaction ends. Raises LostLease."""
        idle_ms = max(1, round(idle_seconds * 1000))
        sent = {"name": json.dumps(name), "token": token, "idle_ms": idle_ms}
        try:
            await self.fetch(connection, "user/verify", **sent)
        except LostClaim:
            raise LostLease(
                "the lease was lost, and another process may hold it", got=name, do=_ROLL_BACK
            ) from None

    def need_sync(self, connection: Any) -> None:
        """Raises BadJob if calls on it must be awaited. Check this first: a call abandoned halfway
        leaves the user's connection unusable."""
        if recognise(connection)[0] in ASYNC:
            raise BadJob(
                "code without an event loop needs a connection of a sync driver",
                got=described(connection),
                do="Pass a psycopg.Connection, a SQLAlchemy Session or a Django connection; "
                "or use `await app.enqueue(..., on=connection)` and `async def` handlers",
            )

    async def fetch(self, connection: Any, statement_name: str, /, **params: Any) -> Rows:
        """Run one statement of sql/ in the user's transaction, and return its rows. Ids are sent as
        text, dicts and lists as JSON. Raises WrongConnection."""
        kind, inner = recognise(connection)
        if not kind:
            raise WrongConnection(
                "on= cannot use this",
                got=described(connection),
                do="Pass a psycopg or asyncpg connection, a SQLAlchemy Session or Connection (sync "
                "or async), or django.db.connection",
            )
        if not _in_loop():
            self.need_sync(inner)
        elif kind not in ASYNC and not may_block.get():
            raise WrongConnection(
                "a connection of a sync driver would block the event loop",
                got=described(inner),
                do="Pass one of an async driver; or call app.sync in a thread, or make the handler "
                "a plain function",
            )
        try:
            if self._only:
                await _check_database(_RUNNERS[kind], inner, self._only)
            sent = {name: _as_text(value) for name, value in params.items()}
            sent = {"idle_ms": _IDLE_MS, "now": None, **sent}  # drivers take more than they need
            return await _RUNNERS[kind](inner, statement(statement_name, self._schema), sent)
        except LeaseworkError:
            raise
        except Exception as error:
            if (explained := _explained(error)) is None:
                raise
            raise explained from error


def _explained(error: Exception) -> LeaseworkError | None:
    """The error to raise for a driver's. None: it is not a driver's."""
    cause = _driver_error(error)
    if "another operation is in progress" in str(error):  # asyncpg
        return WrongConnection(_BUSY[0], do=_BUSY[1])
    if cause is None:
        return None
    state = sqlstate_of(cause)
    if state == _FAILED_TRANSACTION:
        return WrongConnection(_HAS_FAILED, do=_ROLL_BACK)
    if state == _REFUSED:
        return LostClaim("the job was taken away", do="Roll back")
    if state == _READ_ONLY:
        return ReadOnlyServer(
            "the transaction of this connection is read-only, or its server is a replica",
            do="Use a transaction that may write, on a connection to the primary",
        )
    found = translate(cause, sent=True)
    if isinstance(found, SchemaMissing):
        return SchemaMissing(
            "the database of this connection has no leasework schema",
            do="Pass a connection to leasework's database, or run there: leasework schema apply",
        )
    return found


def _as_text(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value)
    return str(value) if isinstance(value, UUID) else value


def _created(rows: Rows) -> list[tuple[UUID, bool]]:
    return [(UUID(str(row[0])), bool(row[1])) for row in rows]


def _schedule(app: str, name: str) -> dict[str, Any]:
    return {"app": json.dumps(app), "name": json.dumps(name)}


def _json_in_ascii(text: str) -> str:
    """Return equivalent JSON in ASCII, which every encoding can send."""
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _driver_error(error: BaseException | None) -> Exception | None:
    """The driver's own error: the innermost with an SQLSTATE, as frameworks wrap or copy errors."""
    found: Exception | None = None
    while isinstance(error, Exception):
        if isinstance(error, psycopg.Error) or sqlstate_of(error):
            found = error
        error = getattr(error, "orig", None) or error.__cause__
    return found


def _need(good: bool, what: str, do: str) -> None:
    if not good:
        raise WrongConnection(what, do=do)


async def _check_database(run: Run, connection: Any, wanted: str) -> None:
    # compared by the server: in some encodings psycopg returns bytes
    same = "select current_database() = %(wanted)s, current_database()"
    [[right, found]] = await run(connection, same, {"wanted": wanted})
    if not right:
        raise WrongConnection(
            f"in this test, on= needs a connection to the database {wanted}",
            got=f"one to {found}",
            do="Create the engine when it is needed, from app.dsn(), app.sync.dsn() or the fixture "
            "leasework_dsn. One created at import time stays bound to the database of that time",
        )


def check_free(driver: Any) -> None:
    """Raises WrongConnection if a connection of psycopg is in use: a copy or a stream holds its
    lock, for which a statement inside would wait forever. psycopg2 would break the connection."""
    if hasattr(driver, "lock"):
        _need(not driver.lock.locked(), *_BUSY)
    elif hasattr(driver, "get_transaction_status"):
        _need(driver.get_transaction_status() != psycopg.pq.TransactionStatus.ACTIVE, *_BUSY)


def check_sqlalchemy(target: Any, what: str, do: str) -> Any:
    """Return the connection of a Session or a Connection of SQLAlchemy. Raises WrongConnection if
    it is not to PostgreSQL or is busy, and with ``what`` and ``do`` if it is in autocommit."""
    connection = target.connection() if hasattr(target, "get_bind") else target
    dialect = connection.dialect.name
    _need(
        dialect == "postgresql",
        f"the connection is to {dialect}, not PostgreSQL",
        "Pass a session on the PostgreSQL database that has leasework's schema",
    )
    _need(not getattr(connection.connection.dbapi_connection, "autocommit", False), what, do)
    check_free(connection.connection.driver_connection)
    return connection


def _check_psycopg(connection: Any) -> None:
    """Raises WrongConnection if it is closed or busy, if its transaction has failed, and if it is
    in none."""
    _need(not connection.closed, *_CLOSED)
    check_free(connection)
    status = connection.info.transaction_status
    _need(status != psycopg.pq.TransactionStatus.INERROR, _HAS_FAILED, _ROLL_BACK)
    idle = connection.autocommit and status == psycopg.pq.TransactionStatus.IDLE
    _need(
        not idle,
        "the connection is in autocommit: the job would be committed without your rows",
        "Wrap the call in `with connection.transaction():`, or leave out on=",
    )


async def _run_psycopg(connection: Any, sql: str, params: dict[str, Any]) -> Rows:
    _check_psycopg(connection)
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    cursor.execute(sql, params)
    return cursor.fetchall()


async def _run_psycopg_async(connection: Any, sql: str, params: dict[str, Any]) -> Rows:
    _check_psycopg(connection)
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    await cursor.execute(sql, params)
    return await cursor.fetchall()


async def _run_asyncpg(connection: Any, sql: str, params: dict[str, Any]) -> Rows:
    holder = getattr(connection, "_con", connection)  # None: given back to its pool
    _need(holder is not None and not connection.is_closed(), *_CLOSED)
    _need(
        connection.is_in_transaction(),
        "the asyncpg connection is in no transaction: the job would be committed without your rows",
        "Wrap the call in `async with connection.transaction():`, or leave out on=",
    )
    order: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in order:
            order.append(match[1])
        return f"${order.index(match[1]) + 1}"

    text = _PARAMETER.sub(number, sql)
    rows: Rows = await connection.fetch(text, *[params[name] for name in order])
    return rows


async def _run_sqlalchemy(target: Any, sql: str, params: dict[str, Any]) -> Rows:
    return _sqlalchemy(target, sql, params)


async def _run_sqlalchemy_async(target: Any, sql: str, params: dict[str, Any]) -> Rows:
    from sqlalchemy.exc import InvalidRequestError

    session = target if hasattr(target, "run_sync") else target()  # async_scoped_session
    try:
        rows: Rows = await session.run_sync(_sqlalchemy, sql, params)
    except InvalidRequestError as error:
        raise _sqlalchemy_refuses(error) from error
    return rows


def _sqlalchemy(target: Any, sql: str, params: dict[str, Any]) -> Rows:
    """Run a statement on a Session or a Connection, which begins a transaction if there is none."""
    from sqlalchemy import text
    from sqlalchemy.exc import InvalidRequestError

    try:
        connection = check_sqlalchemy(
            target,
            "the connection is in autocommit: the job would be committed without your rows",
            "Use a connection with a transaction, or leave out on=",
        )
        named = text(_PARAMETER.sub(r":\1", sql))
        wanted = {name: params[name] for name in set(_PARAMETER.findall(sql))}
        return [tuple(row) for row in connection.execute(named, wanted)]
    except InvalidRequestError as error:
        raise _sqlalchemy_refuses(error) from error


def _sqlalchemy_refuses(error: Exception) -> WrongConnection:
    return WrongConnection(
        "SQLAlchemy cannot use the connection or session as it is",
        got=str(error),
        do="Pass an open one whose transaction has not failed",
    )


async def _run_django(connection: Any, sql: str, params: dict[str, Any]) -> Rows:
    _need(
        connection.vendor == "postgresql",
        f"the connection is to {connection.vendor}, not PostgreSQL",
        "Pass the connection of the PostgreSQL database that has leasework's schema",
    )
    _need(
        connection.in_atomic_block or not connection.get_autocommit(),
        "the Django connection is in autocommit: the job would be committed without your rows",
        "Wrap the call in `with transaction.atomic():`, or leave out on=",
    )
    _need(not connection.needs_rollback, _HAS_FAILED, "Leave the `atomic` block first")
    check_free(connection.connection)
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: Rows = cursor.fetchall()
    return rows


_RUNNERS: dict[str, Run] = {
    "psycopg": _run_psycopg,
    "psycopg async": _run_psycopg_async,
    "asyncpg": _run_asyncpg,
    "sqlalchemy": _run_sqlalchemy,
    "sqlalchemy async": _run_sqlalchemy_async,
    "django": _run_django,
}
