"""The statements: one file each, read once, the schema's name put in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib.resources import files

from psycopg.adapt import PyFormat

from leasework.model.job import COLUMNS, JobLine, JobRecord

_SCHEMA = re.compile(r"\bleasework\.")
_CHANNEL = re.compile(r"'leasework'")
_INCLUDED = re.compile(r"\{\{([\w:/]+)\}\}")
_PLACE = re.compile(r"%\((\w+)\)s|%%")

_COLUMNS = {
    "JobOptions": ", ".join(COLUMNS.values()),
    "JobLine": ", ".join(f.name for f in fields(JobLine)),
    "JobRecord": ", ".join(f.name for f in fields(JobRecord)),
}


def in_sql(schema: str) -> str:
    """The schema's name in SQL. Any other one than ours may be a word of the language: user."""
    return schema if schema == "leasework" else f'"{schema}"'


def for_schema(text: str, schema: str) -> str:
    """Statements are written for the schema ``leasework``; the channel has its name too."""
    if schema == "leasework":
        return text
    return _CHANNEL.sub(f"'{schema}'", _SCHEMA.sub(f"{in_sql(schema)}.", text))


@lru_cache
def _texts(package: str) -> dict[str, str]:
    """All of a package, by ``noun/verb``. They are read together, at the first use: a process that
    has no descriptor left later, or whose files an upgrade has replaced, still has its own."""
    nouns = [noun for noun in files(package).joinpath("sql").iterdir() if noun.is_dir()]
    return {
        f"{noun.name}/{file.name.removesuffix('.sql')}": file.read_text("utf-8")
        for noun in nouns
        if noun.name != "migrations"
        for file in noun.iterdir()
        if file.name.endswith(".sql")
    }


@lru_cache(maxsize=512)
def statement(name: str, schema: str) -> str:
    """The text of ``sql/<noun>/<verb>.sql`` without its header. A statement of another package
    has that package's name before it: ``leasework_lab:chaos/look``. ``{{noun/_part}}`` stands for
    the text of a file that several statements share, ``{{JobRecord}}`` for the columns of a row."""
    package, _, path = name.rpartition(":")
    text = _texts(package or "leasework.pg")[path]
    text = _INCLUDED.sub(lambda part: _COLUMNS.get(part[1]) or statement(part[1], schema), text)
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return for_schema("\n".join(lines).strip(), schema)


@dataclass(frozen=True, eq=False)
class Query:
    """A statement as PostgreSQL takes it, with $1, $2 … for the values of these names."""

    text: bytes
    names: tuple[str, ...]
    formats: list[PyFormat] = field(init=False)
    """Each as psycopg sends its type."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "formats", [PyFormat.AUTO] * len(self.names))


@lru_cache(maxsize=512)
def query(name: str, schema: str) -> Query:
    """The same, with the places of its values numbered."""
    places: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%"
        return f"${places.setdefault(found[1], len(places) + 1)}"

    text = _PLACE.sub(numbered, statement(name, schema))
    return Query(text.encode(), tuple(places))
