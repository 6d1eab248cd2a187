"""Text for databases and connections whose encoding is not UTF-8.

leasework refuses data (arguments, results, names) with characters that the database's encoding
does not have. In text for people (errors, reasons, notes, events) it escapes such characters.
"""

from __future__ import annotations

import json
import re
from typing import Any

from psycopg.types.json import Jsonb

from leasework.errors import BadPayload
from leasework.pg.connection.fast.exchange import Row
from leasework.pg.connection.pool import Pool
from leasework.pg.connection.session import Params

_NOT_ASCII = re.compile("[^\x00-\x7f]")


_READ_BY_PEOPLE = ("errors", "tracebacks", "reason", "note", "says", "info", "events")
"""Parameters of statements with text for people."""


def has_words(params: Params) -> bool:
    """Return whether any of the parameters is text for people."""
    return not params.keys().isdisjoint(_READ_BY_PEOPLE)


async def fetch_told(
    pool: Pool, name: str, params: Params, timeout: float | None = None, *how: bool
) -> list[Row]:
    """Run one statement that has such a parameter, and return its rows. If the database refuses the
    text, send it again in ASCII."""
    try:
        return await pool.fetch(name, params, timeout, *how)
    except BadPayload:
        told = {key: in_ascii(params[key]) for key in _READ_BY_PEOPLE if key in params}
        return await pool.fetch(name, {**params, **told}, timeout, *how)


def in_ascii(value: Any) -> Any:
    """Return the value with all characters outside ASCII escaped in its texts: ``\\u3042``."""
    if isinstance(value, str):
        return value.encode("ascii", "backslashreplace").decode()
    if isinstance(value, Jsonb):
        return Jsonb(in_ascii(value.obj))
    if isinstance(value, dict):
        return {in_ascii(key): in_ascii(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_ascii(part) for part in value]
    return value


def json_in_ascii(text: str) -> str:
    """Return equivalent JSON in ASCII, which every encoding can send."""
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
