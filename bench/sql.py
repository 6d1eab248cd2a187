"""Asking the database."""

from __future__ import annotations

from typing import Any

import psycopg


def one(connection: psycopg.Connection[Any], query: str, *values: Any) -> Any:
    """The one value of a query."""
    row = connection.execute(query.encode(), values or None).fetchone()
    assert row
    return row[0]
