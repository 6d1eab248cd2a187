"""The statements: one file each, read once, the schema's name put in."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

_SCHEMA = re.compile(r"\bleasehold\.")
_CHANNEL = re.compile(r"'leasehold'")


def for_schema(text: str, schema: str) -> str:
    """Statements are written for the schema ``leasehold``; the channel has its name too."""
    if schema == "leasehold":
        return text
    return _CHANNEL.sub(f"'{schema}'", _SCHEMA.sub(f"{schema}.", text))


@lru_cache(maxsize=512)
def statement(name: str, schema: str) -> str:
    """The text of ``sql/<noun>/<verb>.sql`` without its header."""
    text = files("leasehold.pg").joinpath("sql", f"{name}.sql").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return for_schema("\n".join(lines).strip(), schema)
