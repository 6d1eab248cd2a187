"""Text for databases and connections whose encoding is not UTF-8. leasework refuses data with
characters that the encoding does not have, and escapes them in text for people."""

from __future__ import annotations

import json
import re
from typing import Any

from psycopg.types.json import Jsonb

_NOT_ASCII = re.compile("[^\x00-\x7f]")


_READ_BY_PEOPLE = ("errors", "tracebacks", "reason", "note", "says", "info", "events")
"""Parameters of statements with text for people."""


def words_in_ascii(params: dict[str, Any]) -> dict[str, Any]:
    """Return those of a statement's parameters that are text for people, in ASCII."""
    return {name: in_ascii(params[name]) for name in _READ_BY_PEOPLE if name in params}


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
