"""Rows with names, for what people read."""

from __future__ import annotations

from leasehold.pg.exchange import Row
from leasehold.ports import Rows


def named(names: str, rows: list[Row]) -> Rows:
    """``names``: the columns, with spaces between."""
    keys = names.split()
    return [dict(zip(keys, row, strict=True)) for row in rows]
