"""Recognises the connections that users pass, also inside proxies of frameworks and agents. None of
the drivers is imported here."""

from __future__ import annotations

from typing import Any

_KINDS = {
    ("psycopg", "Connection"): "psycopg",
    ("psycopg", "AsyncConnection"): "psycopg async",
    ("asyncpg", "Connection"): "asyncpg",
    ("asyncpg", "PoolConnectionProxy"): "asyncpg",
    ("sqlalchemy", "Session"): "sqlalchemy",
    ("sqlalchemy", "scoped_session"): "sqlalchemy",
    ("sqlalchemy", "Connection"): "sqlalchemy",
    ("sqlalchemy", "AsyncSession"): "sqlalchemy async",
    ("sqlalchemy", "async_scoped_session"): "sqlalchemy async",
    ("sqlalchemy", "AsyncConnection"): "sqlalchemy async",
    ("django", "BaseDatabaseWrapper"): "django",
    ("django", "ConnectionProxy"): "django",
}
ASYNC = ("psycopg async", "asyncpg", "sqlalchemy async")
"""The kinds whose calls must be awaited."""
_MOST_PROXIES = 9


def recognise(given: Any) -> tuple[str, Any]:
    """The kind of a connection, empty if leasework knows none, and the connection inside the
    proxies."""
    inner = given
    for _ in range(_MOST_PROXIES):
        if kind := _kind(type(inner)):
            return kind, inner
        inner = getattr(inner, "__wrapped__", None)
    return _kind(given.__class__), given  # a proxy that only claims to be of the class


def described(given: Any) -> str:
    """Its type, for a message."""
    return f"{type(given).__module__}.{type(given).__qualname__}"


def _kind(of: type) -> str:
    found = (_KINDS.get((one.__module__.split(".")[0], one.__name__)) for one in of.__mro__)
    return next(filter(None, found), "")
