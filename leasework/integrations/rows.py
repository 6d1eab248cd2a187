"""Row claims for your own tables: each worker gets rows that no other worker has.

    for order in claim_rows(session, select(Order).where(Order.sent.is_(None)).limit(10)):

The rows are locked FOR UPDATE until your transaction ends; rows that are locked are skipped.
"""

from __future__ import annotations

from typing import Any

from leasework.errors import ConfigError, WrongConnection, WrongSelect, suggest
from leasework.pg.users.kinds import described, recognise
from leasework.pg.users.user import check_sqlalchemy

_LOCKS = ("update", "no key update", "share", "key share")


def claim_rows(
    connection: Any, select: Any, params: Any = None, *, of: Any = None, lock: str = "update"
) -> Any:
    """The rows of ``select`` that nobody else has locked, locked until your transaction ends.

    ``connection``: a SQLAlchemy Session or Connection; await the result of an async one.
    ``of``: the table whose rows to claim; needed for joins. ``lock``: ``update``, or a weaker one:
    ``no key update``, ``share``, ``key share`` (with the last two, two workers can hold the same
    row).

    Returns a list: entities for a select of one mapped class, else rows. Raises WrongConnection
    (no transaction, SQLite), WrongSelect, or ConfigError for another ``lock``.
    """
    if lock not in _LOCKS:
        raise ConfigError(f"no row lock is named {lock!r}", do=suggest(str(lock), _LOCKS))
    kind, target = recognise(connection)
    if kind == "sqlalchemy":
        return _claim(target, select, params, of, lock)
    if kind == "sqlalchemy async":
        session = target if hasattr(target, "run_sync") else target()  # async_scoped_session
        return session.run_sync(_claim, select, params, of, lock)
    raise WrongConnection(
        "rows can be claimed on a Session or a Connection of SQLAlchemy",
        got=described(connection),
        do="On another connection, write FOR UPDATE OF the table SKIP LOCKED, in a transaction",
    )


def _claim(target: Any, select: Any, params: Any, of: Any, lock: str) -> list[Any]:
    """Run it on a Session or a Connection, which begins a transaction if there is none."""
    is_session = hasattr(target, "get_bind")
    bound = target.get_bind() if is_session else target
    if bound.dialect.name == "sqlite":
        raise WrongConnection(
            "SQLite cannot lock rows, and SQLAlchemy silently omits FOR UPDATE: every worker would "
            "get the same rows",
            do="Run this on PostgreSQL, in tests too: leasework.testing",
        )
    check_sqlalchemy(
        target,
        "the connection is not in a transaction: the rows would be unlocked at once",
        "Use an engine without AUTOCOMMIT, and `with session.begin():`",
    )
    statement = _locking(select, of, lock)
    # refresh what the session loaded before: until the lock, the row could change
    options = {"execution_options": {"populate_existing": True}} if is_session else {}
    result = target.execute(statement, params, **options)
    if is_session:
        described = getattr(statement, "column_descriptions", [])
        if len(described) == 1 and described[0]["entity"] is described[0]["expr"]:
            return list(result.unique().scalars())
    return list(result)


def _locking(select: Any, of: Any, lock: str) -> Any:
    from sqlalchemy import Select

    if not isinstance(select, Select):
        raise WrongSelect(
            "rows are claimed by a select of one table, not by a union, text or another statement",
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
