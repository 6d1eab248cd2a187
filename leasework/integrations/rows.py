"""Row claims for your own tables: each worker gets rows that no other worker has.

    for order in claim_rows(session, select(Order).where(Order.sent.is_(None)).limit(10)):

The rows are locked FOR UPDATE until your transaction ends; rows that are locked are skipped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from leasework.errors import WrongConnection, WrongSelect
from leasework.pg.users.kinds import described, recognise
from leasework.pg.users.row_claim import check_lock, claiming, refused
from leasework.pg.users.user import check_asyncpg, check_free, check_psycopg

_NO_TRANSACTION = "the connection is not in a transaction: the rows would be unlocked at once"
_BEGIN = {
    "psycopg": "Wrap the claim and the work in `with connection.transaction():`",
    "asyncpg": "Wrap the claim and the work in `async with connection.transaction():`",
    "sqlalchemy": "Use an engine without AUTOCOMMIT, and `with session.begin():`",
    "django": "Wrap the claim and the work in `with transaction.atomic():`",
}


def claim_rows(
    connection: Any, select: Any, params: Any = None, *, of: Any = None, lock: str = "update"
) -> Any:
    """The rows of ``select`` that nobody else has locked, locked until your transaction ends.

    ``connection``: a SQLAlchemy Session or Connection (sync or async), psycopg, asyncpg or Django
    connection; await the result of an async one. ``select``: SQLAlchemy's, or text in the driver's
    own style with ``params`` (asyncpg: a sequence). ``of``: the table whose rows to claim; needed
    for text and for joins. ``lock``: ``update``, or a weaker one: ``no key update``, ``share``,
    ``key share`` (with the last two, two workers can hold the same row).

    Returns a list: entities for a select of one mapped class, else the driver's rows. Raises
    WrongConnection (no transaction, SQLite), WrongSelect, or ConfigError for another ``lock``.
    """
    check_lock(lock)
    kind, inside = recognise(connection)
    if kind:
        return _RUNNERS[kind](inside, select, params, of, lock)
    if "sqlite" in (name := described(connection)):
        raise _cannot_lock_rows("sqlite")
    raise WrongConnection(
        "rows cannot be claimed on this kind of connection",
        got=name,
        do="Pass a SQLAlchemy Session or Connection, or a psycopg, asyncpg or Django connection",
    )


def _cannot_lock_rows(dialect: str) -> WrongConnection:
    why = (
        "SQLite cannot lock rows, and SQLAlchemy silently omits FOR UPDATE: every worker would "
        "get the same rows"
        if dialect == "sqlite"
        else f"the connection is to {dialect}, not PostgreSQL"
    )
    return WrongConnection(why, do="Run this on PostgreSQL, in tests too: leasework.testing")


def _text(select: Any, of: Any, lock: str) -> str:
    if not isinstance(select, str):
        raise WrongSelect(
            "on this connection, the select must be text",
            got=select,
            do="For a SQLAlchemy select, pass a SQLAlchemy Session or Connection",
        )
    return claiming(select, of, lock)


@contextmanager
def _explained() -> Iterator[None]:
    """Raise WrongSelect if PostgreSQL refuses to lock the rows."""
    try:
        yield
    except Exception as error:
        if found := refused(error.__cause__ or error):  # frameworks wrap the driver's error
            raise found from error
        raise


def _psycopg(connection: Any, select: Any, params: Any, of: Any, lock: str) -> Any:
    text = _text(select, of, lock)
    check_psycopg(connection, _NO_TRANSACTION, _BEGIN["psycopg"])
    with _explained():
        return connection.execute(text.encode(), params).fetchall()


async def _psycopg_async(connection: Any, select: Any, params: Any, of: Any, lock: str) -> Any:
    text = _text(select, of, lock)
    check_psycopg(connection, _NO_TRANSACTION, _BEGIN["psycopg"])
    with _explained():
        cursor = await connection.execute(text.encode(), params)
        return await cursor.fetchall()


async def _asyncpg(connection: Any, select: Any, params: Any, of: Any, lock: str) -> Any:
    text = _text(select, of, lock)
    check_asyncpg(connection, _NO_TRANSACTION, _BEGIN["asyncpg"])
    with _explained():
        return list(await connection.fetch(text, *(params or ())))


def _django(connection: Any, select: Any, params: Any, of: Any, lock: str) -> Any:
    if connection.vendor != "postgresql":
        raise _cannot_lock_rows(connection.vendor)
    text = _text(select, of, lock)
    if not connection.in_atomic_block and connection.get_autocommit():
        raise WrongConnection(_NO_TRANSACTION, do=_BEGIN["django"])
    check_free(connection.connection)
    with connection.cursor() as cursor, _explained():
        cursor.execute(text, params)
        return cursor.fetchall()


def _sqlalchemy(target: Any, select: Any, params: Any, of: Any, lock: str) -> list[Any]:
    """Run it on a Session or a Connection, which begins a transaction if there is none."""
    is_session = hasattr(target, "get_bind")
    connection = target.connection() if is_session else target
    if connection.dialect.name != "postgresql":
        raise _cannot_lock_rows(connection.dialect.name)
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise WrongConnection(_NO_TRANSACTION, do=_BEGIN["sqlalchemy"])
    check_free(connection.connection.driver_connection)
    statement = _locking(select, of, lock)
    # refresh what the session loaded before: until the lock, the row could change
    options = {"execution_options": {"populate_existing": True}} if is_session else {}
    with _explained():
        result = target.execute(statement, params, **options)
    if is_session:
        described = getattr(statement, "column_descriptions", [])
        if len(described) == 1 and described[0]["entity"] is described[0]["expr"]:
            return list(result.unique().scalars())
    return list(result)


def _locking(select: Any, of: Any, lock: str) -> Any:
    from sqlalchemy import Select, TextClause, text

    if isinstance(select, TextClause):
        return text(claiming(select.text, of, lock)).bindparams(*select._bindparams.values())
    if isinstance(select, str):
        return text(claiming(select, of, lock))
    if not isinstance(select, Select):
        raise WrongSelect(
            "rows are claimed by a select of one table, not by a union or another statement",
            got=type(select).__name__,
        )
    if getattr(select, "_for_update_arg", None) is not None:
        raise WrongSelect(
            "the select already has a lock",
            do="Leave out with_for_update(): leasework adds it, with SKIP LOCKED and OF the table",
        )
    return select.with_for_update(
        of=_one_table(select) if of is None else of,
        skip_locked=True,
        read="share" in lock,
        key_share=lock in ("no key update", "key share"),
    )


def _one_table(select: Any) -> Any:
    """The only table that the select reads. Raises WrongSelect for a join."""
    from sqlalchemy import Alias, TableClause

    froms = select.get_final_froms()
    if len(froms) == 1 and isinstance(froms[0], TableClause | Alias):
        return froms[0]
    raise WrongSelect(
        "the select reads more than one table, and would lock the rows of all of them",
        got=", ".join(str(part).replace("\n", " ") for part in froms) or "no table",
        do="Say which rows to claim: of=Order",
    )


async def _sqlalchemy_async(target: Any, select: Any, params: Any, of: Any, lock: str) -> Any:
    session = target if hasattr(target, "run_sync") else target()  # async_scoped_session
    return await session.run_sync(_sqlalchemy, select, params, of, lock)


Run = Callable[[Any, Any, Any, Any, str], list[Any] | Awaitable[list[Any]]]

_RUNNERS: dict[str, Run] = {
    "psycopg": _psycopg,
    "psycopg async": _psycopg_async,
    "asyncpg": _asyncpg,
    "sqlalchemy": _sqlalchemy,
    "sqlalchemy async": _sqlalchemy_async,
    "django": _django,
}
