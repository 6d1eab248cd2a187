"""Operations on a connection of the user's, inside the user's own transaction.

Any of psycopg (Connection, AsyncConnection), asyncpg, SQLAlchemy (Session, Connection,
AsyncSession, AsyncConnection; over psycopg or asyncpg) and a Django connection. None of them is
imported here: whoever passes one has it. Over a sync driver these coroutines never suspend.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg

from leasehold.config import Limits
from leasehold.errors import LeaseholdError, LostClaim, WrongConnection
from leasehold.model.job import JobRequest, encode
from leasehold.pg.faults import translate
from leasehold.pg.sql import statement

_PARAMETER = re.compile(r"%\((\w+)\)s")

Rows = Sequence[Sequence[Any]]
Run = Callable[[Any, str, dict[str, Any]], Awaitable[Rows]]


class UserConnections:
    """What the client and the contexts do with ``on=``."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    async def enqueue(
        self, connection: Any, jobs: Sequence[tuple[UUID, JobRequest]], payload_limit: int
    ) -> list[tuple[UUID, bool]]:
        """(id, created) per job. Commits with the user's transaction, or not at all."""
        requests = [job.as_request(job_id, payload_limit) for job_id, job in jobs]
        rows = await self._fetch(connection, "user/enqueue", {"jobs": json.dumps(requests)})
        return [(UUID(str(row[0])), bool(row[1])) for row in rows]

    async def assert_mine(self, connection: Any, job: UUID, node: UUID, token: int) -> None:
        params = {"job": str(job), "node": str(node), "token": token}
        if not await self._fetch(connection, "user/assert_mine", params):
            raise LostClaim("the job was taken away", got=str(job), do="Roll back")

    async def complete(
        self, connection: Any, job: UUID, node: UUID, token: int, result: Any
    ) -> None:
        text = None if result is None else encode("result", result, Limits.result_bytes)
        params = {"job": str(job), "node": str(node), "token": token, "result": text}
        if not await self._fetch(connection, "user/complete", params):
            raise LostClaim("the job was taken away", got=str(job), do="Roll back")

    async def _fetch(self, connection: Any, name: str, params: dict[str, Any]) -> Rows:
        run = _runner(connection)
        try:
            return await run(connection, statement(name, self._schema), params)
        except LeaseholdError:
            raise
        except Exception as error:
            cause = _driver_error(error)
            if cause is None:
                raise
            raise translate(cause, sent=True) from error


def _driver_error(error: BaseException | None) -> Exception | None:
    """The driver's own error inside a framework's, if it has an SQLSTATE."""
    while isinstance(error, Exception):
        if isinstance(error, psycopg.Error) or getattr(error, "sqlstate", None):
            return error
        error = getattr(error, "orig", None) or error.__cause__
    return None


def _runner(connection: Any) -> Run:
    """How to run a statement on it. Raises WrongConnection with what would be right."""
    for kind in type(connection).__mro__:
        run = _RUNNERS.get((kind.__module__.split(".")[0], kind.__name__))
        if run:
            return run
    if type(connection).__module__.startswith("django.db") and hasattr(
        connection, "in_atomic_block"
    ):
        return _run_django
    raise WrongConnection(
        "on= cannot use this",
        got=type(connection).__module__ + "." + type(connection).__qualname__,
        do="Pass a psycopg or asyncpg connection, a SQLAlchemy Session or Connection (sync or "
        "async), or django.db.connection",
    )


def _need(good: bool, what: str, do: str) -> None:
    if not good:
        raise WrongConnection(what, do=do)


def _check_psycopg(connection: Any) -> None:
    _need(not connection.closed, "the connection is closed", "Pass an open one")
    status = connection.info.transaction_status
    _need(
        status != psycopg.pq.TransactionStatus.INERROR,
        "the transaction has failed already",
        "Roll it back first",
    )
    _need(
        not connection.autocommit or status != psycopg.pq.TransactionStatus.IDLE,
        "the connection is in autocommit and in no transaction: nothing would be all or nothing",
        "Wrap the call in `with connection.transaction():`, or leave on= out",
    )


async def _run_psycopg(connection: Any, sql: str, params: dict[str, Any]) -> Rows:
    _check_psycopg(connection)
    cursor = psycopg.Cursor(connection)
    cursor.execute(sql, params)
    return cursor.fetchall()


async def _run_psycopg_async(connection: Any, sql: str, params: dict[str, Any]) -> Rows:
    _check_psycopg(connection)
    cursor = psycopg.AsyncCursor(connection)
    await cursor.execute(sql, params)
    return await cursor.fetchall()


async def _run_asyncpg(connection: Any, sql: str, params: dict[str, Any]) -> Rows:
    _need(not connection.is_closed(), "the connection is closed", "Pass an open one")
    _need(
        connection.is_in_transaction(),
        "the asyncpg connection is in no transaction: nothing would be all or nothing",
        "Wrap the call in `async with connection.transaction():`, or leave on= out",
    )
    order: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in order:
            order.append(match[1])
        return f"${order.index(match[1]) + 1}"

    text = _PARAMETER.sub(number, sql)
    rows: Rows = await connection.fetch(text, *[params[name] for name in order])
    return rows


def _sqlalchemy_text(connection: Any, sql: str) -> Any:
    from sqlalchemy import text

    bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
    dialect = getattr(bind, "dialect", None)
    _need(
        dialect is not None and dialect.name == "postgresql",
        f"the connection speaks to {dialect.name if dialect else 'an unknown engine'}, not "
        "PostgreSQL",
        "leasehold lives in PostgreSQL: pass a session on the database that has its schema",
    )
    options: Mapping[str, Any] = getattr(connection, "get_execution_options", dict)()
    _need(
        options.get("isolation_level") != "AUTOCOMMIT",
        "the connection is in autocommit: nothing would be all or nothing",
        "Use a connection with a transaction, or leave on= out",
    )
    return text(_PARAMETER.sub(r":\1", sql))


async def _run_sqlalchemy(connection: Any, sql: str, params: dict[str, Any]) -> Rows:
    text = _sqlalchemy_text(connection, sql)
    return [tuple(row) for row in connection.execute(text, _named_in(sql, params))]


async def _run_sqlalchemy_async(connection: Any, sql: str, params: dict[str, Any]) -> Rows:
    sync = getattr(connection, "sync_session", None) or getattr(connection, "sync_connection", None)
    _need(sync is not None, "the connection is not started", "Use it inside its `async with`")
    text = _sqlalchemy_text(sync, sql)
    return [tuple(row) for row in await connection.execute(text, _named_in(sql, params))]


async def _run_django(connection: Any, sql: str, params: dict[str, Any]) -> Rows:
    _need(
        connection.vendor == "postgresql",
        f"the connection speaks to {connection.vendor}, not PostgreSQL",
        "leasehold lives in PostgreSQL: pass the connection of that database",
    )
    _need(
        connection.in_atomic_block or not connection.get_autocommit(),
        "the Django connection is in autocommit: nothing would be all or nothing",
        "Wrap the call in `with transaction.atomic():`, or leave on= out",
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: Rows = cursor.fetchall()
    return rows


def _named_in(sql: str, params: dict[str, Any]) -> dict[str, Any]:
    return {name: params[name] for name in set(_PARAMETER.findall(sql))}


_RUNNERS: dict[tuple[str, str], Run] = {
    ("psycopg", "Connection"): _run_psycopg,
    ("psycopg", "AsyncConnection"): _run_psycopg_async,
    ("asyncpg", "Connection"): _run_asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _run_asyncpg,
    ("sqlalchemy", "Session"): _run_sqlalchemy,
    ("sqlalchemy", "scoped_session"): _run_sqlalchemy,
    ("sqlalchemy", "Connection"): _run_sqlalchemy,
    ("sqlalchemy", "AsyncSession"): _run_sqlalchemy_async,
    ("sqlalchemy", "async_scoped_session"): _run_sqlalchemy_async,
    ("sqlalchemy", "AsyncConnection"): _run_sqlalchemy_async,
}
